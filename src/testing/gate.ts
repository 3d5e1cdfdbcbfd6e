/**
 * What holds an agent until the test asks for the next thing. It opens for one thing or for several, and what the agent shows closes
 * it again; whoever comes to a closed gate waits.
 */
export class Gate {
  #isOpen = false;
  #isFree = false;
  #credit = 0;
  #waiting: (() => void)[] = [];

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Lets the agent go on until it has shown so many things. */
  open(things = 1): void {
    this.#credit = things;
    this.#isOpen = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const goOn of waiting) goOn();
  }

  /** The agent has shown something. */
  close(): void {
    this.#credit -= 1;
    if (!this.#isFree && this.#credit <= 0) this.#isOpen = false;
  }

  /** Lets the agent go on until it is held again. */
  free(): void {
    this.#isFree = true;
    this.open();
  }

  /** Holds the agent at the next opportunity. */
  hold(): void {
    this.#isFree = false;
    this.#isOpen = false;
  }

  /** Undefined: go on. A promise: wait. */
  pass(): undefined | Promise<void> {
    if (this.#isOpen) return undefined;
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
    });
  }
}
