import type { Clock } from "../../core/ports.ts";

const MAX_ENTRIES = 1_000;
const MAX_MS = 10;

/**
 * Takes a turn of the event loop every 1,000 entries or 10 ms, so that an agent that never waits does not block timers
 * and sockets.
 */
export class Pacer {
  readonly #clock: Clock;
  #entries = 0;
  #since = 0;
  #turn: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts an entry. A promise: wait for it before the next one. */
  count(at: number): undefined | Promise<void> {
    if (this.#turn !== undefined) return this.#turn;
    if (this.#entries++ === 0) this.#since = at;
    if (this.#entries < MAX_ENTRIES && at - this.#since < MAX_MS) return undefined;
    const turn = this.#clock.turn().then(() => {
      this.#entries = 0;
      this.#turn = undefined;
    });
    this.#turn = turn;
    return turn;
  }
}
