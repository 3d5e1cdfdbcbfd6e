import type { Entry, IntentEntry } from "./log.ts";

/* The keys of operations and questions, and the entries that carry them. */

/** The operation whose result the entry is; undefined for every other entry. */
export function resultKey(entry: Entry): string | undefined {
  switch (entry.type) {
    case "step":
    case "taken":
      return entry.key;
    case "resumed":
    case "declined":
    case "withdrawn":
      return entry.await_id;
    case "timed-out":
      return entry.await_id ?? undefined;
    default:
      return undefined;
  }
}

/**
 * The question that an entry asks or settles, the run's own or that of a sub-run. Null: the entry ends the run's active
 * time. Undefined for every other entry.
 */
export function questionId(entry: Entry): string | null | undefined {
  switch (entry.type) {
    case "awaited":
    case "resumed":
    case "declined":
    case "withdrawn":
    case "timed-out":
    case "settled":
      return entry.await_id;
    default:
      return undefined;
  }
}

/** Whether an operation only waits: a sleep or a receive. Its `intent` says until when. */
export function isWait(intent: IntentEntry): boolean {
  return intent.until !== undefined;
}

/** The keys of the sleeps and receives that have begun. */
export function waitKeys(entries: readonly Entry[]): ReadonlySet<string> {
  return new Set(entries.flatMap((entry) => (entry.type === "intent" && isWait(entry) ? [entry.key] : [])));
}

/** Whether a key is that of a sub-run. */
export function isSubRun(key: string): boolean {
  return key.startsWith("run:");
}

/** Whether a key is that of a receive. */
export function isReceive(key: string): boolean {
  return key.startsWith("receive:");
}

/** The generation of the run in which an operation of this key has begun. The first one writes no number into its keys. */
export function generationOf(key: string): number {
  const count = key.slice(key.lastIndexOf("#") + 1);
  const point = count.indexOf(".");
  return point === -1 ? 1 : Number(count.slice(0, point));
}

/** The key of a sub-run in the id of one of its questions, such as `run:parent#1` in `run:parent#1/run:child#1/ask#1`. */
export function subRunIn(awaitId: string): string {
  return awaitId.slice(0, awaitId.indexOf("/"));
}

/** The agent that asks the question of a sub-run, which is shown with an id such as `run:parent#1/run:child#1/ask#1`. */
export function askingAgent(awaitId: string): string {
  return nameIn(awaitId.split("/").at(-2) ?? "");
}

/** The name in a key such as `plan#1`, `run:child#1` or `receive:payment#2`. */
export function nameIn(key: string): string {
  const begin = isSubRun(key) || isReceive(key) ? key.indexOf(":") + 1 : 0;
  return key.slice(begin, key.lastIndexOf("#"));
}
