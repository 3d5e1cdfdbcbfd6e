import type { Retention, RunKey, SessionKey } from "../core/ports.ts";
import type { Connection, SqliteRow } from "./sqlite-database.ts";
import { deleteEntries } from "./sqlite-entries.ts";
import { toText } from "./stored-rows.ts";

/** How many runs or sessions are deleted in one transaction. */
export const PRUNE_CHUNK = 100;

/** Whether a live run uses the session `s`. */
const isUsed = `
  (EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.session_id = s.session_id
    AND r.session_id <> r.run_id AND r.finished_at IS NULL)
  OR EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.run_id = s.session_id
    AND r.session_id = r.run_id AND r.finished_at IS NULL)) AS used`;

/** Whether the parent of the run `r` has not ended, and may read the run again. */
const isNeeded = `
  EXISTS (SELECT 1 FROM cadenza_runs p WHERE p.tenant = r.tenant AND p.run_id = r.parent AND p.finished_at IS NULL)`;

/** Deletes some of the runs that may be deleted, those that ended first, and returns how many. 0: none is left. */
export function pruneRuns(connection: Connection, { maxRuns, endedBefore }: Retention): number {
  const newestBeyond = Number.isFinite(maxRuns)
    ? connection.get(
        `SELECT id, finished_at FROM cadenza_runs WHERE finished_at IS NOT NULL
         ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ? + 0`,
        maxRuns,
      )
    : undefined;
  const oldest = connection.all(
    `SELECT id, finished_at FROM cadenza_runs r WHERE finished_at IS NOT NULL AND NOT ${isNeeded}
     ORDER BY finished_at, id LIMIT ${PRUNE_CHUNK}`,
  );
  const firstToKeep = oldest.findIndex(
    (run) => Number(run["finished_at"]) >= endedBefore && isAfter(run, newestBeyond),
  );
  const doomed = firstToKeep === -1 ? oldest : oldest.slice(0, firstToKeep);
  for (const run of doomed) deleteRun(connection, Number(run["id"]));
  return doomed.length;
}

/** Deletes those of the runs that have ended, and returns how many those were. */
export function deleteRuns(connection: Connection, runs: readonly RunKey[]): number {
  const select = "SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ? AND finished_at IS NOT NULL";
  let deleted = 0;
  for (const { tenant, run_id } of runs) {
    const run = connection.get(select, toText(tenant), toText(run_id));
    if (run === undefined) continue;
    deleteRun(connection, Number(run["id"]));
    deleted += 1;
  }
  return deleted;
}

function deleteRun(connection: Connection, id: number): void {
  deleteEntries(connection, id);
  connection.run("DELETE FROM cadenza_labels WHERE run = ?", id);
  connection.run("DELETE FROM cadenza_runs WHERE id = ?", id);
}

/** How far `pruneSessions` has looked. */
export interface SessionCursor {
  readonly changed_at: number;
  readonly id: number;
}

/**
 * Checks some sessions from a cursor on, deletes those that may be deleted, and returns the next cursor. Undefined: all
 * are checked.
 */
export function pruneSessions(
  connection: Connection,
  changedBefore: number,
  from: SessionCursor,
): SessionCursor | undefined {
  const sessions = connection.all(
    `SELECT s.id, s.changed_at, ${isUsed}
     FROM cadenza_sessions s WHERE s.changed_at < ? AND (s.changed_at, s.id) > (?, ?)
     ORDER BY s.changed_at, s.id LIMIT ${PRUNE_CHUNK}`,
    changedBefore,
    from.changed_at,
    from.id,
  );
  for (const session of sessions) removeUnused(connection, session);
  const last = sessions.at(-1);
  if (last === undefined) return undefined;
  return { changed_at: Number(last["changed_at"]), id: Number(last["id"]) };
}

/** Deletes a session, unless a live run uses it, and returns whether it does not exist any more. */
export function deleteSession(connection: Connection, { tenant, session_id }: SessionKey): boolean {
  const select = `SELECT s.id, ${isUsed} FROM cadenza_sessions s WHERE s.tenant = ? AND s.session_id = ?`;
  const session = connection.get(select, toText(tenant), toText(session_id));
  return session === undefined || removeUnused(connection, session);
}

/** Deletes a session unless it is used, and returns whether it has. */
function removeUnused(connection: Connection, session: SqliteRow): boolean {
  if (Number(session["used"]) === 1) return false;
  connection.run("DELETE FROM cadenza_messages WHERE session = ?", Number(session["id"]));
  connection.run("DELETE FROM cadenza_sessions WHERE id = ?", Number(session["id"]));
  return true;
}

function isAfter(run: SqliteRow, other: SqliteRow | undefined): boolean {
  if (other === undefined) return true;
  const difference = Number(run["finished_at"]) - Number(other["finished_at"]);
  return difference > 0 || (difference === 0 && Number(run["id"]) > Number(other["id"]));
}
