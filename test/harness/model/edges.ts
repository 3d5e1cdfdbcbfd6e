import type { Entry } from "../../../src/core/log.ts";
import { ignore } from "../../../src/core/promises.ts";
import type { RunStatus } from "../../../src/protocol/run.ts";
import type { WatchedLog } from "./store.ts";

/** What the checker knows of a run while it reads its log. It does not depend on the library's own rules. */
interface Life {
  status: RunStatus;
  /** The question that is shown. */
  shown: { readonly await_id: string; readonly deadline: number | null } | undefined;
  readonly answered: Set<string>;
  /** When the run was stopped, and why. */
  stopped: { readonly at: number; readonly outcome: "cancelled" | "failed" } | undefined;
}

/** Follows a run from its first entry to its last one, and complains about every transition that is not allowed. */
export function checkEdges({ entries, head }: WatchedLog, graceMs: number, complain: (what: string) => void): void {
  const life: Life = { status: "created", shown: undefined, answered: new Set(), stopped: undefined };
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
  if (head.owner === null && head.due_at !== (life.shown?.deadline ?? null))
    complain("the store has another deadline than the log");
  const last = entries.at(-1);
  if (life.stopped !== undefined && last !== undefined && last.at > life.stopped.at + graceMs)
    complain(`it took ${last.at - life.stopped.at} ms to stop`);
  const endings = entries.filter(({ type }) => type === "ended").length;
  if (endings > 1) complain(`it ended ${endings} times`);
}

/** The deadline of the question that a run shows. Null: it shows none, or the question has no deadline. */
export function shownDeadline(entries: readonly Entry[]): number | null {
  const life: Life = { status: "created", shown: undefined, answered: new Set(), stopped: undefined };
  for (const entry of entries.slice(1)) life.status = follow(life, entry, ignore) ?? life.status;
  return life.shown?.deadline ?? null;
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
      if (status !== "in-progress" || life.stopped !== undefined) return undefined;
      life.shown = { await_id: entry.await_id, deadline: entry.deadline ?? null };
      return "awaiting";
    case "resumed":
      if (life.answered.has(entry.await_id)) complain(`${entry.await_id} was answered twice`);
      life.answered.add(entry.await_id);
      return takeDown(life, entry.await_id);
    case "withdrawn":
      return takeDown(life, entry.await_id);
    case "timed-out":
      return timeOut(life, entry, complain);
    case "cancel-requested":
      if (!isAtWork && status !== "created") return undefined;
      life.stopped = { at: entry.at, outcome: "cancelled" };
      life.shown = undefined;
      return "cancelling";
    case "ended":
      return end(life, entry, complain);
    default:
      return undefined;
  }
}

function takeDown(life: Life, awaitId: string): RunStatus | undefined {
  if (life.status !== "awaiting" || life.shown?.await_id !== awaitId) return undefined;
  life.shown = undefined;
  return "in-progress";
}

function timeOut(life: Life, entry: Entry & { type: "timed-out" }, complain: (what: string) => void) {
  const { shown } = life;
  if (!entry.defaulted) {
    if (life.stopped !== undefined) return undefined;
    life.stopped = { at: entry.at, outcome: "failed" };
  }
  if (entry.await_id === null) return life.status === "in-progress" ? life.status : undefined;
  if ((shown?.deadline ?? Infinity) > entry.at) complain(`${entry.await_id} timed out before its deadline`);
  return takeDown(life, entry.await_id);
}

function end({ status, stopped }: Life, entry: Entry & { type: "ended" }, complain: (what: string) => void) {
  if (stopped !== undefined && entry.outcome !== stopped.outcome)
    complain(`it was to end ${stopped.outcome} and ended ${entry.outcome}`);
  if (stopped === undefined && entry.outcome === "cancelled") complain("it was cancelled without a request");
  return status === "in-progress" || status === "cancelling" || status === "created" ? entry.outcome : undefined;
}
