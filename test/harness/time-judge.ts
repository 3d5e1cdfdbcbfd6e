import type { Message } from "cadenza";
import type { Entry } from "cadenza/store";
import type { StepFailure } from "./internals.ts";
import type { Shown } from "./judge.ts";

/*
 * Judges the times of a log by those at which the store has taken its entries, by the store's clock. What a process writes
 * as a time may be wrong, so it proves nothing by itself.
 */

/** From when to when something was wrong with the processes of a run, or with their store. */
export interface Disturbance {
  readonly from: number;
  /** Infinity: it is still wrong. */
  readonly to: number;
}

export interface Timing {
  readonly log: readonly Entry[];
  /** When the store has taken each entry, in milliseconds since 1970. */
  readonly taken: readonly number[];
  /** In the order in which they began. Undefined: delays are not judged, as where they depend on what else the machine does. */
  readonly disturbances: readonly Disturbance[] | undefined;
  /** How long processes need after a disturbance until they work as before. */
  readonly recoveryMs: number;
  /** By how much two readings of the store's clock may differ. Default: 0. */
  readonly toleranceMs?: number;
  /** Whether the store's clock is set meanwhile: an entry may have its time from before or after. Default: false. */
  readonly isSet?: boolean;
}

/** How much later than its time a wait may end at most, while processes and store work. */
const LATE_MS = 2_000;

/** What is wrong with the times of a log: entries that go back or are of another time, and waits that end too early or late. */
export function mistimed(timing: Timing): readonly string[] {
  return [...misdated(timing), ...misended(timing)];
}

/**
 * No entry has an earlier time than the one before it, a later one than that at which the store has taken it, or one long
 * before that. A post has the time at which it was sent. Other entries may have been written meanwhile, and it lies in
 * the inbox of a dead owner until there is another one.
 */
function* misdated({ log, taken, toleranceMs = 0, ...timing }: Timing): Iterable<string> {
  let last = 0;
  for (const index of ownOf(log)) {
    const entry = log[index];
    const takenAt = taken[index];
    if (entry === undefined) continue;
    const { at, type } = entry;
    const what = `${type} at position ${index}`;
    if (at < last && !isPost(entry)) yield `${what} is ${last - at} ms before an earlier entry`;
    if (takenAt !== undefined) {
      // After the store's clock was set back, the times of a log stand still.
      if (at > Math.max(takenAt + toleranceMs, last)) yield `${what} is ${at - takenAt} ms ahead of the store's clock`;
      if (!isPost(entry) && isLate(timing, at, takenAt)) yield `${what} is ${takenAt - at} ms behind the store's clock`;
    }
    last = Math.max(last, at);
  }
}

/** Waits, pauses between attempts at steps, and attempts with a time limit that end before their time, or long after it. */
function* misended({ log, taken, toleranceMs = 0, isSet = false, ...timing }: Timing): Iterable<string> {
  /** When each wait ends that nothing else ends before. */
  const waits = new Map<string, number>();
  const pauses = new Map<string, number>();
  const attempts = new Map<string, number>();
  const end = function* (periods: Map<string, number>, key: string, index: number, isByTime: boolean) {
    const until = periods.get(key);
    const [entry, takenAt] = [log[index], taken[index]];
    periods.delete(key);
    if (until === undefined || entry === undefined || takenAt === undefined) return;
    // The process that ends a wait may have read the store's clock less exactly than the one that began it.
    const early = until - toleranceMs - Math.min(isSet ? takenAt : entry.at, takenAt);
    if (isByTime && early > 0) yield `${key} ends ${early} ms before its time, at position ${index}`;
    if (isLate(timing, until, takenAt)) yield `${key} ends ${takenAt - until} ms after its time, at position ${index}`;
  };
  const endAttempt = function* (key: string, failure: StepFailure | null, index: number) {
    const begunAt = attempts.get(key);
    attempts.delete(key);
    const limitMs = Number(/its timeoutMs \((\d+)\)\.$/.exec(failure?.message ?? "")?.[1]);
    if (begunAt !== undefined && !Number.isNaN(limitMs))
      yield* end(new Map([[key, begunAt + limitMs]]), key, index, true);
  };
  for (const index of ownOf(log)) {
    const entry = log[index];
    switch (entry?.type) {
      case "intent":
        yield* end(pauses, entry.key, index, true);
        if (entry.until != null) waits.set(entry.key, entry.until);
        attempts.set(entry.key, taken[index] ?? entry.at);
        break;
      case "awaited":
        // The run that asks lets its question expire.
        if (entry.deadline !== undefined && entry.of === undefined) waits.set(entry.await_id, entry.deadline);
        break;
      case "attempt-failed":
        yield* endAttempt(entry.key, entry.failure, index);
        if (entry.until !== undefined) pauses.set(entry.key, entry.until);
        break;
      case "step":
        yield* end(waits, entry.key, index, true);
        yield* endAttempt(entry.key, entry.error, index);
        break;
      case "taken":
        yield* end(waits, entry.key, index, entry.position === null);
        break;
      case "resumed":
      case "declined":
      case "withdrawn":
        yield* end(waits, entry.await_id, index, false);
        break;
      case "timed-out":
        if (entry.await_id !== null) yield* end(waits, entry.await_id, index, true);
        if (!entry.defaulted) for (const key of waits.keys()) yield* end(waits, key, index, false);
        break;
      case "continued":
      case "cancel-requested":
      case "exceeded":
      case "ended":
        for (const key of waits.keys()) yield* end(waits, key, index, false);
        break;
      default:
    }
  }
}

/** What readers of a run see whose times go back. */
export function disordered({ details, transcript }: Pick<Shown, "details" | "transcript">): readonly string[] {
  // An answer follows its question, also where another question was asked in between.
  const said = transcript.filter(({ role }) => role !== "user");
  const exchanges = transcript.flatMap(({ role }, index) =>
    role === "user" ? [createdAt(transcript.slice(Math.max(index - 1, 0), index + 1))] : [],
  );
  return [
    ...backward(
      "the details have",
      details.flatMap((event) => ("at" in event ? [event.at] : [])),
    ),
    ...transcript.flatMap((one) => backward("a message has", [one.created_at ?? [], one.completed_at ?? []].flat())),
    ...backward("the transcript has", createdAt(said)),
    ...exchanges.flatMap((times) => backward("an answer has", times)),
  ];
}

function backward(what: string, times: readonly string[]): readonly string[] {
  return times.flatMap((time, index) => {
    const before = times[index - 1];
    return before !== undefined && time < before ? [`${what} ${time} after ${before}`] : [];
  });
}

function createdAt(messages: readonly Message[]): readonly string[] {
  return messages.flatMap(({ created_at }) => created_at ?? []);
}

/** The positions of what a run itself has written: a fork begins with the entries of another one. */
function* ownOf(log: readonly Entry[]): Iterable<number> {
  for (let index = log.findLastIndex(({ type }) => type === "forked") + 1; index < log.length; index++) yield index;
}

/** Whether something that was due has happened too late, although nothing was wrong meanwhile, or was over by then. */
function isLate(
  { disturbances, recoveryMs }: Pick<Timing, "disturbances" | "recoveryMs">,
  due: number,
  at: number,
): boolean {
  if (disturbances === undefined) return false;
  let until = due;
  for (const { from, to } of disturbances)
    if (from <= until + LATE_MS && to + recoveryMs > until) until = to + recoveryMs;
  return at > until + LATE_MS;
}

/** Whether any process may have added an entry to the log. */
function isPost(entry: Entry): boolean {
  return posted.has(entry.type) || (entry.type === "awaited" && entry.of !== undefined);
}

const posted: ReadonlySet<string> = new Set(["received", "offered", "settled", "cancel-requested"]);
