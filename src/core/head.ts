import type { RunStatus } from "../protocol/run.ts";
import type { Expected, RunHead, RunPost } from "./ports.ts";
import type { RunState } from "./state.ts";
import { isFinal } from "./state.ts";

/** The owner of runs that only one process can write to. */
export const LOCAL = "local";

/** The heads of such runs that have not ended. The many runs that wait share one. */
const localHeads = new Map<RunStatus, RunHead>();

/** The head of such a run in this state. `before` itself: the head does not change. */
export function localHead({ status, ended }: RunState, before: RunHead | undefined): RunHead {
  if (before?.status === status) return before;
  if (isFinal(status)) return localHeadOf(status, 1, null, ended?.at ?? null);
  let head = localHeads.get(status);
  if (head === undefined) {
    head = localHeadOf(status, 0, LOCAL, null);
    localHeads.set(status, head);
  }
  return head;
}

function localHeadOf(status: RunStatus, epoch: number, owner: string | null, finished_at: number | null): RunHead {
  return { status, epoch, owner, due_at: null, blocked: null, holds_slot: false, finished_at, takeovers: 0 };
}

/** What the next write to such a run expects of it in the store. */
export function expectedAfter({ epoch }: RunHead, position: number): Expected {
  return { epoch, position };
}

/** The head after a write to a run with this status. Its cancel holds until it ends: who ends it has seen the cancel. */
export function stillCancelling(status: string, head: RunHead): RunHead {
  return status === "cancelling" && head.finished_at === null ? { ...head, status } : head;
}

/** Whether a post is refused without an owner: its status was decided from what the run had before. */
export function needsOwner({ status }: RunPost): boolean {
  return status !== undefined && status !== "cancelling";
}

/** Whether no process owns the run. */
export function isFree(head: RunHead | undefined): boolean {
  return head?.owner === null;
}

/** Whether any process may go on with a run that waits for sub-runs, or for time or messages. */
export function isLeft({ status, owner }: RunHead): boolean {
  return status === "in-progress" && owner === null;
}

/** When the store made the run due that it then gave to its owner, by its clock; 0: it did not. In milliseconds since 1970. */
export function takenAt(head: RunHead | undefined): number {
  return head === undefined || head.owner === null ? 0 : (head.due_at ?? 0);
}

/** Whether the store may hold the run that was created with this head. With another epoch, the next write tells. */
export function mayBeOf(created: RunHead, stored: RunHead): boolean {
  return stored.epoch !== created.epoch || stored.owner === created.owner;
}
