import type { Slots } from "./slots.ts";

/** The slot of one run among those of its agent, or of its session, that may work at once. */
export class RunSlot {
  /** Whether the slot is needed by now: one is taken as soon as the run is accepted, and its agent begins later. */
  mayBegin = false;
  readonly #slots: Slots;
  readonly #key: string;
  readonly #max: number;
  #isTaken = false;
  /** What goes on as soon as there is a slot. */
  #waiting: (() => void)[] = [];
  /** While the run waits for its slot: takes it out of the queue. */
  #leaveQueue: (() => void) | undefined;
  /** Called when the run leaves the queue, with a slot or without. */
  #onUnqueued: (() => void)[] = [];

  constructor(slots: Slots, key: string, max: number) {
    this.#slots = slots;
    this.#key = key;
    this.#max = max;
  }

  get isQueued(): boolean {
    return this.#leaveQueue !== undefined;
  }

  /** Resolves when the run waits for its slot no longer. Undefined: it does not. */
  unqueued(): undefined | Promise<void> {
    if (!this.isQueued) return undefined;
    return new Promise((resolve) => {
      this.#onUnqueued.push(resolve);
    });
  }

  /** Calls back with the slot taken, now or when there is one. */
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

  /** Takes the slot, whether it is free or not: the run is at work already. */
  occupy(): void {
    this.#slots.take(this.#key, Number.POSITIVE_INFINITY, () => {
      this.#isTaken = true;
    });
  }

  /** The run waits, and gives its slot back. What was to go on goes on beside that, as steps do, and needs none. */
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
