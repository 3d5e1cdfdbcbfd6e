import type { Entry } from "../core/log.ts";
import type { RunKey, RunQuery, SessionKey, StoredRun, StoredSession } from "../core/ports.ts";
import { isFinal } from "../core/state.ts";
import type { Counters } from "../core/statistics.ts";
import { counterNames } from "../core/statistics.ts";
import type { Message } from "../protocol/message.ts";
import type { Connection, SqliteRow, SqliteValue } from "./sqlite-database.ts";
import { fromJson, fromLines, storedColumns, toStoredRun, toText } from "./sqlite-rows.ts";

/* What is read outside of transactions. Each answer comes from one statement, and so from one moment. */

/** SQLite would plan a statement with a plain `LIMIT ?` anew for each call. */
const limit = "LIMIT ? + 0";
const selectStored = `SELECT ${storedColumns} FROM cadenza_runs r JOIN cadenza_entries e ON e.run = r.id AND e.position = 0`;

/** From the batch that holds the first entry on. A run without a batch in the range still has its row. */
const selectEntries = `
  SELECT e.position, e.lines FROM cadenza_runs r
  LEFT JOIN cadenza_entries e ON e.run = r.id AND e.position < ? AND e.position >=
    (SELECT max(b.position) FROM cadenza_entries b WHERE b.run = r.id AND b.position <= ?)
  WHERE r.tenant = ? AND r.run_id = ? ORDER BY e.position`;

/**
 * Looks at the index of live runs alone. The owners are found by jumping from one to the next in it; neither the runs
 * that wait nor those of owners that live are walked through.
 */
const selectDue = `
  WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM cadenza_runs WHERE finished_at IS NULL AND owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(r.owner) FROM cadenza_runs r WHERE r.finished_at IS NULL AND r.owner > o.owner)
    FROM owners o WHERE o.owner IS NOT NULL
  ), known (owner, lives) AS MATERIALIZED (
    SELECT owner, EXISTS (SELECT 1 FROM cadenza_leases l WHERE l.owner = owners.owner AND l.until > ?) FROM owners
  ), due (id) AS (
    SELECT id FROM cadenza_runs WHERE finished_at IS NULL AND owner IS NULL AND status = 'awaiting' AND deadline <= ?
    UNION ALL SELECT id FROM cadenza_runs WHERE finished_at IS NULL AND owner IS NULL AND status < 'awaiting'
    UNION ALL SELECT id FROM cadenza_runs WHERE finished_at IS NULL AND owner IS NULL AND status > 'awaiting'
    UNION ALL SELECT r.id FROM known k CROSS JOIN cadenza_runs r
      WHERE k.lives AND r.finished_at IS NULL AND r.owner = k.owner AND r.status = 'awaiting' AND r.deadline <= ?
    UNION ALL SELECT r.id FROM known k CROSS JOIN cadenza_runs r
      WHERE NOT k.lives AND r.finished_at IS NULL AND r.owner = k.owner
  )
  SELECT ${storedColumns} FROM (SELECT id FROM due ORDER BY id ${limit}) d
  CROSS JOIN cadenza_runs r ON r.id = d.id CROSS JOIN cadenza_entries e ON e.run = r.id AND e.position = 0 ORDER BY d.id`;

export function findRun(connection: Connection, key: RunKey): StoredRun | undefined {
  const where = "WHERE r.tenant = ? AND r.run_id = ?";
  return storedRun(connection.get(`${selectStored} ${where}`, toText(key.tenant), toText(key.run_id)));
}

export function findRunByIdempotencyKey(connection: Connection, tenant: string, key: string): StoredRun | undefined {
  const where = "WHERE r.tenant = ? AND r.idempotency_key = ?";
  return storedRun(connection.get(`${selectStored} ${where}`, toText(tenant), toText(key)));
}

export function readEntries(
  connection: Connection,
  key: RunKey,
  from: number,
  limit: number,
): readonly Entry[] | undefined {
  const to = from + limit;
  const batches = connection.all(selectEntries, to, from, toText(key.tenant), toText(key.run_id));
  if (batches.length === 0) return undefined;
  return batches.flatMap(({ position, lines }) => {
    const first = Number(position);
    return typeof lines === "string" ? fromLines(lines, Math.max(from - first, 0), to - first) : [];
  });
}

export function listRuns(connection: Connection, query: RunQuery): readonly StoredRun[] {
  const { where, values } = filters(query);
  const rows = connection.all(
    `${selectStored} WHERE r.id IN (SELECT id FROM cadenza_runs ${where} ORDER BY id DESC ${limit} OFFSET ? + 0) ORDER BY r.id DESC`,
    ...values,
    countable(query.limit),
    countable(query.offset),
  );
  return rows.map(toStoredRun);
}

export function dueRuns(connection: Connection, now: number, limit: number): readonly StoredRun[] {
  return connection.all(selectDue, now, now, now, countable(limit)).map(toStoredRun);
}

export function readSession(connection: Connection, { tenant, session_id }: SessionKey): StoredSession | undefined {
  const rows = connection.all(
    `SELECT s.state, m.message FROM cadenza_sessions s LEFT JOIN cadenza_messages m ON m.session = s.id
     WHERE s.tenant = ? AND s.session_id = ? ORDER BY m.position`,
    toText(tenant),
    toText(session_id),
  );
  const [first] = rows;
  if (first === undefined) return undefined;
  const messages = rows.filter((row) => row["message"] !== null);
  return {
    history: messages.map((row) => fromJson(row["message"]) as unknown as Message),
    state: fromJson(first["state"]),
  };
}

export function readCounters(connection: Connection, agentName: string): Counters | undefined {
  const select = `SELECT ${counterNames.join(", ")} FROM cadenza_counters WHERE agent_name = ?`;
  const row = connection.get(select, toText(agentName));
  return row && (Object.fromEntries(counterNames.map((name) => [name, Number(row[name])])) as unknown as Counters);
}

function storedRun(row: SqliteRow | undefined): StoredRun | undefined {
  return row && toStoredRun(row);
}

/** The condition on `cadenza_runs` that a query means, with the index that answers it. */
function filters(query: RunQuery): { where: string; values: SqliteValue[] } {
  const tenant = toText(query.tenant);
  const conditions = [tenant === "" ? "tenant = ?" : "tenant = ? AND tenant <> ''"];
  const values: SqliteValue[] = [tenant];
  if (query.agent_name !== undefined) {
    conditions.push("agent_name = ?");
    values.push(toText(query.agent_name));
  }
  if (query.status !== undefined) {
    conditions.push(isFinal(query.status) ? "status = ?" : "finished_at IS NULL AND status = ?");
    values.push(query.status);
  }
  if (query.roots === true) conditions.push("parent IS NULL");
  if (query.session_id !== undefined) {
    const session = toText(query.session_id);
    conditions.push(`id IN (
      SELECT id FROM cadenza_runs WHERE tenant = ? AND session_id = ? AND session_id <> run_id
      UNION ALL SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ? AND session_id = run_id)`);
    values.push(tenant, session, tenant, session);
  }
  const live = query.session_id === undefined && query.status !== undefined && !isFinal(query.status);
  return { where: `${live ? "INDEXED BY cadenza_runs_live " : ""}WHERE ${conditions.join(" AND ")}`, values };
}

/** SQLite counts rows in integers. */
function countable(count: number): number {
  return Math.min(count, Number.MAX_SAFE_INTEGER);
}
