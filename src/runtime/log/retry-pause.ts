import type { Store } from "../../core/ports.ts";

/** How long to wait before a store that has failed is called again. In milliseconds. */
export const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 5_000;

/** The pause after one of this length: twice as long, up to five seconds. */
export function nextPauseMs(pauseMs: number): number {
  return Math.min(2 * pauseMs, LAST_PAUSE_MS);
}

/**
 * The interval at which a store is asked for what other processes have written, in milliseconds. It is the longest delay of
 * an event from another process.
 */
const POLL_MS = 200;
/** The same for a store that gives hints. */
const HINTED_POLL_MS = 1_000;

/** The interval at which readers of what other processes write ask a store, in milliseconds. */
export function pollMs(store: Store): number {
  return store.watch === undefined ? POLL_MS : HINTED_POLL_MS;
}
