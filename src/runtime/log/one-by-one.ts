/**
 * Runs tasks that lead to more tasks one after the other instead of nested, so that long chains do not overflow the
 * stack.
 */
export class OneByOne {
  #queue: (() => void)[] | undefined;

  /** Runs the task now, or after the tasks that are running. */
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
      // Tasks are left only if one has thrown.
      for (const rest of queue.slice(done)) this.do(rest);
    }
  }
}
