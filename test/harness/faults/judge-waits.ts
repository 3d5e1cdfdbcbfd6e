import type { Entry } from "cadenza/store";
import type { ReceivedEntry } from "../internals.ts";
import { DEFAULT, nonceOf, REJECTED, SLEPT } from "./agents.ts";
import type { RunEvidence } from "./evidence.ts";
import type { Complain } from "./judge-bodies.ts";

/*
 * Rules for what agents wait for. No line after a wait, nor the `finally` around it, runs with something else than the
 * log has, or before its time. Messages are taken once, in the order in which they arrived.
 */

/** What each question, sleep and receive of a run has ended with, as its log says. */
export function resultsOf(log: readonly Entry[]): ReadonlyMap<string, string> {
  const results = new Map<string, string>();
  for (const entry of log) {
    if (entry.type === "resumed") results.set(entry.await_id, nonceOf(entry.answer));
    else if (entry.type === "declined") results.set(entry.await_id, entry.decline.reason ?? "no reason");
    else if (entry.type === "timed-out" && entry.await_id !== null)
      results.set(entry.await_id, entry.defaulted ? DEFAULT : "no answer in time");
    else if (entry.type === "taken") results.set(entry.key, messageIn(log, entry.position)?.result ?? DEFAULT);
    else if (entry.type === "step" && entry.key.startsWith("sleep#")) results.set(entry.key, SLEPT);
  }
  return results;
}

/** The message at a position, and what a receive that takes it gives. */
function messageIn(
  log: readonly Entry[],
  position: number | null,
): { entry: ReceivedEntry; result: string } | undefined {
  const entry = position === null ? undefined : log[position];
  if (entry?.type !== "received") return undefined;
  const fits = entry.name !== "order" || typeof (entry.data as { readonly value: unknown }).value === "number";
  return { entry, result: fits ? nonceOf(entry.data) : REJECTED };
}

/** A message is taken at most once, and those with one name in the order in which they arrived. */
export function judgeTaking({ log }: RunEvidence, complain: Complain): void {
  const taken = new Set<string>();
  for (const entry of log) {
    if (entry.type !== "taken" || entry.position === null) continue;
    const { key, position } = entry;
    const message = messageIn(log, position)?.entry;
    if (message === undefined || !key.startsWith(`receive:${message.name}#`)) {
      complain("changed", `has taken position ${position} for ${key}, which is no message for it`);
      continue;
    }
    const isWaiting = (other: Entry): boolean =>
      other.type === "received" && other.name === message.name && !taken.has(other.idempotency_key);
    if (taken.has(message.idempotency_key)) complain("doubled", `has taken a message twice, for ${key} again`);
    else if (log.findIndex(isWaiting) !== position)
      complain(
        "changed",
        `has taken position ${position} for ${key}, and not the first message, ${log.findIndex(isWaiting)}`,
      );
    taken.add(message.idempotency_key);
  }
}

/** Nothing begins before its start, wakes before its time, or expires before its deadline. */
export function judgeTimes({ log, lines }: RunEvidence, complain: Complain): void {
  const [created] = log;
  const startAt = created?.type === "created" ? (created.start_at ?? 0) : 0;
  /** When each wait may end without an answer or a message. */
  const times = new Map<string, number>();
  for (const entry of log) {
    const { type, at } = entry;
    if (type === "started" && at < startAt) complain("early", `has started ${startAt - at} ms before its time`);
    if (type === "intent" && entry.until != null) times.set(entry.key, entry.until);
    if (type === "awaited" && entry.deadline !== undefined) times.set(entry.await_id, entry.deadline);
    const expired =
      type === "step" || (type === "taken" && entry.position === null)
        ? entry.key
        : type === "timed-out" && entry.await_id;
    const until = expired ? (times.get(expired) ?? at) : at;
    if (at < until) complain("early", `has let ${expired} end ${until - at} ms before its time`);
  }
  const earliest = new Map<string, number>();
  for (const line of lines) {
    const { is, at, place } = line;
    if (is === "called" && at < startAt) complain("early", `was called ${startAt - at} ms before its time`, place);
    if (is === "waiting" && line.ms !== null && !earliest.has(line.key)) earliest.set(line.key, at + line.ms);
    if (is !== "after" || (line.nonce !== SLEPT && line.nonce !== DEFAULT)) continue;
    const until = earliest.get(line.key) ?? at;
    if (at < until) complain("early", `has gone on after ${line.key} ${until - at} ms before its time`, place);
  }
}

/** What agents got. */
export function judgeGoingOn(run: RunEvidence, complain: Complain): void {
  const results = resultsOf(run.log);
  const isStopped = stopped(run.log);
  for (const line of run.lines) {
    if (line.is !== "after" && line.is !== "finally") continue;
    const { key, nonce, place } = line;
    const taken = results.get(key);
    const where = line.is === "after" ? `a line after ${key}` : `the finally around ${key}`;
    if (nonce.startsWith("threw ") || nonce === "nothing") {
      if (!isStopped && taken !== "no answer in time")
        complain(
          "refused",
          `${where} ran without an answer (${nonce}), although the run was not stopped; the log has ${taken ?? "none"}`,
          place,
        );
    } else if (nonce !== taken)
      complain("refused", `${where} ran with ${nonce}; the log has ${taken ?? "none"}`, place);
  }
}

/**
 * A cancelled run has run the `finally` around each wait that it has begun. A run whose log has no `started` never
 * began: its process was killed before the first commit, so that no process runs its agent again.
 */
export function judgeFinally(run: RunEvidence, complain: Complain): void {
  if (!run.log.some((entry) => entry.type === "started")) return;
  const ended = run.log.at(-1);
  if (ended?.type !== "ended" || ended.outcome !== "cancelled") return;
  const finished = new Set(run.lines.flatMap((line) => (line.is === "finally" ? [line.key] : [])));
  const waiting = new Set(run.lines.flatMap((line) => (line.is === "waiting" ? [line.key] : [])));
  for (const key of waiting)
    if (!finished.has(key)) complain("left out", `the finally around ${key} has not run, and the run was cancelled`);
}

/** Whether the run was stopped, or ended while questions were open. */
function stopped(log: readonly Entry[]): boolean {
  return log.some(
    (entry) =>
      entry.type === "cancel-requested" ||
      (entry.type === "timed-out" && !entry.defaulted) ||
      (entry.type === "ended" && entry.outcome !== "completed"),
  );
}
