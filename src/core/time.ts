import type { Clock } from "./ports.ts";

/**
 * The time as the protocol writes it: ISO 8601 in UTC, ending in `Z`. Every run needs several, and `toISOString` takes
 * eight times as long. The texts of a few seconds are therefore cached, and only the milliseconds are formatted.
 */
export function isoTime(epochMs: number): string {
  if (epochMs === lastMs) return lastIso;
  const second = Math.floor(epochMs / 1000);
  const slot = second & (SLOTS - 1);
  if (seconds[slot] !== second) {
    texts[slot] = new Date(1000 * second).toISOString().slice(0, -"000Z".length);
    seconds[slot] = second;
  }
  const rest = String(Math.floor(epochMs) - 1000 * second);
  lastIso = `${texts[slot] as string}${rest.padStart(3, "0")}Z`;
  lastMs = epochMs;
  return lastIso;
}

/** The same of a time that may be later than any that a text can say, as the end of a lease of any length; null for none. */
export function timeOrNull(epochMs: number | null): string | null {
  return epochMs === null ? null : isoTime(Math.min(epochMs, LAST_TIME));
}

/** The last time that a `Date` can have. What is due later never happens. */
export const LAST_TIME = 8_640_000_000_000_000;

/** How many seconds are cached: a power of two. */
const SLOTS = 16;
const seconds: number[] = new Array<number>(SLOTS).fill(Number.NaN);
const texts: string[] = new Array<string>(SLOTS).fill("");
let lastMs = 0;
let lastIso = "1970-01-01T00:00:00.000Z";

/** Resolves after so many milliseconds. */
export function waitFor(clock: Pick<Clock, "setTimeout">, ms: number): Promise<void> {
  return new Promise((resolve) => clock.setTimeout(resolve, ms));
}

/** A moment by both clocks of a process: each may stand still for a while, and the first may be set. */
export interface Moment {
  readonly wall: number;
  readonly monotonic: number;
}

/** Now. */
export function momentOf(clock: Clock): Moment {
  const wall = clock.now();
  return { wall, monotonic: clock.monotonic?.() ?? wall };
}

/**
 * How long ago a moment was, in milliseconds, by the clock that says more: a clock that stood still says too little.
 * Negative: unknown, since the only clock was set back.
 */
export function msSince(clock: Clock, { wall, monotonic }: Moment): number {
  const now = momentOf(clock);
  return Math.max(now.wall - wall, now.monotonic - monotonic);
}
