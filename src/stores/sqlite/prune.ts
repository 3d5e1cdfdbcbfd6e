import type { RunKey, SessionKey } from "../../core/ports.ts";
import type { EndedPlace, Passed, Passing } from "../kept-runs.ts";
import { fromText, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { deleteEntries } from "./entries.ts";

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

/** A place in the order in which runs ended, or in which sessions were changed. */
export type Place = EndedPlace<number>;

/** Before and behind all of them. */
export const START: Place = { at: Number.NEGATIVE_INFINITY, id: 0 };
export const END: Place = { at: Number.POSITIVE_INFINITY, id: 0 };

/** Passes over ended runs: see `KeptRuns`. */
export function passOver(connection: Connection, { from, to, most }: Passing<number>): Passed<number> | undefined {
  const range = `FROM cadenza_runs WHERE finished_at IS NOT NULL
    AND (finished_at, id) > (?, ?) AND (finished_at, id) <= (?, ?) ORDER BY finished_at, id`;
  const places = [from.at, from.id, to.at, to.id];
  const counted = connection.get(`SELECT count(*) AS runs FROM (SELECT 1 ${range} LIMIT ? + 0)`, ...places, most);
  const runs = Number(counted?.["runs"]);
  if (runs === 0) return undefined;
  const row = connection.get(`SELECT id, finished_at AS at ${range} LIMIT 1 OFFSET ? + 0`, ...places, runs - 1);
  return row && { runs, last: placeOf(row) };
}

/**
 * Deletes some of the ended runs from one place to another, those that ended first, but for runs that a live parent may read
 * again. Returns how many, and how far it came. Undefined: all have been looked at.
 */
export function pruneRuns(
  connection: Connection,
  from: Place,
  last: Place,
): { readonly place: Place; readonly deleted: number } | undefined {
  const runs = connection.all(
    `SELECT id, finished_at AS at, ${isNeeded} AS needed FROM cadenza_runs r WHERE finished_at IS NOT NULL
     AND (finished_at, id) > (?, ?) AND (finished_at, id) <= (?, ?) ORDER BY finished_at, id LIMIT ${PRUNE_CHUNK}`,
    from.at,
    from.id,
    last.at,
    last.id,
  );
  const doomed = runs.filter(({ needed }) => Number(needed) === 0);
  for (const run of doomed) deleteRun(connection, Number(run["id"]));
  const end = runs.at(-1);
  return end && { place: placeOf(end), deleted: doomed.length };
}

/**
 * Those of the ended runs of a tenant beyond a number that may be deleted, at most `limit`, the ones that ended first. It
 * reads all runs of the tenant, unless the tenant has no more than the number.
 */
export function runsBeyond(connection: Connection, tenant: string, maxRuns: number, limit: number): readonly RunKey[] {
  if (!Number.isFinite(maxRuns)) return [];
  const name = toText(tenant);
  // An application without tenants has few other runs than those of the empty one.
  const from = tenant === "" ? "cadenza_runs r" : "cadenza_runs r INDEXED BY cadenza_runs_by_tenant";
  const isOf = tenant === "" ? "r.tenant = ?" : "r.tenant = ? AND r.tenant <> ''";
  if (tenant !== "") {
    const counted = connection.get(`SELECT count(*) AS runs FROM ${from} WHERE ${isOf}`, name);
    if (Number(counted?.["runs"]) <= maxRuns) return [];
  }
  const newest = connection.get(
    `SELECT r.id, r.finished_at FROM ${from} WHERE ${isOf} AND r.finished_at IS NOT NULL
     ORDER BY r.finished_at DESC, r.id DESC LIMIT 1 OFFSET ? + 0`,
    name,
    maxRuns,
  );
  if (newest === undefined) return [];
  const found = connection.all(
    `SELECT r.run_id FROM ${from} WHERE ${isOf} AND r.finished_at IS NOT NULL
     AND (r.finished_at, r.id) <= (?, ?) AND NOT ${isNeeded} ORDER BY r.finished_at, r.id LIMIT ?`,
    name,
    Number(newest["finished_at"]),
    Number(newest["id"]),
    limit,
  );
  return found.map((row) => ({ tenant, run_id: fromText(String(row["run_id"])) }));
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
  connection.run("DELETE FROM cadenza_inbox WHERE run = ?", id);
  connection.run("DELETE FROM cadenza_runs WHERE id = ?", id);
}

/**
 * Checks some sessions from a cursor on, deletes those that may be deleted, and returns the next cursor. Undefined: all
 * are checked.
 */
export function pruneSessions(connection: Connection, changedBefore: number, from: Place): Place | undefined {
  const sessions = connection.all(
    `SELECT s.id, s.changed_at AS at, ${isUsed}
     FROM cadenza_sessions s WHERE s.changed_at < ? AND (s.changed_at, s.id) > (?, ?)
     ORDER BY s.changed_at, s.id LIMIT ${PRUNE_CHUNK}`,
    changedBefore,
    from.at,
    from.id,
  );
  return removeUnusedOf(connection, sessions);
}

/** Deletes those of the sessions that no live run uses, and returns the place of the last one. */
function removeUnusedOf(connection: Connection, sessions: readonly SqliteRow[]): Place | undefined {
  for (const session of sessions) removeUnused(connection, session);
  const last = sessions.at(-1);
  return last && placeOf(last);
}

/**
 * Checks some sessions of a tenant beyond a number, the ones that were changed first, from a cursor on, and deletes those
 * that no live run uses. Returns the next cursor. Undefined: all are checked.
 */
export function pruneSessionsOf(
  connection: Connection,
  tenant: string,
  maxSessions: number,
  from: Place,
): Place | undefined {
  if (!Number.isFinite(maxSessions)) return undefined;
  const name = toText(tenant);
  const newest = connection.get(
    `SELECT s.id, s.changed_at AS at FROM cadenza_sessions s WHERE s.tenant = ?
     ORDER BY s.changed_at DESC, s.id DESC LIMIT 1 OFFSET ? + 0`,
    name,
    maxSessions,
  );
  if (newest === undefined) return undefined;
  const sessions = connection.all(
    `SELECT s.id, s.changed_at AS at, ${isUsed} FROM cadenza_sessions s
     WHERE s.tenant = ? AND (s.changed_at, s.id) > (?, ?) AND (s.changed_at, s.id) <= (?, ?)
     ORDER BY s.changed_at, s.id LIMIT ${PRUNE_CHUNK}`,
    name,
    from.at,
    from.id,
    Number(newest["at"]),
    Number(newest["id"]),
  );
  return removeUnusedOf(connection, sessions);
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

function placeOf(row: SqliteRow): Place {
  return { at: Number(row["at"]), id: Number(row["id"]) };
}
