import { getActiveResourcesInfo, nextTick } from "node:process";
import { setImmediate as inNextTurn } from "node:timers";
import type { Clock } from "cadenza";
import { T0 } from "./logs.ts";

/** After how many turns of the event loop a runtime has nothing more to do: more than any test here needs. */
const TURNS = 25;

/** A clock whose time passes only with `advance` and `skip`. Turns of the event loop are real. */
export class FakeClock implements Clock {
  readonly #turns: number;
  #now = T0;
  #aheadMs = 0;
  #timers: Timer[] = [];
  #serial = 0;
  #holds = 0;

  /** `turns`: after how many turns of the event loop nothing happens any more. */
  constructor(turns = TURNS) {
    this.#turns = turns;
  }

  now(): number {
    return this.#now + this.#aheadMs;
  }

  monotonic(): number {
    return this.#now;
  }

  /** Sets the clock forwards, or backwards. No time passes. */
  set(byMs: number): void {
    this.#aheadMs += byMs;
  }

  setTimeout(callback: () => void, delayMs: number): () => void {
    const timer = { at: this.#now + delayMs, serial: this.#serial++, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  turn(): Promise<void> {
    return new Promise((resolve) => inNextTurn(resolve));
  }

  hold(): () => void {
    this.#holds += 1;
    let isHeld = true;
    return () => {
      if (isHeld) this.#holds -= 1;
      isHeld = false;
    };
  }

  /** How many holds there are on the process. */
  get holds(): number {
    return this.#holds;
  }

  /** How many timers are set. */
  get timers(): number {
    return this.#timers.length;
  }

  /** Lets all events happen that are due now. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < this.#turns; turn++) {
      await this.turn();
      await new Promise((resolve) => nextTick(resolve));
      if (isAtRest()) return;
    }
  }

  /** Lets time pass. Timers fire in their order, and the consequences of one have happened before the next fires. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await this.settle();
    for (let timer = this.#next(until); timer !== undefined; timer = this.#next(until)) {
      const due = timer;
      this.#timers = this.#timers.filter((other) => other !== due);
      this.#now = Math.max(this.#now, due.at);
      due.callback();
      await this.settle();
    }
    this.#now = until;
  }

  /** Lets time pass at once, as for an agent that blocks the event loop: timers fire later. */
  skip(ms: number): void {
    this.#now += ms;
  }

  #next(until: number): Timer | undefined {
    const due = this.#timers.filter(({ at }) => at <= until);
    return due.sort((a, b) => a.at - b.at || a.serial - b.serial)[0];
  }
}

/**
 * Whether nothing more can happen in this process but a real timer: nothing waits for a turn of the event loop, and no
 * request, file or socket is open. The pipes are those to the process that runs the tests. Asked when no promise reaction is due.
 */
function isAtRest(): boolean {
  return getActiveResourcesInfo().every((kind) => kind === "Timeout" || kind === "PipeWrap");
}

interface Timer {
  readonly at: number;
  readonly serial: number;
  readonly callback: () => void;
}
