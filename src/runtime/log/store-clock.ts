import type { Clock, Store } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";

/** By how much the time may be corrected before the waits for a time are measured again, in milliseconds. */
const TOLERANCE_MS = 20;

/** After how long without an answer the store is asked again, in milliseconds. */
const STALE_MS = 10_000;

/**
 * The clock of a runtime. It shows the store's time, so that the clocks of the processes do not matter: from the first
 * answer of the store on it runs with the machine's monotonic clock, and each later answer corrects it. It is behind the
 * store's clock by the time that an answer takes at most, and not ahead of it. With a store that tells no time it is the
 * machine's clock.
 */
export class StoreClock implements Clock {
  /** The machine's clock: for what is measured in this process alone. */
  readonly machine: Clock;
  readonly hold?: () => () => void;
  /** Called when the time was set: waits that were measured before are measured again. */
  onSet: (() => void) | undefined;
  readonly #store: Pick<Store, "time">;
  /** By how much the store's clock is ahead of the monotonic clock. Undefined: the store has not told its time. */
  #aheadMs: number | undefined;
  /** By how much the time was ahead of the monotonic clock when `onSet` was last called. */
  #toldMs: number;
  /** By how much the wall clock was ahead of the monotonic clock at the last answer, and when that was. */
  #wallAheadMs: number;
  #answeredAt: number;
  #asking: Promise<void> | undefined;

  constructor(machine: Clock, store: Pick<Store, "time">) {
    this.machine = machine;
    this.#store = store;
    this.#answeredAt = this.monotonic();
    this.#wallAheadMs = this.#toldMs = machine.now() - this.#answeredAt;
    if (machine.hold !== undefined) this.hold = machine.hold.bind(machine);
  }

  now(): number {
    return this.#aheadMs === undefined ? this.machine.now() : Math.floor(this.monotonic() + this.#aheadMs);
  }

  monotonic(): number {
    return this.machine.monotonic?.() ?? this.machine.now();
  }

  setTimeout(callback: () => void, delayMs: number): () => void {
    return this.machine.setTimeout(callback, delayMs);
  }

  turn(): Promise<void> {
    return this.machine.turn();
  }

  /** Whether the machine's wall clock was set since the store was last asked, or the machine has slept. */
  get isSet(): boolean {
    return Math.abs(this.machine.now() - this.monotonic() - this.#wallAheadMs) > TOLERANCE_MS;
  }

  /**
   * Asks the store for its time. Rejects if the store fails. Undefined: it has answered at once, or tells no time.
   */
  ask(): undefined | Promise<void> {
    if (this.#asking !== undefined) return this.#asking;
    const askedAt = this.monotonic();
    const time: MaybePromise<number | undefined> = this.#store.time?.();
    if (!isPromise(time)) {
      this.onAnswer(time, askedAt);
      return undefined;
    }
    this.#asking = time
      .then((answer) => this.onAnswer(answer, askedAt))
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }

  /**
   * Resolves when the store has told its time for the first time. Rejects if the store fails. Undefined: it has, or tells
   * none.
   */
  ready(): undefined | Promise<void> {
    if (this.#store.time === undefined) return undefined;
    if (this.#aheadMs === undefined) return this.ask();
    if (this.monotonic() - this.#answeredAt > STALE_MS) this.ask()?.catch(ignore);
    return undefined;
  }

  /** The store has told its time, or tells none. `askedAt`: when it was asked, by the monotonic clock. */
  onAnswer(time: number | undefined, askedAt: number): void {
    this.#answeredAt = this.monotonic();
    this.#wallAheadMs = this.machine.now() - this.#answeredAt;
    if (time !== undefined) {
      // The store has read its clock at some time between the two.
      const least = time - this.#answeredAt;
      const most = time - askedAt;
      if (this.#aheadMs === undefined || this.#aheadMs < least || this.#aheadMs > most) this.#aheadMs = least;
    }
    const aheadMs = this.#aheadMs ?? this.#wallAheadMs;
    if (Math.abs(aheadMs - this.#toldMs) <= TOLERANCE_MS) return;
    this.#toldMs = aheadMs;
    this.onSet?.();
  }
}
