/** The slot of one run under its agent's `concurrency`. */
export abstract class RunSlot {
  /**
   * Whether the agent may begin when it has the slot. The slot is taken when the run is accepted, and the agent begins
   * after the commit.
   */
  mayBegin = false;
  /** Whether the run keeps the slot while it waits: the others of its session wait for it. */
  readonly isKept: boolean;
  /** The callbacks that wait for the slot. */
  #waiting: (() => void)[] = [];
  /** Called when the run leaves the queue, with a slot or without. */
  #onUnqueued: (() => void)[] = [];

  constructor(isKept: boolean) {
    this.isKept = isKept;
  }

  abstract get isHeld(): boolean;
  /** Whether a waiting run would lose the slot that it keeps if it left memory. */
  abstract get needsMemory(): boolean;
  /** Asks for a slot. When the run has it, {@link goOn} is called: now or later. */
  protected abstract request(): void;
  /** Gives the slot back, or asks for it no more. */
  protected abstract giveBack(): void;
  /** As {@link take}, for a run that was at work before it was loaded. */
  abstract occupy(callback: () => void): void;
  /** The run was written. `waits`: it only waits, and what waits for the slot goes on without it. */
  abstract onCommit(waits: boolean): void;

  get isQueued(): boolean {
    return this.#waiting.length > 0;
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
    if (this.isHeld) {
      callback();
      return;
    }
    this.#waiting.push(callback);
    if (this.#waiting.length === 1) this.request();
  }

  /** Gives the slot back, or leaves the queue for it. */
  give(): void {
    this.#waiting = [];
    this.#tellUnqueued();
    this.giveBack();
  }

  /** The run has its slot, or needs none: what has waited for it goes on. */
  goOn(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#tellUnqueued();
    for (const callback of waiting) callback();
  }

  #tellUnqueued(): void {
    const waiting = this.#onUnqueued;
    if (waiting.length === 0) return;
    this.#onUnqueued = [];
    for (const resolve of waiting) resolve();
  }
}
