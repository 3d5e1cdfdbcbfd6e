import type { Entry } from "./log.ts";
import type { Expected, RunHead } from "./ports.ts";
import type { RunState } from "./state.ts";
import { isFinal } from "./state.ts";

/* The head of a run that only one process can write to. */

/** The owner of such runs. */
export const LOCAL = "local";

/** The head after these entries. `before` itself: the head does not change. */
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

/** What the next write expects of the run in the store. */
export function expectedAfter({ epoch }: RunHead, position: number): Expected {
  return { epoch, position };
}
