import type { CreatedEntry, Entry } from "../core/log.ts";
import type { DamagedRun, FoundRun, Mismatch, RunHead, RunKey, StoredRun } from "../core/ports.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { RunStatus } from "../protocol/run.ts";
import { damaged } from "./damage.ts";
import type { SqliteRow, SqliteValue } from "./sqlite-database.ts";

/** A constant: the build turns the literal into a call of `RegExp`, which would be made for each text. */
const loneSurrogate = /\p{Surrogate}/u;

/**
 * Text in a form that SQLite keeps unchanged. SQLite cannot hold a lone surrogate, and some drivers stop reading at a
 * NUL. Such text becomes a JSON string, and so does text that looks like one.
 */
export function toText(value: string): string {
  const plain = !value.startsWith('"') && !value.includes("\0") && !loneSurrogate.test(value);
  return plain ? value : JSON.stringify(value);
}

/** The opposite of `toText`. */
export function fromText(text: string): string {
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}

/** A value as JSON; null for a value that JSON cannot express. */
export function toJson(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}

/** Entries as JSON, one in each line. */
export function toLines(entries: readonly Entry[]): string {
  let lines = "";
  for (const entry of entries) lines += `${JSON.stringify(entry)}\n`;
  return lines;
}

/** The entries of the lines in a range; the first line is 0. Throws a `LineError` for a line that holds no entry. */
export function fromLines(lines: string, from: number, to: number): Entry[] {
  const wanted = lines.split("\n").slice(0, -1).slice(from, to);
  return wanted.map((line, index) => {
    try {
      return JSON.parse(line) as Entry;
    } catch (cause) {
      throw new LineError(from + index, cause);
    }
  });
}

/** A line that holds no entry. */
export class LineError extends Error {
  readonly line: number;

  constructor(line: number, cause: unknown) {
    super(`Line ${line} holds no entry.`, { cause });
    this.line = line;
  }
}

/** The columns of a head, in the order of `headColumns`. */
export function fromHead(head: RunHead): SqliteValue[] {
  return [
    head.status,
    head.epoch,
    toTextOrNull(head.owner),
    head.due_at,
    head.blocked === null ? null : toJson(head.blocked),
    head.holds_slot ? 1 : 0,
    head.finished_at,
    head.takeovers,
  ];
}

/** The columns that `fromHead` fills. */
export const headColumns = [
  "status",
  "epoch",
  "owner",
  "due_at",
  "blocked",
  "holds_slot",
  "finished_at",
  "takeovers",
] as const;

/** The opposite of `fromHead`. */
export function toHead(row: SqliteRow): RunHead {
  const { owner, blocked } = row;
  return {
    status: row["status"] as RunStatus,
    epoch: Number(row["epoch"]),
    owner: typeof owner === "string" ? fromText(owner) : null,
    due_at: toNumber(row["due_at"]),
    blocked: typeof blocked === "string" ? (JSON.parse(blocked) as Mismatch) : null,
    holds_slot: Number(row["holds_slot"]) !== 0,
    finished_at: toNumber(row["finished_at"]),
    takeovers: Number(row["takeovers"]),
  };
}

/** The columns that `toFoundRun` needs of the run `r`, without its first entry. */
export const runColumns = `r.id, r.tenant, r.run_id, r.position, ${headColumns.map((name) => `r.${name}`).join(", ")}`;
/** The first entry, from the first batches `e`. */
export const createdColumn = "substr(e.lines, 1, instr(e.lines, char(10))) AS created";

/** The run of a row of `runColumns` and `createdColumn`. */
export function toFoundRun(row: SqliteRow): FoundRun {
  try {
    const created = JSON.parse(String(row["created"])) as CreatedEntry | null;
    if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
    return { key: toKey(row), created, head: toHead(row), position: Number(row["position"]) };
  } catch (cause) {
    return toDamagedRun(row, cause);
  }
}

/** The run of a row of `runColumns` whose first entry cannot be read. */
export function toDamagedRun(row: SqliteRow, cause: unknown): DamagedRun {
  const key = toKey(row);
  return { key, created: null, head: toHead(row), position: Number(row["position"]), error: damaged(key, 0, cause) };
}

/** The run itself. Throws for a damaged one. */
export function undamaged(run: FoundRun): StoredRun {
  if (run.created === null) throw run.error;
  return run;
}

export function toKey(row: SqliteRow): RunKey {
  return { tenant: fromText(String(row["tenant"])), run_id: fromText(String(row["run_id"])) };
}

/** A column of JSON. */
export function fromJson(text: SqliteRow[string] | undefined): JsonValue {
  return JSON.parse(String(text)) as JsonValue;
}

export function toTextOrNull(value: string | null): string | null {
  return value === null ? null : toText(value);
}

export function toNumber(value: SqliteRow[string] | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/** A count that SQLite can bind: unlimited counts become its largest whole number. */
export function countable(count: number): number {
  return Math.min(count, Number.MAX_SAFE_INTEGER);
}
