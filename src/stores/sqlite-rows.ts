import type { CreatedEntry, Entry } from "../core/log.ts";
import type { RunHead, StoredRun } from "../core/ports.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { SqliteRow, SqliteValue } from "./sqlite-database.ts";

/**
 * Text as SQLite keeps it unchanged. It has no word for a lone surrogate, and some drivers stop reading at a NUL; such
 * text becomes a JSON string, and so does text that looks like one.
 */
export function toText(value: string): string {
  const plain = !value.startsWith('"') && !value.includes("\0") && !/\p{Surrogate}/u.test(value);
  return plain ? value : JSON.stringify(value);
}

/** The opposite of `toText`. */
export function fromText(text: string): string {
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}

/** A value as JSON; what JSON has no word for is null. */
export function toJson(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}

/** Entries as JSON, one in each line. */
export function toLines(entries: readonly Entry[]): string {
  let lines = "";
  for (const entry of entries) lines += `${JSON.stringify(entry)}\n`;
  return lines;
}

/** The entries in the lines from one to another, the first being 0. */
export function fromLines(lines: string, from: number, to: number): Entry[] {
  return lines
    .split("\n")
    .slice(0, -1)
    .slice(from, to)
    .map((line) => JSON.parse(line) as Entry);
}

/** The columns of a head, in the order of `headColumns`. */
export function fromHead(head: RunHead): SqliteValue[] {
  const owner = head.owner === null ? null : toText(head.owner);
  return [head.status, head.epoch, owner, head.deadline, head.finished_at, head.takeovers];
}

/** The columns that `fromHead` fills. */
export const headColumns = ["status", "epoch", "owner", "deadline", "finished_at", "takeovers"] as const;

/** What `toStoredRun` needs, from the run `r` and its first entries `e`. */
export const storedColumns = `r.tenant, r.run_id, r.position, ${headColumns.map((name) => `r.${name}`).join(", ")},
  substr(e.lines, 1, instr(e.lines, char(10))) AS created`;

/** A run as a row of `storedColumns` tells it. */
export function toStoredRun(row: SqliteRow): StoredRun {
  return {
    key: { tenant: fromText(String(row["tenant"])), run_id: fromText(String(row["run_id"])) },
    created: JSON.parse(String(row["created"])) as CreatedEntry,
    head: {
      status: row["status"] as RunStatus,
      epoch: Number(row["epoch"]),
      owner: typeof row["owner"] === "string" ? fromText(row["owner"]) : null,
      deadline: toNumber(row["deadline"]),
      finished_at: toNumber(row["finished_at"]),
      takeovers: Number(row["takeovers"]),
    },
    position: Number(row["position"]),
  };
}

/** A column of JSON. */
export function fromJson(text: SqliteRow[string] | undefined): JsonValue {
  return JSON.parse(String(text)) as JsonValue;
}

function toNumber(value: SqliteRow[string] | undefined): number | null {
  return value === null || value === undefined ? null : Number(value);
}
