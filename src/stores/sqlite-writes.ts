import type {
  Expected,
  Retention,
  RunHead,
  RunKey,
  RunWrite,
  SessionChange,
  SessionKey,
  StoreConflict,
  StoredSession,
} from "../core/ports.ts";
import type { Counters } from "../core/statistics.ts";
import { counterNames } from "../core/statistics.ts";
import type { Message } from "../protocol/message.ts";
import type { Connection, SqliteRow } from "./sqlite-database.ts";
import { fromHead, fromText, headColumns, toJson, toLines, toText } from "./sqlite-rows.ts";

/*
 * What is written inside a transaction. Each function looks first and writes then: a refusal has written nothing, and
 * there is nothing to take back.
 */

/** How many runs or sessions are forgotten in one transaction. */
const PRUNE_CHUNK = 100;

const insertRun = `
  INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, parent, idempotency_key, ${headColumns.join(", ")}, position)
  VALUES (?, ?, ?, ?, ?, ?, ${headColumns.map(() => "?").join(", ")}, ?) ON CONFLICT DO NOTHING`;
const insertEntries = "INSERT INTO cadenza_entries (run, position, lines) VALUES (?, ?, ?)";
const selectRun = "SELECT id, agent_name, epoch, position FROM cadenza_runs WHERE tenant = ? AND run_id = ?";
const updateRun = `UPDATE cadenza_runs SET ${headColumns.map((name) => `${name} = ?`).join(", ")}, position = ? WHERE id = ?`;
const selectClaim = `
  SELECT r.id, r.epoch, r.position, r.owner, l.until
  FROM cadenza_runs r LEFT JOIN cadenza_leases l ON l.owner = r.owner WHERE r.tenant = ? AND r.run_id = ?`;
const insertSession =
  "INSERT INTO cadenza_sessions (tenant, session_id, length, state, changed_at) VALUES (?, ?, 0, 'null', ?)";
const insertMessage = "INSERT INTO cadenza_messages (session, position, message) VALUES (?, ?, ?)";
const addCounters = `
  INSERT INTO cadenza_counters (agent_name, ${counterNames.join(", ")}) VALUES (?, ${counterNames.map(() => "?").join(", ")})
  ON CONFLICT DO UPDATE SET ${counterNames.map((name) => `${name} = ${name} + excluded.${name}`).join(", ")}`;

/** A write whose entries are text already: what JSON cannot carry has failed before it is in anybody's transaction. */
export interface PreparedWrite {
  readonly write: RunWrite;
  readonly lines: string;
  /** How many entries these are. */
  readonly count: number;
}

/** Puts the entries of a write into words. */
export function prepareWrite(write: RunWrite): PreparedWrite {
  return { write, lines: toLines(write.entries), count: write.entries.length };
}

export function createRun(
  connection: Connection,
  key: RunKey,
  { write, lines, count }: PreparedWrite,
  idempotencyKey: string | null,
): StoreConflict | undefined {
  const [created] = write.entries;
  if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
  const tenant = toText(key.tenant);
  const runId = toText(key.run_id);
  const used = idempotencyKey === null ? null : toText(idempotencyKey);
  const { changes, lastInsertRowid } = connection.run(
    insertRun,
    tenant,
    runId,
    toText(created.agent_name),
    toText(created.session_id),
    created.parent === undefined ? null : toText(created.parent.run_id),
    used,
    ...fromHead(write.head),
    count,
  );
  if (Number(changes) === 0) return creationConflict(connection, tenant, runId, used);
  connection.run(insertEntries, Number(lastInsertRowid), 0, lines);
  settle(connection, key.tenant, created.agent_name, write);
  return undefined;
}

export function appendToRun(
  connection: Connection,
  key: RunKey,
  expected: Expected,
  { write, lines, count }: PreparedWrite,
): StoreConflict | undefined {
  const run = connection.get(selectRun, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  const changed = changes(run, expected);
  if (changed !== undefined) return changed;
  const { position } = expected;
  const id = Number(run["id"]);
  connection.run(updateRun, ...fromHead(write.head), position + count, id);
  if (count > 0) connection.run(insertEntries, id, position, lines);
  settle(connection, key.tenant, fromText(String(run["agent_name"])), write);
  return undefined;
}

export function claimRun(
  connection: Connection,
  key: RunKey,
  expected: Expected,
  head: RunHead,
  now: number,
): StoreConflict | undefined {
  const run = connection.get(selectClaim, toText(key.tenant), toText(key.run_id));
  if (run === undefined) return { conflict: "missing" };
  const changed = changes(run, expected);
  if (changed !== undefined) return changed;
  if (run["owner"] !== null && run["until"] !== null && Number(run["until"]) > now) return { conflict: "owned" };
  connection.run(updateRun, ...fromHead(head), expected.position, Number(run["id"]));
  return undefined;
}

export function renewLease(connection: Connection, owner: string, until: number): void {
  const upsert =
    "INSERT INTO cadenza_leases (owner, until) VALUES (?, ?) ON CONFLICT DO UPDATE SET until = excluded.until";
  connection.run(upsert, toText(owner), until);
}

export function releaseLease(connection: Connection, owner: string): void {
  connection.run("DELETE FROM cadenza_leases WHERE owner = ?", toText(owner));
}

export function replaceSession(connection: Connection, key: SessionKey, session: StoredSession, at: number): void {
  const { id } = findSession(connection, key) ?? makeSession(connection, key, at);
  connection.run("DELETE FROM cadenza_messages WHERE session = ?", id);
  addMessages(connection, id, 0, session.history);
  updateSession(connection, id, session.history.length, session.state, at);
}

/** Forgets some of the runs that may be forgotten, the ones that ended first, and says how many. 0: there are no more. */
export function pruneRuns(connection: Connection, { maxRuns, endedBefore }: Retention): number {
  const newestBeyond = Number.isFinite(maxRuns)
    ? connection.get(
        `SELECT id, finished_at FROM cadenza_runs WHERE finished_at IS NOT NULL
         ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET ? + 0`,
        maxRuns,
      )
    : undefined;
  const oldest = connection.all(
    `SELECT id, finished_at FROM cadenza_runs WHERE finished_at IS NOT NULL ORDER BY finished_at, id LIMIT ${PRUNE_CHUNK}`,
  );
  const firstToKeep = oldest.findIndex(
    (run) => Number(run["finished_at"]) >= endedBefore && isAfter(run, newestBeyond),
  );
  const doomed = firstToKeep === -1 ? oldest : oldest.slice(0, firstToKeep);
  for (const run of doomed) {
    connection.run("DELETE FROM cadenza_entries WHERE run = ?", Number(run["id"]));
    connection.run("DELETE FROM cadenza_runs WHERE id = ?", Number(run["id"]));
  }
  return doomed.length;
}

/** How far `pruneSessions` has looked. */
export interface SessionCursor {
  readonly changed_at: number;
  readonly id: number;
}

/** Looks at some of the sessions from a place on, forgets those that may be forgotten, and says where it has come to. Undefined: it is through. */
export function pruneSessions(
  connection: Connection,
  changedBefore: number,
  from: SessionCursor,
): SessionCursor | undefined {
  const sessions = connection.all(
    `SELECT s.id, s.changed_at,
       EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.session_id = s.session_id
         AND r.session_id <> r.run_id AND r.finished_at IS NULL)
       OR EXISTS (SELECT 1 FROM cadenza_runs r WHERE r.tenant = s.tenant AND r.run_id = s.session_id
         AND r.session_id = r.run_id AND r.finished_at IS NULL) AS used
     FROM cadenza_sessions s WHERE s.changed_at < ? AND (s.changed_at, s.id) > (?, ?)
     ORDER BY s.changed_at, s.id LIMIT ${PRUNE_CHUNK}`,
    changedBefore,
    from.changed_at,
    from.id,
  );
  for (const session of sessions) {
    if (Number(session["used"]) === 1) continue;
    connection.run("DELETE FROM cadenza_messages WHERE session = ?", Number(session["id"]));
    connection.run("DELETE FROM cadenza_sessions WHERE id = ?", Number(session["id"]));
  }
  const last = sessions.at(-1);
  if (last === undefined) return undefined;
  return { changed_at: Number(last["changed_at"]), id: Number(last["id"]) };
}

function creationConflict(connection: Connection, tenant: string, runId: string, used: string | null): StoreConflict {
  if (used === null || connection.get(selectRun, tenant, runId) !== undefined) return { conflict: "exists" };
  const select = "SELECT run_id FROM cadenza_runs WHERE tenant = ? AND idempotency_key = ?";
  return { conflict: "key_used", run_id: fromText(String(connection.get(select, tenant, used)?.["run_id"])) };
}

function changes(run: SqliteRow, expected: Expected): StoreConflict | undefined {
  const epoch = Number(run["epoch"]);
  const position = Number(run["position"]);
  if (epoch === expected.epoch && position === expected.position) return undefined;
  return { conflict: "changed", epoch, position };
}

/** What comes with the entries of a write: the session and the counters. */
function settle(connection: Connection, tenant: string, agentName: string, { session, counters }: RunWrite): void {
  if (session !== undefined) changeSession(connection, tenant, session);
  if (counters !== undefined) addToCounters(connection, agentName, counters);
}

function changeSession(connection: Connection, tenant: string, change: SessionChange): void {
  const key: SessionKey = { tenant, session_id: change.session_id };
  let session = findSession(connection, key);
  if (session === undefined) {
    if (!change.create) return;
    session = makeSession(connection, key, change.at);
  }
  const messages = change.messages?.() ?? [];
  addMessages(connection, session.id, session.length, messages);
  updateSession(connection, session.id, session.length + messages.length, change.state?.value, change.at);
}

interface SessionRow {
  readonly id: number;
  readonly length: number;
}

function findSession(connection: Connection, { tenant, session_id }: SessionKey): SessionRow | undefined {
  const select = "SELECT id, length FROM cadenza_sessions WHERE tenant = ? AND session_id = ?";
  const row = connection.get(select, toText(tenant), toText(session_id));
  return row && { id: Number(row["id"]), length: Number(row["length"]) };
}

function makeSession(connection: Connection, { tenant, session_id }: SessionKey, at: number): SessionRow {
  const { lastInsertRowid } = connection.run(insertSession, toText(tenant), toText(session_id), at);
  return { id: Number(lastInsertRowid), length: 0 };
}

function addMessages(connection: Connection, session: number, from: number, messages: readonly Message[]): void {
  for (const [index, message] of messages.entries())
    connection.run(insertMessage, session, from + index, toJson(message));
}

/** A state that is undefined stays as it is. */
function updateSession(connection: Connection, id: number, length: number, state: unknown, at: number): void {
  const update = "UPDATE cadenza_sessions SET length = ?, state = coalesce(?, state), changed_at = ? WHERE id = ?";
  connection.run(update, length, state === undefined ? null : toJson(state), at, id);
}

function addToCounters(connection: Connection, agentName: string, counters: Counters): void {
  connection.run(addCounters, toText(agentName), ...counterNames.map((name) => counters[name]));
}

function isAfter(run: SqliteRow, other: SqliteRow | undefined): boolean {
  if (other === undefined) return true;
  const difference = Number(run["finished_at"]) - Number(other["finished_at"]);
  return difference > 0 || (difference === 0 && Number(run["id"]) > Number(other["id"]));
}
