import type { Clock } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import { badArgument, checkKeys, checkObject } from "../runtime/agent/check.ts";
import type { Duration, Instant } from "./duration.ts";
import { readDuration, readInstant } from "./duration.ts";
import { realTurn } from "./real-time.ts";

/** Options of a fake clock. */
export interface FakeClockOptions {
  /** The time at which it starts. Default: 2025-01-01T00:00:00Z. */
  readonly now?: Instant | undefined;
}

/**
 * A clock that stands still until the test moves it. Pass it as `clock` to `new AgentRuntime({ clock })`; every drive
 * has one. It needs no fake timers of a test runner, and they do not stop it.
 */
export interface FakeClock extends Clock {
  /**
   * Lets time pass. Each timer that falls due is called at its own time, in order, and what follows from it happens.
   */
  advance(by: Duration): Promise<void>;
  /** Lets time pass until a point in time, which must not be in the past. */
  set(to: Instant): Promise<void>;
  /** The number of timers that have neither been called nor been cancelled. */
  readonly pending: number;
  /** When the first of them falls due, in milliseconds since the epoch; undefined if there is none. */
  readonly nextDue: number | undefined;
  /**
   * How often the clock has been used so far. While the number stays the same, no code that uses this clock is at work.
   */
  readonly uses: number;
}

/** A clock that may also skip time. */
export interface LeapingClock extends FakeClock {
  /**
   * Moves on to a time at once. The timers that fall due by then are called there, in order and once: an interval does
   * not tick through the time between.
   */
  leap(to: number): Promise<void>;
}

const START_MS = Date.UTC(2025, 0, 1);
/** After this many turns without a use of the clock, what follows from a timer has happened. */
const QUIET_TURNS = 3;
/** After this many turns, an agent that never rests is not waited for. */
const MAX_TURNS = 1_000;

/** Makes a clock that stands still until the test moves it. */
export function createFakeClock(options: FakeClockOptions = {}): FakeClock {
  return createLeapingClock(options);
}

/** The same clock, for the other parts of this kit. */
export function createLeapingClock(options: FakeClockOptions): LeapingClock {
  checkObject("options", options);
  checkKeys("options", options, ["now"]);
  return new StoppedClock(readInstant("options.now", options.now ?? START_MS));
}

class StoppedClock implements LeapingClock {
  #now: number;
  #timers: Timer[] = [];
  #uses = 0;
  #moving: Promise<void> = Promise.resolve();

  constructor(now: number) {
    this.#now = now;
  }

  get pending(): number {
    return this.#timers.length;
  }

  get nextDue(): number | undefined {
    return this.#timers[0]?.at;
  }

  get uses(): number {
    return this.#uses;
  }

  now(): number {
    this.#uses += 1;
    return this.#now;
  }

  monotonic(): number {
    return this.now();
  }

  setTimeout(callback: () => void, delayMs: number): () => void {
    this.#uses += 1;
    const timer: Timer = { at: this.#now + Math.max(delayMs, 0), callback };
    const after = this.#timers.findIndex(({ at }) => at > timer.at);
    if (timer.at < Number.POSITIVE_INFINITY) this.#timers.splice(after < 0 ? this.#timers.length : after, 0, timer);
    return () => {
      this.#uses += 1;
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  turn(): Promise<void> {
    this.#uses += 1;
    return realTurn();
  }

  /** Time stands still until the test moves it, so that the process may end if it waits for nothing else. */
  hold(): () => void {
    return ignore;
  }

  async advance(by: Duration): Promise<void> {
    const length = readDuration("by", by);
    if (length === Number.POSITIVE_INFINITY) throw badArgument("by", "a time that ends", by);
    await this.#move(() => this.#travel(this.#now + length));
  }

  async set(to: Instant): Promise<void> {
    const target = readInstant("to", to);
    if (target < this.#now)
      throw badArgument("to", `a time from ${new Date(this.#now).toISOString()} on, since time does not go back`, to);
    await this.#move(() => this.#travel(target));
  }

  async leap(to: number): Promise<void> {
    await this.#move(async () => {
      await this.#settle();
      this.#now = Math.max(this.#now, to);
      for (const timer of this.#timers.filter(({ at }) => at <= to)) await this.#fire(timer);
    });
  }

  /** One move after another, also if the test does not await the first. */
  #move(move: () => Promise<void>): Promise<void> {
    const journey = this.#moving.then(move);
    this.#moving = journey.catch(() => undefined);
    return journey;
  }

  async #travel(target: number): Promise<void> {
    await this.#settle();
    for (let timer = this.#timers[0]; timer !== undefined && timer.at <= target; timer = this.#timers[0]) {
      this.#now = Math.max(this.#now, timer.at);
      await this.#fire(timer);
    }
    this.#now = Math.max(this.#now, target);
  }

  /** Calls a timer, unless it was cancelled. */
  async #fire(timer: Timer): Promise<void> {
    if (!this.#timers.includes(timer)) return;
    this.#timers = this.#timers.filter((other) => other !== timer);
    timer.callback();
    await this.#settle();
  }

  /** Waits until everything that has begun has happened, as far as this clock can tell. */
  async #settle(): Promise<void> {
    let quiet = 0;
    for (let turns = 0; quiet < QUIET_TURNS && turns < MAX_TURNS; turns++) {
      const before = this.#uses;
      await realTurn();
      quiet = this.#uses === before ? quiet + 1 : 0;
    }
  }
}

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}
