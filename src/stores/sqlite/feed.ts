import type { FeedOptions, WatchedEvent } from "../../core/feed.ts";
import type { FeedPage, FeedQuery, RunKey } from "../../core/ports.ts";
import { systemIds } from "../../runtime/log/system.ts";
import { isWanted } from "../feed.ts";
import type { StoredRow } from "../stored-rows.ts";
import { countable, toFeedItem, toJson, toNumber, toText } from "../stored-rows.ts";
import type { Connection, SqliteValue } from "./database.ts";
import { PRUNE_CHUNK } from "./prune.ts";

/*
 * The feed. Transactions that write come one after the other, so that the order of the ids is that of the commits. An id
 * is the time in microseconds, unless that is not later than the last id: so a file that is restored from a backup gives no id again.
 */

const begin = `
  INSERT INTO cadenza_feed (one, id, keep_ms, trimmed) VALUES (1, ?, ?, 0)
  ON CONFLICT DO UPDATE SET id = CASE WHEN keep_ms IS NULL THEN excluded.id ELSE id END, keep_ms = excluded.keep_ms`;
const end = `
  UPDATE cadenza_feed SET keep_ms = NULL, trimmed = coalesce((SELECT max(id) FROM cadenza_feed_events), trimmed)`;
const add = `
  INSERT INTO cadenza_feed_events (id, at, tenant, run_id, agent_name, type, data)
  SELECT max(coalesce((SELECT max(id) FROM cadenza_feed_events), f.trimmed) + 1, CAST(? AS INTEGER)), ?, ?, ?, ?, ?, ?
  FROM cadenza_feed f WHERE f.keep_ms IS NOT NULL`;
const select = `
  SELECT f.id AS feed, f.trimmed, e.* FROM cadenza_feed f
  LEFT JOIN (
    SELECT * FROM cadenza_feed_events WHERE id > max(?, (SELECT trimmed FROM cadenza_feed)) ORDER BY id LIMIT ?
  ) e
  WHERE f.keep_ms IS NOT NULL ORDER BY e.id`;
const selectEnd = `
  SELECT id AS feed, coalesce((SELECT max(id) FROM cadenza_feed_events), trimmed) AS last
  FROM cadenza_feed WHERE keep_ms IS NOT NULL`;
const selectOld = `
  SELECT e.id, e.at < ? - f.keep_ms AS is_old FROM cadenza_feed f, cadenza_feed_events e
  WHERE f.keep_ms IS NOT NULL ORDER BY e.id LIMIT ${PRUNE_CHUNK}`;

/** Begins or ends the feed, as the options say, and answers whether there is one. Undefined: it stays as it is. */
export function openFeed(connection: Connection, feed: FeedOptions | false | undefined): boolean {
  const keepMs = toNumber(connection.get("SELECT keep_ms FROM cadenza_feed")?.["keep_ms"]);
  if (feed === undefined) return keepMs !== null;
  if (feed === false) {
    // Once the feed has ended, no process adds to it.
    if (keepMs !== null) for (const sql of [end, "DELETE FROM cadenza_feed_events"]) write(connection, sql);
    return false;
  }
  const wanted = countable(feed.keepMs);
  if (keepMs !== wanted) write(connection, begin, systemIds.token(), wanted);
  return true;
}

function write(connection: Connection, sql: string, ...values: SqliteValue[]): void {
  connection.patiently(() => connection.run(sql, ...values));
}

/** Adds events of a run, of which the name of the agent is given as it is stored. */
export function addToFeed(
  connection: Connection,
  { tenant, run_id }: RunKey,
  agentName: string,
  events: readonly WatchedEvent[],
  at: number,
): void {
  for (const event of events) {
    const { type, ...data } = event;
    const text = Object.keys(data).length === 0 ? null : toJson(data);
    connection.run(add, Math.floor(at * 1_000), at, toText(tenant), toText(run_id), agentName, type, text);
  }
}

export function readFeed(connection: Connection, query: FeedQuery): FeedPage | undefined {
  if (query.from === "now") {
    const row = connection.get(selectEnd);
    return row && { items: [], position: `${row["feed"]}.${row["last"]}`, more: null };
  }
  const [, its = "", number] = /^(.+)\.(\d{1,16})$/.exec(query.from) ?? [];
  const from = Number(number ?? 0);
  const rows = connection.all(select, from, query.limit);
  const [first] = rows;
  if (first === undefined) return undefined;
  const { feed, trimmed } = first;
  if (query.from !== "start" && (its !== feed || from < Number(trimmed))) return undefined;
  const events = first["id"] === null ? [] : rows;
  const items = events
    .map((row) => toFeedItem(row, `${feed}.${row["id"]}`, eventOf(row)))
    .filter((item) => isWanted(item, query));
  const last = events.at(-1)?.["id"] ?? (query.from === "start" ? trimmed : from);
  return { items, position: `${feed}.${last}`, more: events.length === query.limit ? "now" : null };
}

function eventOf({ type, data }: StoredRow): WatchedEvent {
  return { type, ...(typeof data === "string" && (JSON.parse(data) as object)) } as WatchedEvent;
}

/** Deletes some of the events that are too old, the oldest first, and answers whether there may be more of them. */
export function trimFeed(connection: Connection, now: number): boolean {
  const oldest = connection.all(selectOld, now);
  const firstToKeep = oldest.findIndex((row) => Number(row["is_old"]) === 0);
  const last = (firstToKeep === -1 ? oldest : oldest.slice(0, firstToKeep)).at(-1);
  if (last === undefined) return false;
  const id = Number(last["id"]);
  connection.run("DELETE FROM cadenza_feed_events WHERE id <= ?", id);
  connection.run("UPDATE cadenza_feed SET trimmed = ?", id);
  return firstToKeep === -1 && oldest.length === PRUNE_CHUNK;
}
