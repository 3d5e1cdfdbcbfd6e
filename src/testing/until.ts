import type { FakeClock } from "./fake-clock.ts";
import { realPause, realTurn } from "./real-time.ts";

/** What is waited for: agents that use a fake clock. */
export interface Waited {
  /** Grows with every observable activity. While it stays the same, no code is observably at work. */
  readonly activity: number;
  /** Whether only an answer can make the agent go on. */
  readonly isAwaiting: boolean;
  /** Moves the clock, if the agent waits for it and it may be moved. */
  pass(): undefined | Promise<void>;
  /** Throws an error for what the test does not provide for. */
  check(): void;
}

/** How long to wait. */
export interface WaitLimits {
  /** How long to wait without activity, in milliseconds of the machine's time. */
  readonly patienceMs: number;
  /** How many turns an agent may be busy. Default: 100,000. */
  readonly turns?: number | undefined;
}

/** After this many turns without activity, an agent waits for something. */
const QUIET_TURNS = 10;
/** After this many busy turns without the expected result, it is not waited for any longer. */
const MAX_BUSY_TURNS = 100_000;
const LONGEST_PAUSE_MS = 20;

/**
 * Waits until the goal is reached. False: it is not reached, because the agent waits for an answer, for the clock or
 * for something that cannot be observed. Throws an error for what the test does not provide for.
 */
export async function waitUntil(
  goal: () => boolean,
  waited: Waited,
  { patienceMs, turns: maxTurns = MAX_BUSY_TURNS }: WaitLimits,
): Promise<boolean> {
  let paused = 0;
  let pause = 1;
  let seen = waited.activity;
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
    const now = waited.activity;
    quiet = now === seen ? quiet + 1 : 0;
    if (now !== seen) paused = 0;
    seen = now;
  }
  return false;
}

/** Moves the clock to the next timer, if it falls due until a point in time. Undefined: there is none. */
export function passTo(clock: FakeClock, until: number | undefined): undefined | Promise<void> {
  const { nextDue } = clock;
  return nextDue !== undefined && until !== undefined && nextDue <= until ? clock.set(nextDue) : undefined;
}
