import type { Entry } from "cadenza/store";
import type { RunStatus } from "../internals.ts";
import { ignore, isFinal } from "../internals.ts";
import type { WatchedLog } from "./store.ts";

/** What the checker knows of a run while it reads its log. It does not depend on the library's own rules. */
interface Life {
  status: RunStatus;
  /** The open questions with their deadlines, in the order in which they were asked. */
  readonly open: Map<string, number | null>;
  /** The questions that are not open any more. */
  readonly settled: Set<string>;
  /** When the run was stopped, and why. */
  stopped: { readonly at: number; readonly outcome: "cancelled" | "failed" } | undefined;
}

/** Follows a run from its first entry to its last one, and complains about every transition that is not allowed. */
export function checkEdges({ entries, head }: WatchedLog, graceMs: number, complain: (what: string) => void): void {
  const life = newLife();
  let lastAt = 0;
  for (const [position, entry] of entries.entries()) {
    if (entry.at < lastAt) complain(`entry ${position} (${entry.type}) is older than the one before it`);
    lastAt = entry.at;
    if ((entry.type === "created") !== (position === 0)) complain(`${entry.type} is at ${position}`);
    if (entry.type === "created") continue;
    const next = follow(life, entry, complain);
    if (next === undefined) complain(`${entry.type} at ${position} follows the status ${life.status}`);
    else life.status = next;
  }
  if (head.status !== life.status) complain(`the store says ${head.status}, the log says ${life.status}`);
  if (head.owner === null && head.due_at !== earliest(life)) complain("the store has another deadline than the log");
  const last = entries.at(-1);
  if (life.stopped !== undefined && last !== undefined && last.at > life.stopped.at + graceMs)
    complain(`it took ${last.at - life.stopped.at} ms to stop`);
  const endings = entries.filter(({ type }) => type === "ended").length;
  if (endings > 1) complain(`it ended ${endings} times`);
}

/**
 * How long a run was at work at most, in milliseconds, until it was stopped or has ended: the time in which it asked nothing.
 * `isOverrun`: it was stopped for that. Undefined: it has not begun.
 */
export function workOf(entries: readonly Entry[]): { readonly ms: number; readonly isOverrun: boolean } | undefined {
  const life = newLife();
  let ms = 0;
  let since = 0;
  for (const entry of entries.slice(1)) {
    if (life.status === "in-progress") ms += entry.at - since;
    since = entry.at;
    life.status = follow(life, entry, ignore) ?? life.status;
    if (life.stopped !== undefined || entry.type === "ended")
      return { ms, isOverrun: entry.type === "timed-out" && entry.await_id === null };
  }
  return undefined;
}

/** The first deadline of the open questions of a run. Null: there is none. */
export function firstDeadline(entries: readonly Entry[]): number | null {
  const life = newLife();
  for (const entry of entries.slice(1)) life.status = follow(life, entry, ignore) ?? life.status;
  return earliest(life);
}

function newLife(): Life {
  return { status: "created", open: new Map(), settled: new Set(), stopped: undefined };
}

function earliest({ open }: Life): number | null {
  const deadlines = [...open.values()].filter((at) => at !== null);
  return deadlines.length === 0 ? null : Math.min(...deadlines);
}

/** The status after the entry; undefined if the entry is not allowed there. */
function follow(life: Life, entry: Entry, complain: (what: string) => void): RunStatus | undefined {
  const { status } = life;
  const isAtWork = status === "in-progress" || status === "awaiting";
  switch (entry.type) {
    case "started":
      return status === "created" ? "in-progress" : undefined;
    case "emitted":
    case "step":
      return isAtWork || status === "cancelling" ? status : undefined;
    case "intent":
      return isAtWork ? status : undefined;
    case "awaited":
      if (!isAtWork || life.stopped !== undefined) return undefined;
      if (life.open.has(entry.await_id) || life.settled.has(entry.await_id))
        complain(`${entry.await_id} was asked twice`);
      // The run that asks enforces the deadline.
      life.open.set(entry.await_id, entry.of === undefined ? (entry.deadline ?? null) : null);
      return "awaiting";
    case "resumed":
    case "declined":
    case "settled":
    case "withdrawn":
      if (life.settled.has(entry.await_id)) complain(`${entry.await_id} was settled twice`);
      return close(life, entry.await_id);
    case "timed-out":
      return timeOut(life, entry, complain);
    case "cancel-requested":
      if (!isAtWork && status !== "created") return undefined;
      life.stopped = { at: entry.at, outcome: "cancelled" };
      life.open.clear();
      return "cancelling";
    case "ended":
      return end(life, entry, complain);
    default:
      return undefined;
  }
}

function close(life: Life, awaitId: string): RunStatus | undefined {
  if (life.status !== "awaiting" || !life.open.delete(awaitId)) return undefined;
  life.settled.add(awaitId);
  return life.open.size > 0 ? "awaiting" : "in-progress";
}

function timeOut(life: Life, entry: Entry & { type: "timed-out" }, complain: (what: string) => void) {
  if (!entry.defaulted) {
    if (life.stopped !== undefined) return undefined;
    life.stopped = { at: entry.at, outcome: "failed" };
    if ((life.open.get(entry.await_id ?? "") ?? 0) > entry.at)
      complain(`${entry.await_id} timed out before its deadline`);
    for (const awaitId of life.open.keys()) life.settled.add(awaitId);
    life.open.clear();
    return life.status === "created" ? undefined : "in-progress";
  }
  if (entry.await_id === null) return life.status === "in-progress" ? life.status : undefined;
  if ((life.open.get(entry.await_id) ?? Infinity) > entry.at)
    complain(`${entry.await_id} timed out before its deadline`);
  return close(life, entry.await_id);
}

function end({ status, stopped, open }: Life, entry: Entry & { type: "ended" }, complain: (what: string) => void) {
  open.clear();
  if (stopped !== undefined && entry.outcome !== stopped.outcome)
    complain(`it was to end ${stopped.outcome} and ended ${entry.outcome}`);
  if (stopped === undefined && entry.outcome === "cancelled") complain("it was cancelled without a request");
  return isFinal(status) ? undefined : entry.outcome;
}
