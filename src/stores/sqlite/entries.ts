import { CadenzaError } from "../../core/errors.ts";
import type { Entry } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import { damaged } from "../damage.ts";
import { beginsGeneration, entriesIn, MAX_READ, toText } from "../stored-rows.ts";
import type { Connection, SqliteRow } from "./database.ts";
import { isCorrupt } from "./database.ts";

/* The entries of a run, in the batches in which they were written. */

/** How many bits of a batch's id are the position of its first entry. The others are enough for 100 billion runs. */
export const POSITION_BITS = 26;
export const LAST_POSITION = 2 ** POSITION_BITS - 1;

/** The id of a batch, in SQL. */
const idOf = (run: string, position: string) => `(${run} << ${POSITION_BITS} | ${position})`;
/** The id of the first batch of a run, in SQL. */
export const firstId = (run: string): string => idOf(run, "0");

const insertBatch = `INSERT INTO cadenza_entries (id, lines) VALUES (${idOf("?", "?")}, ?)`;
const deleteBatches = `DELETE FROM cadenza_entries WHERE id BETWEEN ${firstId("?")} AND ${idOf("?", `${LAST_POSITION}`)}`;
/** How many batches of a long log are deleted at once. */
const PIECE = 64;
const deletePiece = `DELETE FROM cadenza_entries WHERE id IN (
  SELECT id FROM cadenza_entries WHERE id BETWEEN ${firstId("?")} AND ${idOf("?", `${LAST_POSITION}`)} ORDER BY id DESC LIMIT ${PIECE})`;
const deleteBefore = `DELETE FROM cadenza_entries WHERE id IN (
  SELECT id FROM cadenza_entries WHERE id BETWEEN ${idOf("?", "1")} AND ${idOf("?", "?")} ORDER BY id DESC LIMIT ${PIECE})`;
const selectBefore = `
  SELECT e.position, e.lines FROM cadenza_entries e
  WHERE e.id BETWEEN ${firstId("?")} AND ${idOf("?", "?")} ORDER BY e.id DESC LIMIT 1`;
const replaceLines = `UPDATE cadenza_entries SET lines = ? WHERE id = ${idOf("?", "?")}`;
/** The batch that holds the first requested entry. A run without one still has its row. */
const selectFirst = `
  SELECT r.position AS length, r.id AS run, e.position, e.lines FROM cadenza_runs r LEFT JOIN cadenza_entries e ON e.id =
    (SELECT max(b.id) FROM cadenza_entries b WHERE b.id BETWEEN ${firstId("r.id")} AND ${idOf("r.id", "?")})
  WHERE r.tenant = ? AND r.run_id = ?`;
/** The next batches from a position on. */
const selectNext = `
  SELECT e.position, e.lines FROM cadenza_entries e
  WHERE e.id BETWEEN ${idOf("?", "?")} AND ${idOf("?", `${LAST_POSITION}`)} ORDER BY e.id LIMIT ?`;
/** How many batches are read at once, at most. */
const MANY = 256;
/** About how many characters they have together, if there are several. */
const MANY_CHARACTERS = 131_072;
const selectBatch = `
  SELECT r.position AS length, e.position, e.lines FROM cadenza_runs r
  LEFT JOIN cadenza_entries e ON e.id = ${idOf("r.id", "?")} WHERE r.tenant = ? AND r.run_id = ?`;

/** About how many characters a batch of several entries has at most: a read of some of them reads all. */
const LONG_BATCH = 65_536;

/** Adds entries at a position of a run. Throws if the log is full. */
export function addLines(connection: Connection, run: number, position: number, lines: string): void {
  let at = position;
  for (let from = 0; from < lines.length; ) {
    if (at >= LAST_POSITION)
      throw new CadenzaError("store_failed", `The log of a run is full: expected fewer than ${LAST_POSITION} entries.`);
    const isLast = lines.length - from <= LONG_BATCH;
    const end = isLast ? lines.length : lines.indexOf("\n", from + LONG_BATCH) + 1;
    const batch = lines.slice(from, end);
    connection.run(insertBatch, run, at, batch);
    from = end;
    if (!isLast) at += countOf(batch);
  }
}

export function deleteEntries(connection: Connection, run: number): void {
  connection.run(deleteBatches, run, run);
}

/** Deletes the last batches of a run. The first batch goes last. Answers whether more may be left. */
export function deleteLastEntries(connection: Connection, run: number): boolean {
  return Number(connection.run(deletePiece, run, run).changes) === PIECE;
}

/** Deletes some entries before the beginning of a generation, the last ones. See `Store.trim`. */
export function trimEntries(connection: Connection, key: RunKey, before: number): boolean {
  const found = connection.get(
    "SELECT id, position FROM cadenza_runs WHERE tenant = ? AND run_id = ?",
    toText(key.tenant),
    toText(key.run_id),
  );
  if (found === undefined || before <= 1 || before >= Number(found["position"])) return false;
  const run = Number(found["id"]);
  connection.run("DELETE FROM cadenza_snapshots WHERE run = ? AND position < ?", run, before);
  cutBatch(connection, run, before);
  if (Number(connection.run(deleteBefore, run, run, before - 1).changes) === PIECE) return true;
  cutBatch(connection, run, 1, "drop");
  return false;
}

/** Lets a batch end before a position. What it holds from there on becomes a batch of its own, or is dropped. */
function cutBatch(connection: Connection, run: number, position: number, rest?: "drop"): void {
  const batch = connection.get(selectBefore, run, run, position - 1);
  const [first, lines] = [Number(batch?.["position"]), String(batch?.["lines"] ?? "")];
  if (countOf(lines) <= position - first) return;
  const all = lines.split("\n");
  connection.run(replaceLines, `${all.slice(0, position - first).join("\n")}\n`, run, first);
  if (rest === undefined) connection.run(insertBatch, run, position, all.slice(position - first).join("\n"));
}

export function readEntries(
  connection: Connection,
  key: RunKey,
  from: number,
  limit: number,
): readonly Entry[] | undefined {
  return entriesIn(batchesOf(connection, key, from, from + limit), key, from, limit);
}

/** One after the other, until they have enough bytes: their entries may be large. */
function batchesOf(connection: Connection, key: RunKey, from: number, to: number): readonly SqliteRow[] {
  const first = (): SqliteRow | undefined =>
    connection.get(selectFirst, inLog(from), toText(key.tenant), toText(key.run_id));
  try {
    const batches: SqliteRow[] = [];
    let length = 0;
    let expected: number | undefined;
    let end = to;
    let rest: ReturnType<typeof batchesBehind> | undefined;
    for (let batch = first(); batch !== undefined; ) {
      const lines = String(batch["lines"] ?? "");
      length += lines.length;
      const position = Number(batch["position"]);
      if (expected !== undefined && position > expected) {
        if (!beginsGeneration(lines, position)) return batches;
        end += position - Math.max(expected, from);
      }
      const isCut = length >= MAX_READ;
      batches.push(isCut ? { ...batch, is_cut: 1 } : batch);
      const count = countOf(lines);
      const next = position + count;
      const [{ run = 0, length: all } = batch] = batches;
      if (isCut || count === 0 || next >= Math.min(end, Number(all))) return batches;
      expected = next;
      rest ??= batchesBehind(connection, Number(run));
      // The next ones are taken to be as large as this one.
      batch = rest(next, Math.min((end - next) / count, MANY_CHARACTERS / lines.length));
    }
    // Another process may have deleted the run meanwhile.
    return first() === undefined ? [] : batches;
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    return batchesOneByOne(connection, key, from, to);
  }
}

/**
 * Gives the next batch of a run from a position on, call by call: one of several that were read at once. `most`: how many
 * are wanted.
 */
function batchesBehind(connection: Connection, run: number): (position: number, most: number) => SqliteRow | undefined {
  let several: readonly SqliteRow[] = [];
  let index = 0;
  return (position, most) => {
    if (index === several.length) {
      several = connection.all(selectNext, run, position, run, Math.max(1, Math.min(Math.ceil(most), MANY)));
      index = 0;
    }
    return several[index++];
  };
}

function countOf(lines: string): number {
  let count = 0;
  for (let at = lines.indexOf("\n"); at >= 0; at = lines.indexOf("\n", at + 1)) count += 1;
  return count;
}

/**
 * In a damaged file. A search reads beyond what it finds, and fails if the run beside it is damaged. So each batch is
 * looked up by its id, which follows from the batch before it.
 */
function batchesOneByOne(connection: Connection, key: RunKey, from: number, to: number): readonly SqliteRow[] {
  let batches: SqliteRow[] = [];
  let position = 0;
  try {
    for (;;) {
      const batch = connection.get(selectBatch, position, toText(key.tenant), toText(key.run_id));
      if (batch === undefined) return [];
      if (position <= from) batches = [];
      batches.push(batch);
      const count = countOf(String(batch["lines"]));
      position += count;
      if (count === 0 || position >= to || position >= Number(batch["length"])) return batches;
    }
  } catch (error) {
    throw isCorrupt(error) ? damaged(key, Math.max(position, from), error) : error;
  }
}

/** A position that the id of a batch can hold. */
function inLog(position: number): number {
  return Math.min(position, LAST_POSITION);
}
