import type { RunKey, RunsOfRule, SessionKey } from "../../core/ports.ts";
import { labelsOf } from "../../core/retention.ts";
import { machineClock, silentLogger } from "../../runtime/log/system.ts";
import type { EndedPlace, Kept, Passed, Passing } from "../kept-runs.ts";
import type { Counted, Rules, Stretch, Walk } from "../rule-walks.ts";
import { fromText, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { deleteEntries, deleteLastEntries } from "./entries.ts";
import type { Clause } from "./list.ts";
import { clause, joined } from "./list.ts";

/** How many runs or sessions are deleted in one transaction. */
export const PRUNE_CHUNK = 100;

/** How many ended runs are looked at in one transaction. */
const LOOK_CHUNK = 500;
/** The entries of a longer log are deleted in pieces, after its run. */
const LONG_LOG = 500;
/** So many pieces are deleted in one transaction at most. */
const MOST_PIECES = 64;
/** A transaction that has deleted for so long leaves the rest to the next one, in milliseconds. */
const LONG_MS = 5;
/** So many runs are deleted in a transaction, however long that lasts. */
const LEAST = 16;
/** After this time progress that no process has made since is forgotten, in milliseconds: 60 days. */
const FORGOTTEN_MS = 60 * 86_400_000;

const machine = machineClock(silentLogger);

/** Says whether a transaction that begins now has deleted for long. */
function longTurn(): () => boolean {
  const since = machine.monotonic();
  return () => machine.monotonic() - since > LONG_MS;
}

/** Whether a live run uses the session `s`. */
const isUsed = `
  (EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.session_id = s.session_id
    AND r.session_id <> r.run_id AND r.finished_at IS NULL)
  OR EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.run_id = s.session_id
    AND r.session_id = r.run_id AND r.finished_at IS NULL)) AS used`;

/** The session that a run has made for itself, unless another run is in it. */
const ownSession = `
  SELECT s.id FROM cadenza_runs r JOIN cadenza_sessions s ON s.tenant = r.tenant AND s.session_id = r.run_id
  WHERE r.id = ? AND s.generation = r.run_id AND NOT EXISTS (
    SELECT 1 FROM cadenza_runs o WHERE o.tenant = r.tenant AND o.session_id = r.run_id AND o.session_id <> o.run_id)`;

/** Whether the parent of the run `r` has not ended, and may read the run again. */
const isNeeded = `
  EXISTS (SELECT 1 FROM cadenza_runs p WHERE p.tenant = r.tenant AND p.run_id = r.parent AND p.finished_at IS NULL)`;

/** A place in the order in which runs ended, or in which sessions were changed. */
export type Place = EndedPlace<number>;

/** Before and behind all of them. */
export const START: Place = { at: Number.NEGATIVE_INFINITY, id: 0 };
export const END: Place = { at: Number.POSITIVE_INFINITY, id: 0 };

/** Ended runs from one place to another. */
const inRange = `FROM cadenza_runs WHERE finished_at IS NOT NULL AND (finished_at, id) > (?, ?) AND (finished_at, id) <= (?, ?)`;

/** Passes over ended runs: see `PassedRuns`. */
export function passOver(connection: Connection, { from, to, most }: Passing<number>): Passed<number> | undefined {
  const range = `${inRange} ORDER BY finished_at, id`;
  const places = [from.at, from.id, to.at, to.id];
  const counted = connection.get(`SELECT count(*) AS runs FROM (SELECT 1 ${range} LIMIT ? + 0)`, ...places, most);
  const runs = Number(counted?.["runs"]);
  if (runs === 0) return undefined;
  const row = connection.get(`SELECT id, finished_at AS at ${range} LIMIT 1 OFFSET ? + 0`, ...places, runs - 1);
  return row && { runs, last: placeOf(row) };
}

/** The newest run before the kept ones: see `PassedRuns`. */
export function placeBefore(connection: Connection, { from, to, count }: Kept<number>): Place | undefined {
  const sql = `SELECT id, finished_at AS at ${inRange} ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ? + 0`;
  const row = connection.get(sql, from.at, from.id, to.at, to.id, count);
  return row && placeOf(row);
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
    `SELECT id, position, finished_at AS at, ${isNeeded} AS needed FROM cadenza_runs r WHERE finished_at IS NOT NULL
     AND (finished_at, id) > (?, ?) AND (finished_at, id) <= (?, ?) ORDER BY finished_at, id LIMIT ${PRUNE_CHUNK}`,
    from.at,
    from.id,
    last.at,
    last.id,
  );
  return deleteSome(connection, runs, (run) => Number(run["needed"]) === 0);
}

/** Deletes some of the runs, the first ones, until the transaction has lasted for long. Undefined: there are none. */
function deleteSome(
  connection: Connection,
  runs: readonly SqliteRow[],
  isDoomed: (run: SqliteRow) => boolean,
): { readonly place: Place; readonly deleted: number } | undefined {
  const isLong = longTurn();
  let deleted = 0;
  let end: SqliteRow | undefined;
  for (const run of runs) {
    end = run;
    if (!isDoomed(run)) continue;
    deleteRun(connection, run);
    deleted += 1;
    if (deleted % LEAST === 0 && isLong()) break;
  }
  return end && { place: placeOf(end), deleted };
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

/** Deletes those of the runs that have ended, the first ones, and returns how many those were, and how many it has looked at. */
export function deleteRuns(
  connection: Connection,
  runs: readonly RunKey[],
): { readonly deleted: number; readonly seen: number } {
  const select = "SELECT id, position FROM cadenza_runs WHERE tenant = ? AND run_id = ? AND finished_at IS NOT NULL";
  const isLong = longTurn();
  let deleted = 0;
  let seen = 0;
  for (const { tenant, run_id } of runs) {
    if (seen > 0 && seen % LEAST === 0 && isLong()) break;
    seen += 1;
    const run = connection.get(select, toText(tenant), toText(run_id));
    if (run === undefined) continue;
    deleteRun(connection, run);
    deleted += 1;
  }
  return { deleted, seen };
}

/** The entries of a long log stay for {@link clearRemoved}. No read finds them any more. */
function deleteRun(connection: Connection, run: SqliteRow): void {
  const id = Number(run["id"]);
  if (Number(run["position"]) > LONG_LOG) connection.run("INSERT INTO cadenza_removed (run) VALUES (?)", id);
  else deleteEntries(connection, id);
  connection.run("DELETE FROM cadenza_labels WHERE run = ?", id);
  connection.run("DELETE FROM cadenza_inbox WHERE run = ?", id);
  const session = connection.get(ownSession, id);
  if (session !== undefined) removeSession(connection, Number(session["id"]));
  connection.run("DELETE FROM cadenza_runs WHERE id = ?", id);
}

/** Whether entries of deleted runs are left. */
export function hasRemoved(connection: Connection): boolean {
  return connection.get("SELECT run FROM cadenza_removed LIMIT 1") !== undefined;
}

/** Deletes some entries of deleted runs. */
export function clearRemoved(connection: Connection): void {
  const isLong = longTurn();
  for (let pieces = 0; pieces < MOST_PIECES && !isLong(); pieces++) {
    const removed = connection.get("SELECT run FROM cadenza_removed LIMIT 1");
    if (removed === undefined) return;
    const run = Number(removed["run"]);
    if (!deleteLastEntries(connection, run)) connection.run("DELETE FROM cadenza_removed WHERE run = ?", run);
  }
}

/** The number of the rule that counts for the run `r`, or another value for each rule. */
function caseOf(rules: Rules, value: (rule: number) => number = (rule) => rule): Clause {
  const cases = rules.map((rule, index) => {
    const when = joined([clause("1"), ...conditionsOf(rule)], " AND ");
    return clause(`WHEN ${when.sql} THEN ?`, ...when.values, value(index));
  });
  const { sql, values } = joined(cases, " ");
  return { sql: `CASE ${sql} END`, values };
}

function conditionsOf(rule: RunsOfRule): readonly Clause[] {
  const found: Clause[] = [];
  if (rule.agent_name !== undefined) found.push(clause("r.agent_name = ?", toText(rule.agent_name)));
  if (rule.tenant !== undefined) found.push(clause("r.tenant = ?", toText(rule.tenant)));
  const hasLabel = "EXISTS (SELECT 1 FROM cadenza_labels l WHERE l.run = r.id AND l.name = ? AND l.value = ?)";
  for (const [name, value] of labelsOf(rule)) found.push(clause(hasLabel, toText(name), toText(value)));
  return found;
}

/** The first runs of a stretch: see `EndedRuns`. */
export function countByRule(
  connection: Connection,
  rules: Rules,
  { from, to }: Stretch<number>,
): Counted<number> | undefined {
  const rule = caseOf(rules);
  const runs = connection.all(
    `SELECT r.id, r.finished_at AS at, ${rule.sql} AS rule FROM cadenza_runs r WHERE finished_at IS NOT NULL
     AND (finished_at, id) > (?, ?) AND (finished_at, id) <= (?, ?) ORDER BY finished_at, id LIMIT ${LOOK_CHUNK}`,
    ...rule.values,
    from.at,
    from.id,
    to.at,
    to.id,
  );
  const last = runs.at(-1);
  const found = runs.map((run) => ({ ...placeOf(run), rule: Number(run["rule"]) }));
  const isCounted = (index: number): boolean => Number.isFinite(rules[index]?.maxRuns);
  return last && { last: placeOf(last), found: found.filter(({ rule }) => isCounted(rule)) };
}

/** Deletes some runs of a stretch: see `EndedRuns`. */
export function pruneByRule(
  connection: Connection,
  rules: Rules,
  { from, to, of, passed }: Walk<number>,
): { readonly deleted: number; readonly last: Place | undefined; readonly hasSkipped: boolean } {
  const rule = caseOf(rules);
  const seen = connection.all(
    `SELECT r.id, r.position, r.finished_at AS at, ${rule.sql} AS rule, ${isNeeded} AS needed
     FROM cadenza_runs r WHERE r.finished_at IS NOT NULL
     AND (r.finished_at, r.id) > (?, ?) AND (r.finished_at, r.id) <= (?, ?) ORDER BY r.finished_at, r.id LIMIT ${LOOK_CHUNK}`,
    ...rule.values,
    from.at,
    from.id,
    to.at,
    to.id,
  );
  const end = seen.at(-1);
  if (end === undefined) return { deleted: 0, last: undefined, hasSkipped: false };
  const below = pastParents(connection, rules, passed, from, placeOf(end));
  if (below.length > 0) {
    const { deleted = 0 } = deleteSome(connection, below, () => true) ?? {};
    return { deleted, last: from, hasSkipped: false };
  }
  const { deleted = 0, place } =
    deleteSome(connection, seen, (run) => Number(run["needed"]) === 0 && of.includes(Number(run["rule"]))) ?? {};
  const isOver = seen.length < LOOK_CHUNK && place?.id === placeOf(end).id;
  return { deleted, last: isOver ? undefined : place, hasSkipped: false };
}

/** Ended runs below those of a stretch that were passed over when these had not ended. */
function pastParents(
  connection: Connection,
  rules: Rules,
  passed: readonly number[],
  from: Place,
  to: Place,
): readonly SqliteRow[] {
  const before = caseOf(rules, (index) => passed[index] ?? Number.NEGATIVE_INFINITY);
  return connection.all(
    `SELECT r.id, r.position, r.finished_at AS at FROM cadenza_runs p CROSS JOIN cadenza_runs r
     WHERE p.finished_at IS NOT NULL AND (p.finished_at, p.id) > (?, ?) AND (p.finished_at, p.id) <= (?, ?)
       AND r.tenant = p.tenant AND r.parent = p.run_id AND r.finished_at < ${before.sql} LIMIT ${PRUNE_CHUNK}`,
    from.at,
    from.id,
    to.at,
    to.id,
    ...before.values,
  );
}

/** What was written under a key of retention rules. */
export function loadProgress(connection: Connection, key: string): string | null {
  const row = connection.get("SELECT progress FROM cadenza_retention WHERE key = ?", key);
  return row === undefined ? null : String(row["progress"]);
}

/** Writes under a key if `before` is written there, and answers whether it was. Forgets what was written long ago. */
export function saveProgress(
  connection: Connection,
  key: string,
  [before, after]: readonly [before: string | null, after: string],
  now: number,
): boolean {
  if (loadProgress(connection, key) !== before) return false;
  connection.run(
    `INSERT INTO cadenza_retention (key, progress, at) VALUES (?, ?, ?)
     ON CONFLICT (key) DO UPDATE SET progress = excluded.progress, at = excluded.at`,
    key,
    after,
    now,
  );
  connection.run("DELETE FROM cadenza_retention WHERE at < ?", now - FORGOTTEN_MS);
  return true;
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
  removeSession(connection, Number(session["id"]));
  return true;
}

function removeSession(connection: Connection, id: number): void {
  connection.run("DELETE FROM cadenza_messages WHERE session = ?", id);
  connection.run("DELETE FROM cadenza_sessions WHERE id = ?", id);
}

function placeOf(row: SqliteRow): Place {
  return { at: Number(row["at"]), id: Number(row["id"]) };
}
