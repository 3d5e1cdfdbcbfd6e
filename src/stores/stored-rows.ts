import type { WatchedEvent } from "../core/feed.ts";
import type { CreatedEntry, Entry } from "../core/log.ts";
import type {
  Arrived,
  DamagedRun,
  FeedItem,
  FoundRun,
  Mismatch,
  RunHead,
  RunKey,
  SlotLine,
  StoredRun,
  StoredSession,
} from "../core/ports.ts";
import { positionIn } from "../core/positions.ts";
import type { Snapshot } from "../core/snapshot.ts";
import type { LogTail } from "../core/survey.ts";
import { ofVersion } from "../core/versions.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { RunStatus } from "../protocol/run.ts";
import { damaged } from "./damage.ts";

/* What stores that speak SQL write into their columns, and read from them. */

/** A row as a driver returns it. Drivers differ in how they return large numbers and truth values. */
export type StoredRow = Readonly<Record<string, unknown>>;

/** A constant: the build turns the literal into a call of `RegExp`, which would be made for each text. */
const loneSurrogate = /\p{Surrogate}/u;

/**
 * Text in a form that databases keep unchanged. They cannot hold a lone surrogate, and PostgreSQL and some drivers of
 * SQLite no NUL. Such text becomes a JSON string, and so does text that looks like one.
 */
export function toText(value: string): string {
  const plain = !value.startsWith('"') && !value.includes("\0") && !loneSurrogate.test(value);
  return plain ? value : JSON.stringify(value);
}

/** The opposite of `toText`. */
export function fromText(text: string): string {
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}

/** Comes after each text that begins with a prefix, in the order of their bytes. */
export function afterPrefix(prefix: string): string {
  return `${prefix}\u{10ffff}`;
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
function fromLines(lines: string, from: number, to: number): Entry[] {
  const entries: Entry[] = [];
  for (let line = 0, at = 0; line < to; line++) {
    const end = lines.indexOf("\n", at);
    if (end === -1) break;
    try {
      if (line >= from) entries.push(JSON.parse(lines.slice(at, end)) as Entry);
    } catch (cause) {
      throw new LineError(line, cause);
    }
    at = end + 1;
  }
  return entries;
}

/** How many bytes the lines have that a store reads at once, unless one write has more. */
export const MAX_READ = 524_288;

/**
 * At most `limit` entries of a run, in batches as they were written, each with its `position` and `lines`, and the
 * `length` of the log. `is_cut` of the last one: there may be more, which was not read. Undefined: there is no such run.
 * Throws `store_failed` for a damaged one.
 */
export function entriesIn(
  batches: readonly StoredRow[],
  key: RunKey,
  from: number,
  limit: number,
): readonly Entry[] | undefined {
  const [batch] = batches;
  if (batch === undefined) return undefined;
  const entries: Entry[] = [];
  const length = Number(batch["length"]);
  let at = from;
  for (const { position, lines } of batches) {
    const first = Number(position);
    // A missing batch leaves a gap, and so do deleted generations.
    if (typeof lines !== "string" || (first > at && !beginsGeneration(lines, first))) break;
    at = Math.max(at, first);
    try {
      const wanted = fromLines(lines, at - first, Math.min(at + limit - entries.length, length) - first);
      for (const entry of wanted) entries.push(entry);
      at += wanted.length;
    } catch (error) {
      throw error instanceof LineError ? damaged(key, first + error.line, error.cause) : error;
    }
  }
  const isCut = entries.length > 0 && Number(batches.at(-1)?.["is_cut"] ?? 0) !== 0;
  if (at < length && entries.length < limit && !isCut) throw damaged(key, at);
  return entries;
}

/** Whether a batch at a position begins with a generation. Those before may be deleted. */
export function beginsGeneration(lines: string, position: number): boolean {
  if (!lines.startsWith('{"type":"continued"')) return false;
  const [entry] = fromLines(lines, 0, 1);
  return entry?.type === "continued" && entry.position === position;
}

/** The last of some entries from a position on, behind deleted generations if there are any among them. */
export function lastPart(from: number, entries: readonly Entry[]): LogTail {
  const last = entries.findLastIndex(
    (entry, index) => entry.type === "continued" && entry.position !== positionIn(entries, index - 1, from) + 1,
  );
  return last === -1 ? { from, entries } : { from: positionIn(entries, last, from), entries: entries.slice(last) };
}

/** A line that holds no entry. */
class LineError extends Error {
  readonly line: number;

  constructor(line: number, cause: unknown) {
    super(`Line ${line} holds no entry.`, { cause });
    this.line = line;
  }
}

/** The columns of a head. */
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

/** The columns that a new run gets from its write. The others have defaults. */
export const insertedColumns = [
  "tenant",
  "run_id",
  "agent_name",
  "version",
  "session_id",
  "parent",
  "idempotency_key",
  "slot",
  "slot_max",
  ...headColumns,
  "position",
  "created_at",
];

/** The head in the columns of a row. */
export function toHead(row: StoredRow): RunHead {
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

/** The posts of an inbox, as a store lists them: each with its id, how many entries it has, and their lines. */
export type StoredInbox = readonly (readonly [id: number, count: number, lines: string])[];

/** What has arrived for a run. Undefined: nothing. */
export function toInbox(key: RunKey, posts: StoredInbox | null): { readonly inbox: readonly Arrived[] } | undefined {
  if (posts === null || posts.length === 0) return undefined;
  const inbox = posts.map(([id, count, lines]) => {
    return { id, entries: entriesIn([{ length: count, position: 0, lines }], key, 0, count) ?? [] };
  });
  return { inbox };
}

/** What has arrived for a run, from a column that has it as JSON. Undefined: nothing. */
export function inboxIn(key: RunKey, column: unknown): ReturnType<typeof toInbox> {
  return toInbox(key, JSON.parse(String(column)) as StoredInbox | null);
}

/** The columns that `toFoundRun` needs of the run `r`, without its first entry. */
export const runColumns = `r.id, r.tenant, r.run_id, r.version, r.position, ${headColumns.map((name) => `r.${name}`).join(", ")}`;
/** The run of a row of `runColumns` and `createdColumn`. `version`: that of the row, as it is told. */
export function toFoundRun(row: StoredRow, version: string | null): FoundRun {
  try {
    const created = JSON.parse(String(row["created"])) as CreatedEntry | null;
    if (created?.type !== "created") throw new TypeError("The first entry of a run is `created`.");
    const its = ofVersion(created, version);
    return { key: toKey(row), created: its, head: toHead(row), position: Number(row["position"]) };
  } catch (cause) {
    return toDamagedRun(row, cause);
  }
}

/** The run of a row of `runColumns` whose first entry cannot be read. */
export function toDamagedRun(row: StoredRow, cause: unknown): DamagedRun {
  const key = toKey(row);
  return { key, created: null, head: toHead(row), position: Number(row["position"]), error: damaged(key, 0, cause) };
}

/** The run itself. Throws for a damaged one. */
export function undamaged(run: FoundRun): StoredRun {
  if (run.created === null) throw run.error;
  return run;
}

export function toKey(row: StoredRow): RunKey {
  return { tenant: fromText(String(row["tenant"])), run_id: fromText(String(row["run_id"])) };
}

/** The line of a row with columns of the first run in line. */
export function toSlotLine(row: StoredRow, key: string, version: string | null): SlotLine {
  return {
    key,
    max: Number(row["slot_max"]),
    held: Number(row["held"]),
    waiting: Number(row["waiting"]),
    first: { key: toKey(row), agent_name: fromText(String(row["agent_name"])), version, due_at: Number(row["due_at"]) },
  };
}

/** An event of a run, of which the row names the run and the time. */
export function toFeedItem(row: StoredRow, position: string, event: WatchedEvent): FeedItem {
  return { position, key: toKey(row), agent_name: fromText(String(row["agent_name"])), at: Number(row["at"]), event };
}

/** The snapshot of a row with its columns. */
export function snapshotIn({ position, format, state }: StoredRow): Snapshot {
  return { position: Number(position), format: Number(format), state: String(state) };
}

/** The generation and the creator of a session, which one of an earlier version does not have. */
export function marksIn({ generation, creator }: StoredRow): Pick<StoredSession, "generation" | "creator"> {
  return {
    ...(typeof generation === "string" && { generation: fromText(generation) }),
    ...(typeof creator === "string" && { creator: fromText(creator) }),
  };
}

/** A column of JSON. */
export function fromJson(text: unknown): JsonValue {
  return JSON.parse(String(text)) as JsonValue;
}

export function toTextOrNull(value: string | null): string | null {
  return value === null ? null : toText(value);
}

export function toNumber(value: unknown): number | null {
  return value === null || value === undefined ? null : Number(value);
}

/** A count that a database can hold: unlimited counts become the largest whole number. */
export function countable(count: number): number {
  return Math.min(count, Number.MAX_SAFE_INTEGER);
}
