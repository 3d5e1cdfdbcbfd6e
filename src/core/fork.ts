import { isJsonObject } from "../protocol/json.ts";
import { commandOf } from "./commands.ts";
import { decide, isRefusal } from "./decide.ts";
import { isCopy } from "./emission-source.ts";
import { evolve } from "./evolve.ts";
import type { ContinuedEntry, CreatedEntry, Entry, Growing, TakenEntry } from "./log.ts";
import { isSubRun, resultKey } from "./operation-keys.ts";
import { positionIn } from "./positions.ts";
import { initialState } from "./state.ts";

/**
 * How many entries of a run's log its fork begins with: those before an operation. What the agent itself emitted last is
 * left out, since it is emitted again. Undefined: the run has no such operation.
 */
export function cutBefore(log: readonly Entry[], key: string): number | undefined {
  const index = log.findIndex((entry) => begunKey(entry) === key);
  return index === -1 ? undefined : withoutLastWords(log, index);
}

/**
 * As {@link cutBefore}, before the operation with which the run failed: the one whose error its agent did not handle, or
 * the question that expired. If it failed for another reason, was cancelled, or has not failed: after all its
 * operations.
 */
export function cutToTryAgain(log: readonly Entry[]): number {
  const failed = failedKey(log);
  const cut = failed === undefined ? undefined : cutBefore(log, failed);
  return cut ?? withoutLastWords(log, stopOf(log) ?? log.findLastIndex(({ type }) => type !== "ended") + 1);
}

/** Where a run was stopped: cancelled, past a deadline, or for its budget. No fork begins behind it. Undefined: it was not stopped. */
export function stopOf(log: readonly Entry[]): number | undefined {
  const index = log.findIndex(
    (entry) =>
      entry.type === "cancel-requested" ||
      entry.type === "exceeded" ||
      (entry.type === "timed-out" && !entry.defaulted),
  );
  return index === -1 ? undefined : index;
}

/** The keys of a run's operations, in the order in which they began. */
export function operationsOf(log: readonly Entry[]): readonly string[] {
  return [...new Set(log.map(begunKey).filter((key) => key !== undefined))];
}

/** The log of a new run: its first entry, and for a fork those that it begins with. */
export type NewLog = readonly [CreatedEntry, ...Entry[]];

/**
 * The log with which a fork begins. Of the operations that have no result before the cut, only begun steps are taken
 * over: each is a next attempt. The others begin again in the fork: questions, sleeps and receives with new deadlines,
 * sub-runs as new runs. What other runs have posted about their questions, and offered answers, are left out.
 */
export function forkedLog(created: CreatedEntry, log: readonly Entry[], cut: number, runId: string): NewLog {
  // A fork begins with the generation that it forks.
  const begin = log.findLastIndex(({ type }, index) => index < cut && type === "continued");
  const before = log.slice(Math.max(begin, 0), cut);
  const first = positionIn(log, Math.max(begin, 0));
  const isTaken = takenOver(before);
  const state = initialState(runId);
  const forked: [CreatedEntry, ...Entry[]] = [created];
  /** Where the messages that the agent has received are in the log of the fork. */
  const moved = new Map<number, number>();
  const add = (entry: Entry): void => {
    // The entries before may be others, so that another one opens or completes a message.
    const decision = decide(state, commandOf(entry));
    if (isRefusal(decision)) throw new TypeError(`An entry of type ${entry.type} does not fit into the fork ${runId}.`);
    for (const decided of decision) {
      evolve(state, decided);
      forked.push(decided);
    }
  };
  evolve(state, created);
  for (const [index, entry] of before.entries()) {
    if (!isTaken(entry)) continue;
    if (entry.type === "received") moved.set(first + index, forked.length);
    if (entry.type === "continued") {
      const generation = generationOfFork(entry, created, moved);
      evolve(state, generation);
      forked.push(generation);
    } else add(entry.type === "taken" ? movedMessage(entry, moved) : entry);
  }
  add({ type: "forked", at: created.at });
  return forked;
}

/** Which entries a fork takes over, of those before the cut. */
function takenOver(before: readonly Entry[]): (entry: Entry) => boolean {
  const ended = new Set(before.map(resultKey));
  const unfinished = new Set<string>();
  for (const entry of before)
    if (entry.type === "intent" && entry.run_id !== null && !ended.has(entry.key)) unfinished.add(entry.run_id);
  return (entry) => {
    switch (entry.type) {
      case "created":
      case "forked":
      case "settled":
      case "offered":
      case "refused":
      case "moved":
        return false;
      case "awaited":
        return ended.has(entry.await_id);
      case "intent":
        return ended.has(entry.key) || (entry.run_id === null && entry.until === undefined);
      case "emitted":
      case "torn":
        return !isCopy(entry.source) || !unfinished.has(entry.source.run_id);
      default:
        return true;
    }
  };
}

/**
 * The beginning of the generation that is forked. Its messages have places in front of the log of the fork, which has no message
 * that it could complete.
 */
function generationOfFork(
  { previous: _previous, closes: _closes, ...entry }: ContinuedEntry,
  { at }: CreatedEntry,
  moved: Map<number, number>,
): ContinuedEntry {
  const first: Growing<ContinuedEntry> = { ...entry, position: 1, events: 1, started_at: at };
  if (entry.replies !== undefined) first.replies = entry.replies.map((reply) => ({ ...reply, event: 1, position: 2 }));
  if (entry.messages !== undefined) {
    const { length } = entry.messages;
    first.messages = entry.messages.map((message, index) => {
      moved.set(message.position, index - length);
      return { ...message, position: index - length };
    });
  }
  return first;
}

function movedMessage(entry: TakenEntry, moved: ReadonlyMap<number, number>): TakenEntry {
  return entry.position === null ? entry : { ...entry, position: moved.get(entry.position) ?? entry.position };
}

function withoutLastWords(log: readonly Entry[], cut: number): number {
  let end = cut;
  for (let entry = log[end - 1]; entry !== undefined && isSaidAgain(entry); entry = log[end - 1]) end -= 1;
  return end;
}

/** Whether the agent comes to it again at the same place: its own output, and what it has asked for a patch there. */
function isSaidAgain(entry: Entry): boolean {
  return entry.type === "patched" || (entry.type === "emitted" && entry.source === undefined);
}

/** The operation that began with an entry, or before it. */
function begunKey(entry: Entry): string | undefined {
  switch (entry.type) {
    case "intent":
      return entry.key;
    case "awaited":
      return entry.of === undefined ? entry.await_id : undefined;
    default:
      return resultKey(entry);
  }
}

/** The operation with which a run failed. Undefined: it is not known, or the run has not failed with one. */
function failedKey(log: readonly Entry[]): string | undefined {
  const stop = log[stopOf(log) ?? log.length];
  if (stop !== undefined) return resultKey(stop);
  const end = log.at(-1);
  if (end?.type !== "ended" || end.outcome !== "failed") return undefined;
  if (end.key !== undefined) return end.key;
  // An agent may look at the outcome and throw an error of its own.
  const last = log.findLast((entry) => resultKey(entry) !== undefined);
  return last !== undefined && isFailure(last) ? resultKey(last) : undefined;
}

/** Whether the result of an operation is an error, a decline, no message in time, or a sub-run that has not completed. */
function isFailure(entry: Entry): boolean {
  switch (entry.type) {
    case "step":
      return entry.error !== null || (isSubRun(entry.key) && !hasCompleted(entry.result));
    case "declined":
      return true;
    case "taken":
      return entry.position === null;
    default:
      return false;
  }
}

function hasCompleted(run: unknown): boolean {
  return isJsonObject(run) && run["status"] === "completed";
}
