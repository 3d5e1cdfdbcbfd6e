import type { RunKey, RunPost, RunWrite, WrittenWithInbox } from "../../core/ports.ts";
import { MOST_ARRIVED } from "../../core/ports.ts";
import { inboxIn, toJson } from "../stored-rows.ts";
import type { Connection } from "./database.ts";
import { addLines } from "./entries.ts";
import { addToFeed } from "./feed.ts";

/* What has arrived for runs with owners. A row is a post. Ids are never used again. */

const insert = "INSERT INTO cadenza_inbox (run, count, lines, is_cancel, feed) VALUES (?, ?, ?, ?, ?)";
const select = `
  SELECT i.count, i.lines, i.feed, r.agent_name FROM cadenza_inbox i JOIN cadenza_runs r ON r.id = i.run
  WHERE i.run = ? ORDER BY i.id`;
const selectNew = "SELECT 1 FROM cadenza_inbox WHERE run = ? AND id NOT IN (SELECT value FROM json_each(?))";

export function addToInbox(
  connection: Connection,
  run: number,
  { entries, status, feed }: RunPost,
  lines: string,
): void {
  const isCancel = status === "cancelling" ? 1 : 0;
  connection.run(insert, run, entries.length, lines, isCancel, feed === undefined ? null : toJson(feed));
}

/** The inbox of a run as JSON, in SQL: `[]` for an empty one. `limit`: at most so many posts; -1 for all. */
export const inboxOf = (run: string, limit: number): string => `(
  SELECT json_group_array(json_array(id, count, lines)) FROM (
    SELECT id, count, lines FROM cadenza_inbox WHERE run = ${run} ORDER BY id LIMIT ${limit}))`;

/** What has arrived for a run, the first part of a great deal. */
export function readInbox(connection: Connection, key: RunKey, run: number): WrittenWithInbox | undefined {
  return inboxIn(key, connection.get(`SELECT ${inboxOf("?", MOST_ARRIVED)} AS inbox`, run)?.["inbox"]);
}

/** Whether more has arrived than a write takes: anything, or a cancel. */
export function hasMore(
  connection: Connection,
  run: number,
  takes: RunWrite["takes"] = [],
  which: "anything" | "a cancel",
): boolean {
  if (takes === "all") return false;
  const found = connection.get(
    `${selectNew} AND is_cancel >= ? LIMIT 1`,
    run,
    toJson(takes),
    which === "a cancel" ? 1 : 0,
  );
  return found !== undefined;
}

/** What a write takes is in the inbox no more. Answers how much that was. */
export function takeFromInbox(connection: Connection, run: number, takes: readonly number[]): number {
  const { changes } = connection.run(
    "DELETE FROM cadenza_inbox WHERE run = ? AND id IN (SELECT value FROM json_each(?))",
    run,
    toJson(takes),
  );
  return Number(changes);
}

/** Writes what has arrived to the end of a log, and answers how many entries that were. */
export function emptyInbox(
  connection: Connection,
  key: RunKey,
  run: number,
  position: number,
  now: () => number,
): number {
  const rows = connection.all(select, run);
  let end = position;
  for (const { count, lines, feed, agent_name } of rows) {
    addLines(connection, run, end, String(lines));
    end += Number(count);
    if (feed !== null)
      addToFeed(connection, key, String(agent_name), JSON.parse(String(feed)) as NonNullable<RunWrite["feed"]>, now());
  }
  if (rows.length > 0) connection.run("DELETE FROM cadenza_inbox WHERE run = ?", run);
  return end - position;
}
