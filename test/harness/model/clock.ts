import type { Clock } from "cadenza";

const START = Date.UTC(2030, 0, 1);

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/**
 * A clock whose time only the model advances. Turns, too, begin when the model lets them, in the order of the requests.
 */
export class ModelClock implements Clock {
  #now = START;
  #timers: Timer[] = [];
  readonly #turns: (() => void)[] = [];
  /** By how much the latest timer was late. */
  latestMs = 0;

  now(): number {
    return this.#now;
  }

  setTimeout(callback: () => void, delayMs: number): () => void {
    const timer: Timer = { at: this.#now + Math.max(0, delayMs), callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  turn(): Promise<void> {
    return new Promise((resolve) => this.#turns.push(resolve));
  }

  get pendingTurns(): number {
    return this.#turns.length;
  }

  get pendingTimers(): number {
    return this.#timers.length;
  }

  /** How long until the next timer; undefined if there is none. */
  get nextTimerMs(): number | undefined {
    let next: number | undefined;
    for (const { at } of this.#timers) next = Math.min(next ?? at, at);
    return next === undefined ? undefined : Math.max(0, next - this.#now);
  }

  /** Begins the oldest turns. */
  takeTurns(count: number): void {
    for (const begin of this.#turns.splice(0, count)) begin();
  }

  /**
   * Advances the time. Timers that are due fire one by one, with `settle` in between; `late`: all of them at its end,
   * as on a busy machine.
   */
  async advance(byMs: number, late: boolean, settle: () => Promise<void>): Promise<void> {
    const until = this.#now + byMs;
    if (late) this.#now = until;
    for (let timer = this.#takeDue(until); timer !== undefined; timer = this.#takeDue(until)) {
      this.#now = Math.max(this.#now, timer.at);
      this.latestMs = Math.max(this.latestMs, this.#now - timer.at);
      timer.callback();
      await settle();
    }
    this.#now = until;
  }

  #takeDue(until: number): Timer | undefined {
    let due: Timer | undefined;
    for (const timer of this.#timers) if (timer.at <= until && timer.at < (due?.at ?? Infinity)) due = timer;
    if (due !== undefined) this.#timers.splice(this.#timers.indexOf(due), 1);
    return due;
  }
}
