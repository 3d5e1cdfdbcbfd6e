/**
 * Holds an agent until the test asks for the next thing. It opens for one thing or for several. What the agent emits
 * closes it again. An agent that reaches a closed gate waits.
 */
export class Gate {
  #isOpen = false;
  #isFree = false;
  #credit = 0;
  #waiting: (() => void)[] = [];

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Lets the agent go on until it has emitted so many things. */
  open(things = 1): void {
    this.#credit = things;
    this.#isOpen = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const goOn of waiting) goOn();
  }

  /** Called when the agent has emitted something. */
  close(): void {
    this.#credit -= 1;
    if (!this.#isFree && this.#credit <= 0) this.#isOpen = false;
  }

  /** Lets the agent go on until `hold` is called. */
  free(): void {
    this.#isFree = true;
    this.open();
  }

  /** Holds the agent from its next pass on. */
  hold(): void {
    this.#isFree = false;
    this.#isOpen = false;
  }

  /** Undefined: the gate is open. A promise: resolves once it opens. */
  pass(): undefined | Promise<void> {
    if (this.#isOpen) return undefined;
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }
}
