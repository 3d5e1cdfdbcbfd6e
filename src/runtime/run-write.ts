import type { Entry } from "../core/log.ts";
import type { RunHead, RunKey, RunWrite, SessionChange } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isAtRest } from "../core/state.ts";
import { countRun } from "../core/statistics.ts";

/** What a run adds to its writes. */
export interface WriteSource {
  /** The session change that goes with a write whose last entry is `ended`. */
  sessionAtEnd(): SessionChange | undefined;
  /** The run that these entries wake: the parent of a sub-run that comes to rest. */
  wakes(entries: readonly Entry[]): RunKey | undefined;
}

/** Makes the write for these entries. `state` is the state after the entries. */
export function writeOf(
  key: RunKey,
  state: RunState,
  entries: readonly Entry[],
  head: RunHead,
  session: SessionChange | undefined,
  source: WriteSource,
): RunWrite {
  const wake = source.wakes(entries) ?? (isDueNow(head) ? key : undefined);
  if (entries.at(-1)?.type === "ended")
    return { entries, head, session: merge(session, source.sessionAtEnd()), counters: countRun(state), wake };
  if (session === undefined && wake === undefined) return { entries, head };
  return { entries, head, session, wake };
}

/** Whether a run with this head is due at once: it has no owner, and is active or being cancelled. A waiting run is due at its deadline. */
export function isDueNow({ owner, status, blocked }: RunHead): boolean {
  return owner === null && !isAtRest(status) && blocked === null;
}

/** Merges two session changes. One write may set the session's state, create the session, and add messages to it. */
function merge(change: SessionChange | undefined, end: SessionChange | undefined): SessionChange | undefined {
  if (end === undefined || change === undefined) return end ?? change;
  return {
    ...end,
    create: end.create || change.create,
    state: change.state,
    messages: () => [...(change.messages?.() ?? []), ...(end.messages?.() ?? [])],
  };
}
