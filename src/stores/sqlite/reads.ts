import type {
  BlockedQuery,
  FoundRun,
  MessageRange,
  RunKey,
  RunPosition,
  SessionHead,
  SessionKey,
  StoredRun,
  StoredSession,
} from "../../core/ports.ts";
import { MOST_ARRIVED } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { Counters } from "../../core/statistics.ts";
import { counterNames } from "../../core/statistics.ts";
import type { Message } from "../../protocol/message.ts";
import { distinctAgents } from "../choice.ts";
import { hasTime } from "../examined.ts";
import {
  countable,
  fromJson,
  fromText,
  inboxIn,
  marksIn,
  runColumns,
  toDamagedRun,
  toFoundRun,
  toJson,
  toKey,
  toText,
  toTextOrNull,
  undamaged,
} from "../stored-rows.ts";
import type { Connection, SqliteRow, SqliteValue } from "./database.ts";
import { isCorrupt } from "./database.ts";
import { firstId } from "./entries.ts";
import { inboxOf } from "./inbox.ts";
import { pageOf } from "./list.ts";
import { createdColumn } from "./rows.ts";

/*
 * Reads outside of transactions. Each answer about one run comes from one statement, and so from one moment. Only in a
 * damaged file are the first entries of runs read one by one. `LIMIT ? + 0` keeps SQLite from planning the statement
 * anew for each call, as it does for `LIMIT ?`.
 */

const storedColumns = `${runColumns}, ${createdColumn}`;
const joinFirst = `LEFT JOIN cadenza_entries e ON e.id = ${firstId("r.id")}`;

/**
 * Those runs of a JSON list of tenant, id, epoch and position that have moved or for which something has arrived, by their
 * index in the list.
 */
const selectMoved = `
  SELECT k.key, coalesce(r.epoch, 0) AS epoch, coalesce(r.position, 0) AS position,
    ${inboxOf("r.id", MOST_ARRIVED)} AS inbox FROM json_each(?) k
  LEFT JOIN cadenza_runs r ON r.tenant = json_extract(k.value, '$[0]') AND r.run_id = json_extract(k.value, '$[1]')
  WHERE coalesce(r.epoch, 0) <> json_extract(k.value, '$[2]') OR coalesce(r.position, 0) <> json_extract(k.value, '$[3]')
    OR (r.arrived > 0 AND r.finished_at IS NULL)`;
const isRun = "r.tenant = ? AND r.run_id = ?";
const selectWithInbox = `
  SELECT ${storedColumns}, ${inboxOf("r.id", -1)} AS inbox FROM cadenza_runs r ${joinFirst} WHERE ${isRun}`;

export function findRun(connection: Connection, key: RunKey): StoredRun | undefined {
  const [found] = foundRuns(connection, isRun, toText(key.tenant), toText(key.run_id));
  return found && undamaged(found);
}

export function findWithInbox(connection: Connection, key: RunKey): StoredRun | undefined {
  const row = connection.get(selectWithInbox, toText(key.tenant), toText(key.run_id));
  return row && { ...undamaged(foundIn(row)), ...inboxIn(key, row["inbox"]) };
}

export function findRunByIdempotencyKey(connection: Connection, tenant: string, key: string): StoredRun | undefined {
  const [found] = foundRuns(connection, "r.tenant = ? AND r.idempotency_key = ?", toText(tenant), toText(key));
  return found && undamaged(found);
}

/** The row of an existing run, without its first entry. */
export function runRow(connection: Connection, id: number): SqliteRow {
  const row = connection.get(`SELECT ${runColumns} FROM cadenza_runs r WHERE r.id = ?`, id);
  if (row === undefined) throw new TypeError(`There is no row ${id}.`);
  return row;
}

export function listRuns(connection: Connection, query: RunQuery): readonly FoundRun[] {
  if (query.statuses?.length === 0 || query.parents?.length === 0) return [];
  const found = runsWithIds(connection, pageOf(connection, query));
  return hasTime(query) ? byTime(found) : found;
}

/** The runs with these row ids, those that were created last first. */
export function runsWithIds(connection: Connection, ids: readonly number[]): readonly FoundRun[] {
  return foundRuns(connection, "r.id IN (SELECT value FROM json_each(?)) ORDER BY r.id DESC", toJson(ids));
}

/** In the order of their times. A damaged run, whose time cannot be read, stays behind the one before it. */
function byTime(runs: readonly FoundRun[]): readonly FoundRun[] {
  let at = Number.POSITIVE_INFINITY;
  const timed = runs.map((run) => {
    at = run.created?.at ?? at;
    return { run, at };
  });
  return timed.toSorted((one, other) => other.at - one.at).map(({ run }) => run);
}

export function movedRuns(connection: Connection, known: readonly RunPosition[]): readonly RunPosition[] {
  const asked = known.map(({ key, epoch, position }) => [toText(key.tenant), toText(key.run_id), epoch, position]);
  const moved: RunPosition[] = [];
  for (const row of connection.all(selectMoved, toJson(asked))) {
    const key = known[Number(row["key"])]?.key;
    if (key === undefined) continue;
    moved.push({
      key,
      epoch: Number(row["epoch"]),
      position: Number(row["position"]),
      ...inboxIn(key, row["inbox"]),
    });
  }
  return moved;
}

export function ownedRuns(connection: Connection, owner: string, limit: number): readonly RunKey[] {
  const select = `SELECT tenant, run_id FROM cadenza_runs WHERE finished_at IS NULL AND owner = ? ORDER BY id LIMIT ? + 0`;
  return connection.all(select, toText(owner), countable(limit)).map(toKey);
}

export function blockedRuns(connection: Connection, { agents, limit, after }: BlockedQuery): readonly FoundRun[] {
  const find = "SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ?";
  const before = after && connection.get(find, toText(after.tenant), toText(after.run_id));
  const select = (which: string, ...values: SqliteValue[]): readonly number[] =>
    connection
      .all(
        `SELECT id FROM cadenza_runs INDEXED BY cadenza_runs_blocked
         WHERE finished_at IS NULL AND owner IS NULL AND blocked IS NOT NULL AND ${which} AND id > ? ORDER BY id LIMIT ? + 0`,
        ...values,
        Number(before?.["id"] ?? 0),
        countable(limit),
      )
      .map(({ id }) => Number(id));
  const ids =
    agents === undefined
      ? select("agent_name >= ''")
      : distinctAgents(agents).flatMap(({ agent_name, version }) =>
          select("agent_name = ? AND version IS ?", toText(agent_name), toTextOrNull(version)),
        );
  const inOrder = ids.toSorted((one, other) => one - other).slice(0, limit);
  return inOrder.map((id) => withFirst(connection, runRow(connection, id)));
}

export function readSessionHead(connection: Connection, { tenant, session_id }: SessionKey): SessionHead | undefined {
  const select = "SELECT length, state, generation, creator FROM cadenza_sessions WHERE tenant = ? AND session_id = ?";
  const row = connection.get(select, toText(tenant), toText(session_id));
  return row && { length: Number(row["length"]), state: fromJson(row["state"]), ...marksIn(row) };
}

export function readSession(
  connection: Connection,
  { tenant, session_id }: SessionKey,
  { from = 0, to = Number.POSITIVE_INFINITY }: Partial<MessageRange> = {},
): StoredSession | undefined {
  const rows = connection.all(
    `SELECT s.state, s.generation, s.creator, m.message FROM cadenza_sessions s
     LEFT JOIN cadenza_messages m ON m.session = s.id AND m.position >= ? AND m.position < ?
     WHERE s.tenant = ? AND s.session_id = ? ORDER BY m.position`,
    countable(from),
    countable(to),
    toText(tenant),
    toText(session_id),
  );
  const [first] = rows;
  if (first === undefined) return undefined;
  const messages = rows.filter((row) => row["message"] !== null);
  return {
    history: messages.map((row) => fromJson(row["message"]) as unknown as Message),
    state: fromJson(first["state"]),
    ...marksIn(first),
  };
}

export function readCounters(connection: Connection, agentName: string): Counters | undefined {
  const select = `SELECT ${counterNames.join(", ")} FROM cadenza_counters WHERE agent_name = ?`;
  const row = connection.get(select, toText(agentName));
  return row && (Object.fromEntries(counterNames.map((name) => [name, Number(row[name])])) as unknown as Counters);
}

/** The run of a row of `storedColumns`. */
function foundIn(row: SqliteRow): FoundRun {
  const { version } = row;
  return toFoundRun(row, typeof version === "string" ? fromText(version) : null);
}

/** The runs `r` that a condition selects. */
function foundRuns(connection: Connection, where: string, ...values: SqliteValue[]): readonly FoundRun[] {
  try {
    const select = `SELECT ${storedColumns} FROM cadenza_runs r ${joinFirst} WHERE ${where}`;
    return connection.all(select, ...values).map(foundIn);
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    const rows = connection.all(`SELECT ${runColumns} FROM cadenza_runs r WHERE ${where}`, ...values);
    return rows.map((row) => withFirst(connection, row));
  }
}

/** The run of a row without its first entry. */
export function withFirst(connection: Connection, row: SqliteRow): FoundRun {
  try {
    const select = `SELECT ${createdColumn} FROM cadenza_entries e WHERE e.id = ${firstId("?")}`;
    return foundIn({ ...row, ...connection.get(select, Number(row["id"])) });
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    return toDamagedRun(row, error);
  }
}
