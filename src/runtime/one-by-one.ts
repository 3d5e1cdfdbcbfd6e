/** Does what leads to more of its kind: that is done afterwards, and not within, since chains of it are long and the stack is not. */
export class OneByOne {
  #queue: (() => void)[] | undefined;

  /** Does it now, or after what is being done. */
  do(work: () => void): void {
    if (this.#queue !== undefined) {
      this.#queue.push(work);
      return;
    }
    const queue = [work];
    this.#queue = queue;
    let done = 0;
    try {
      for (const next of queue) {
        done += 1;
        next();
      }
    } finally {
      this.#queue = undefined;
      // Only if it threw there is a rest.
      for (const rest of queue.slice(done)) this.do(rest);
    }
  }
}
