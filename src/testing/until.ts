import type { RunState } from "../core/state.ts";
import type { FakeClock } from "./fake-clock.ts";
import { realPause, realTurn } from "./real-time.ts";

/** What is waited for: agents that go by a fake clock. */
export interface Waited {
  /** Grows with everything that can be seen. While it stays the same, nothing is done that can be seen. */
  readonly signsOfLife: number;
  /** Whether only a person's answer gets the agent on. */
  readonly isAwaiting: boolean;
  /** Moves the clock, where the agent waits for it and it may be moved. */
  pass(): undefined | Promise<void>;
  /** Throws what the test does not provide for. */
  check(): void;
}

/** How long to wait. */
export interface WaitLimits {
  /** Of the machine's time, in milliseconds without a sign of life. */
  readonly patienceMs: number;
  /** How many turns an agent may be busy. Default: 100,000. */
  readonly turns?: number | undefined;
}

/** After this many turns without a sign of life, an agent waits for something. */
const QUIET_TURNS = 10;
/** An agent that is busy for this many turns without showing anything is not going to. */
const MAX_BUSY_TURNS = 100_000;
const LONGEST_PAUSE_MS = 20;

/**
 * Waits until something is so. False: it does not become so; the agent waits for an answer, for the clock, or for
 * something of which there is no sign. Throws what the test does not provide for.
 */
export async function waitUntil(
  goal: () => boolean,
  waited: Waited,
  { patienceMs, turns: maxTurns = MAX_BUSY_TURNS }: WaitLimits,
): Promise<boolean> {
  let paused = 0;
  let pause = 1;
  let signs = waited.signsOfLife;
  let quiet = 0;
  for (let turns = 0; turns < maxTurns; turns++) {
    waited.check();
    if (goal()) return true;
    if (quiet < QUIET_TURNS) await realTurn();
    else {
      const passing = waited.pass();
      if (passing !== undefined) await passing;
      else if (waited.isAwaiting || paused >= patienceMs) return false;
      else {
        await realPause(pause);
        paused += pause;
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
      }
    }
    const now = waited.signsOfLife;
    quiet = now === signs ? quiet + 1 : 0;
    if (now !== signs) paused = 0;
    signs = now;
  }
  return false;
}

/** Moves the clock to the next thing that falls due, if that is not after a point in time. Undefined: there is none. */
export function passTo(clock: FakeClock, until: number | undefined): undefined | Promise<void> {
  const { nextDue } = clock;
  return nextDue !== undefined && until !== undefined && nextDue <= until ? clock.set(nextDue) : undefined;
}

/** When the question that is shown expires, in milliseconds since the epoch; `Infinity` for never. */
export function nextExpiry(state: RunState | undefined): number {
  const { deadline, expires_at } = state?.shown ?? {};
  const passedOn = expires_at === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires_at);
  return Math.min(deadline ?? Number.POSITIVE_INFINITY, passedOn);
}
