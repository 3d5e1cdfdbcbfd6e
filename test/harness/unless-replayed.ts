import type { TestContext } from "vitest";
import { it } from "vitest";
import { replays } from "./always-replay.ts";

/*
 * The tests of the runtime that do not hold for durable agents which are replayed after each commit. Each is declared
 * as `unlessReplayed(reason)("title", body)`.
 */

export const RUN_ONCE = "counts how often code outside of steps runs";
export const OUTSIDE = "its agent depends on variables and timers outside of steps, so that its replay does not match";
export const TIMERS = "counts timers, and a persistent store is scanned at intervals";
export const HANDED_BACK = "a durable run is released when the runtime is closed, and does not fail";
export const FLOATING = "a step that the agent does not wait for may be cut off by the end of the run";
export const COUNTS_CALLS = "counts calls of the store, and a replay takes more";
export const TOO_LONG =
  "its agent emits without end or works for hours, which takes too long to replay after each commit";
export const OWN_PROCESS = "uses a process of its own, in which nothing is replayed";
export const HAS_TIME = "its agent reads the time, which is later in the replay";
export const AFTERWARDS = "a parent that is being replayed copies what its sub-run has emitted when it has caught up";

export const AS_OF_RESULT = "a durable agent sees what was left with its last result";

/** Declares a test as `it` does. It is skipped for this reason where agents are replayed. */
export function unlessReplayed(reason: string): (title: string, body: () => Promise<void> | void) => void {
  return (title, body) => it(title, replays ? ({ skip }: TestContext) => skip(reason) : body);
}
