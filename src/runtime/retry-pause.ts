/** How long to wait before a store that has failed is called again. In milliseconds. */
export const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 5_000;

/** The pause after one of this length: twice as long, up to five seconds. */
export function nextPauseMs(pauseMs: number): number {
  return Math.min(2 * pauseMs, LAST_PAUSE_MS);
}
