import type { ConcurrencyOptions } from "./agent.ts";
import type { Slots } from "./slots.ts";

/** The slot of one run under its agent's `concurrency`. */
export class RunSlot {
  /**
   * Whether the agent may begin when it has the slot. The slot is taken when the run is accepted, and the agent begins
   * after the commit.
   */
  mayBegin = false;
  readonly #slots: Slots;
  readonly #key: string;
  readonly #max: number;
  #isTaken = false;
  /** The callbacks that wait for the slot. */
  #waiting: (() => void)[] = [];
  /** Takes the run out of the queue. Undefined: it is not in the queue. */
  #leaveQueue: (() => void) | undefined;
  /** Called when the run leaves the queue, with a slot or without. */
  #onUnqueued: (() => void)[] = [];

  /** Whether the run keeps the slot while it waits: the others of its session wait for it. */
  readonly isKept: boolean;

  constructor(slots: Slots, key: string, { max, per }: ConcurrencyOptions) {
    this.#slots = slots;
    this.#key = key;
    this.#max = max;
    this.isKept = per === "session";
  }

  get isQueued(): boolean {
    return this.#leaveQueue !== undefined;
  }

  /** Resolves when the run has left the queue. Undefined: it is not in the queue. */
  unqueued(): undefined | Promise<void> {
    if (!this.isQueued) return undefined;
    return new Promise((resolve) => {
      this.#onUnqueued.push(resolve);
    });
  }

  /** Takes the slot and calls back, now or when one is free. */
  take(callback: () => void): void {
    if (this.#isTaken) {
      callback();
      return;
    }
    this.#waiting.push(callback);
    if (this.isQueued) return;
    this.#leaveQueue = this.#slots.take(this.#key, this.#max, () => {
      this.#leaveQueue = undefined;
      this.#isTaken = true;
      this.#tellUnqueued();
      this.#goOn();
    });
  }

  /** Takes a slot even if none is free, because the run is active already. */
  occupy(): void {
    this.#slots.take(this.#key, Number.POSITIVE_INFINITY, () => {
      this.#isTaken = true;
    });
  }

  /**
   * The run waits for an answer, and gives its slot back. The callbacks that wait for the slot are called without it.
   */
  rest(): void {
    const waiting = this.#waiting;
    this.give();
    this.#waiting = waiting;
    this.#goOn();
  }

  /** Gives the slot back, or leaves the queue for it. */
  give(): void {
    this.#waiting = [];
    this.#leaveQueue?.();
    this.#leaveQueue = undefined;
    this.#tellUnqueued();
    if (!this.#isTaken) return;
    this.#isTaken = false;
    this.#slots.give(this.#key, this.#max);
  }

  #tellUnqueued(): void {
    const waiting = this.#onUnqueued;
    if (waiting.length === 0) return;
    this.#onUnqueued = [];
    for (const resolve of waiting) resolve();
  }

  #goOn(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const callback of waiting) callback();
  }
}
