/** The slot of one run under its agent's `concurrency`. */
export abstract class RunSlot {
  /**
   * Whether the agent may begin when it has the slot. The slot is taken when the run is accepted, and the agent begins
   * after the commit.
   */
  mayBegin = false;
  /** Whether the run keeps the slot while it waits: the others of its session wait for it. */
  readonly isKept: boolean;
  /** What waits for the slot, and goes on without it as soon as the run waits for something else. */
  #waiting: (() => void)[] = [];
  /** The step bodies that wait for the slot. None begins without it. */
  #bodies: (() => void)[] = [];
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
  /** The run was written, or a step body has ended. `waits`: no step is at work, and the run waits for something else. */
  abstract onCommit(waits: boolean): void;

  get isQueued(): boolean {
    return this.#waiting.length > 0 || this.hasQueuedBodies;
  }

  /** Whether a step body waits for the slot. */
  get hasQueuedBodies(): boolean {
    return this.#bodies.length > 0;
  }

  /** Resolves when the agent has left the queue. Undefined: it is not in the queue, though step bodies may be. */
  unqueued(): undefined | Promise<void> {
    if (this.#waiting.length === 0) return undefined;
    return new Promise((resolve) => {
      this.#onUnqueued.push(resolve);
    });
  }

  /** Takes the slot and calls back, now or when one is free, or when the run waits for something else. */
  take(callback: () => void): void {
    this.#queue(this.#waiting, callback);
  }

  /** Takes the slot for a step body. Undefined: the run holds it. A promise: it resolves with the slot. */
  takeForBody(): undefined | Promise<void> {
    if (this.isHeld) return undefined;
    return new Promise((resolve) => this.#queue(this.#bodies, resolve));
  }

  #queue(queue: (() => void)[], callback: () => void): void {
    if (this.isHeld) {
      callback();
      return;
    }
    const isFirst = !this.isQueued;
    queue.push(callback);
    if (isFirst) this.request();
  }

  /** Gives the slot back, or leaves the queue for it. */
  give(): void {
    this.#waiting = [];
    this.#bodies = [];
    this.#tellUnqueued();
    this.giveBack();
  }

  /** The run has its slot: what has waited for it goes on. */
  goOn(): void {
    const bodies = this.#bodies;
    this.#bodies = [];
    this.goOnWithout();
    for (const callback of bodies) callback();
  }

  /** The run needs no slot for what it does beside its steps. */
  protected goOnWithout(): void {
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
