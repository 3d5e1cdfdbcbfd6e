import type { Entry } from "./log.ts";
import type { Expected, RunHead } from "./ports.ts";
import type { RunState } from "./state.ts";
import { isFinal } from "./state.ts";

/** The owner of runs that only one process can write to. */
export const LOCAL = "local";

/** The head of such a run after these entries. `before` itself: the head does not change. */
export function localHead(
  { status, ended }: RunState,
  entries: readonly Entry[],
  before: RunHead | undefined,
): RunHead {
  if (before?.status === status) return before;
  const epoch = (before?.epoch ?? 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
  const owner = isFinal(status) ? null : LOCAL;
  const finished_at = ended?.at ?? null;
  return { status, epoch, owner, due_at: null, blocked: null, holds_slot: false, finished_at, takeovers: 0 };
}

/** What the next write to such a run expects of it in the store. */
export function expectedAfter({ epoch }: RunHead, position: number): Expected {
  return { epoch, position };
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
