import type { StreamedEvent } from "cadenza";
import type { Entry } from "cadenza/store";
import type { EndedEntry } from "../internals.ts";
import { resultKey } from "../internals.ts";
import type { RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED } from "./acknowledged.ts";
import type { Evidence, Known, RunEvidence } from "./evidence.ts";
import type { Complain } from "./judge-bodies.ts";
import { resultsOf } from "./judge-waits.ts";

/* Rules for runs: each end has a reason, the events stay the same, and each output occurs once. */

/** The expected end of a run. */
export interface Expected {
  /** Its plan ends by throwing. */
  readonly fails: boolean;
  /** The client has cancelled it. */
  readonly isCancelled: boolean;
  /** The client knows of it, and answers its questions. */
  readonly isAnswered: boolean;
}

/** Judges a run by itself: its log, its end, and the results that its agent got. */
export function judgeRun(run: RunEvidence, known: Known, expected: Expected, complain: Complain): void {
  const { log, lines } = run;
  const types = log.map(({ type }) => type);
  const count = (type: Entry["type"]): number => types.filter((each) => each === type).length;
  if (types[0] !== "created" || count("created") !== 1 || count("started") > 1 || count("ended") > 1)
    complain("changed", `has an inconsistent log: ${types.join(" ")}`);
  const ended = log.at(-1);
  const parent = run.parent === undefined ? undefined : known.runs.get(run.parent);
  const parentHasEnded = parent?.log.at(-1)?.type === "ended";
  if (ended?.type !== "ended") {
    if (parentHasEnded) complain("orphaned", "has not ended, and the run that started it has");
    // A run that the client does not know gets neither answers nor messages.
    else if (parent === undefined && (expected.isAnswered || !isOpen(run, known))) complain("stuck", "does not end");
    return;
  }
  if (run.durable) {
    const results = new Map<string, unknown>();
    for (const entry of log) {
      if (entry.type !== "step") continue;
      if (results.has(entry.key)) complain("doubled", `has two results of ${entry.key}`);
      results.set(entry.key, entry.result);
    }
    for (const line of lines) {
      if (line.is !== "got") continue;
      if (!results.has(line.key)) complain("lost", `has lost the result of ${line.key}`, line.place);
      else if (results.get(line.key) !== line.body)
        complain(
          "changed",
          `was handed ${line.body} as the result of ${line.key}; the log has ${results.get(line.key)}`,
          line.place,
        );
    }
  }
  const why = unexplained(run, ended, { ...expected, parentHasEnded }, known);
  if (why !== undefined) complain("unexplained", why);
}

/** Whether a run or one of its sub-runs waits for an answer or a message without a deadline. */
function isOpen({ log }: RunEvidence, known: Known): boolean {
  const results = resultsOf(log);
  return log.some((entry) => {
    if (entry.type === "awaited") return entry.deadline === undefined && !results.has(entry.await_id);
    if (entry.type !== "intent") return false;
    const child = known.runs.get(entry.run_id ?? "");
    return child === undefined ? entry.until === null && !results.has(entry.key) : isOpen(child, known);
  });
}

/** Why the end of a run is not an expected one. */
function unexplained(
  run: RunEvidence,
  { outcome, error, at }: EndedEntry,
  expected: Expected & { readonly parentHasEnded: boolean },
  known: Known,
): string | undefined {
  const reason = error?.data?.["reason"];
  const isStopped = run.log.some(({ type }) => type === "cancel-requested");
  const isLate = run.log.some((entry) => entry.type === "timed-out" && !entry.defaulted);
  if (outcome === "completed") return expected.fails ? "has completed, and should have failed" : undefined;
  if (outcome === "cancelled")
    return expected.isCancelled || (isStopped && expected.parentHasEnded)
      ? undefined
      : "was cancelled without a request";
  if (reason === "await_timeout" && isLate) return undefined;
  if (reason === "agent_failed" && (expected.fails || isLate)) return undefined;
  if (reason === "interrupted" && !run.durable) {
    const called = run.lines.find(({ is }) => is === "called");
    // A run that never began may have lost its process before.
    if (called === undefined || known.process(called.by).hadTrouble(at, 0)) return undefined;
    return "was interrupted, although its process was sound";
  }
  return `has failed: ${JSON.stringify(error)}`;
}

/** What the client was told of its run. */
export async function judgeRecord(record: RunRecord, evidence: Evidence, complain: Complain): Promise<void> {
  const { run_id, seen } = record;
  if (run_id === undefined) return;
  const run = evidence.runs.get(run_id);
  if (run === undefined) {
    complain("lost", "was acknowledged and is not in the store");
    return;
  }
  const events = await evidence.events(run_id);
  judgeEvents(seen, events, complain);
  const ended = run.log.at(-1);
  const isCancelled = ended?.type === "ended" && ended.outcome === "cancelled";
  if (record.cancels.some(({ outcome }) => outcome === ACKNOWLEDGED) && ended?.type === "ended" && !isCancelled)
    complain("lost", `has ${ended.outcome}, although its cancellation was acknowledged`);
  if (ended?.type === "ended" && ended.outcome === "completed")
    judgeOutput(run, await evidence.texts(run_id), complain);
}

export function judgeEvents(
  seen: readonly StreamedEvent[],
  events: readonly StreamedEvent[],
  complain: Complain,
): void {
  for (const [index, { id }] of events.entries())
    if (id !== index + 1) complain("changed", `has event ${id} at position ${index + 1}`);
  for (const event of seen) {
    const now = events[event.id - 1];
    if (JSON.stringify(now) !== JSON.stringify(event))
      complain("changed", `has ${JSON.stringify(now)} where ${JSON.stringify(event)} was seen`);
  }
}

/** A completed run emits each result once, as it is in the log. */
export function judgeOutput(run: RunEvidence, text: string, complain: Complain): void {
  const shown = new Map<string, string>();
  for (const [, key = "", value = ""] of text.matchAll(/\[([^=\]]+)=([^\]]*)\]/g)) {
    if (shown.has(key)) complain("changed", `emits the result of ${key} twice`);
    shown.set(key, value);
  }
  const results = resultsOf(run.log);
  for (const entry of run.durable ? run.log : []) {
    const key = resultKey(entry);
    // Sub-runs emit their own results.
    if (key === undefined || key.startsWith("session.") || key.includes("/")) continue;
    const value = shown.get(key);
    const expected = results.get(key) ?? (entry.type === "step" ? shownValue(entry.result) : "");
    if (value !== expected) complain("changed", `emits ${value} for ${key}; the log has ${expected}`);
  }
  const tokens = [...text.matchAll(/<[^>]*>/g)].map(([token]) => token);
  for (const [index, token] of tokens.entries())
    if (tokens.indexOf(token) !== index) complain("changed", `emits ${token} twice`);
}

/** A sub-run is shown by its status. */
function shownValue(result: unknown): string {
  return typeof result === "string" ? result : (result as { readonly status: string }).status;
}
