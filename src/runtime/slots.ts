/**
 * Counts the slots that are taken, and queues the runs that wait for one. A slot's key names an agent, or one of its
 * tenants or sessions.
 */
export class Slots {
  readonly #pools = new Map<string, Pool>();
  #queued = 0;

  /** How many runs wait for a slot. */
  get queued(): number {
    return this.#queued;
  }

  /** Whether a slot is free. */
  isFree(key: string, max: number): boolean {
    return (this.#pools.get(key)?.taken ?? 0) < max;
  }

  /**
   * Takes a slot and calls back, now or when one is free. The returned function leaves the queue. Undefined: the slot
   * was free.
   */
  take(key: string, max: number, callback: () => void): (() => void) | undefined {
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = { taken: 0, queue: [], next: 0 };
      this.#pools.set(key, pool);
    }
    if (pool.taken < max) {
      pool.taken += 1;
      callback();
      return undefined;
    }
    const waiting: Waiting = { callback };
    pool.queue.push(waiting);
    this.#queued += 1;
    return () => {
      if (waiting.callback === undefined) return;
      waiting.callback = undefined;
      this.#queued -= 1;
    };
  }

  /** Gives a slot back. The run that waits longest gets it, unless more than `max` slots are taken. */
  give(key: string, max: number): void {
    const pool = this.#pools.get(key);
    if (pool === undefined) return;
    const next = pool.taken > max ? undefined : nextIn(pool);
    if (next === undefined) {
      pool.taken -= 1;
      if (pool.taken === 0) this.#pools.delete(key);
      return;
    }
    this.#queued -= 1;
    next();
  }
}

interface Pool {
  taken: number;
  queue: Waiting[];
  next: number;
}

interface Waiting {
  /** Undefined when the run has the slot, or has left the queue. */
  callback: (() => void) | undefined;
}

/** Takes the run that waits longest out of the queue. Runs that have left the queue are skipped. */
function nextIn(pool: Pool): (() => void) | undefined {
  for (;;) {
    const waiting = pool.queue[pool.next];
    if (waiting === undefined) return undefined;
    pool.next += 1;
    if (2 * pool.next > pool.queue.length) {
      pool.queue = pool.queue.slice(pool.next);
      pool.next = 0;
    }
    const { callback } = waiting;
    waiting.callback = undefined;
    if (callback !== undefined) return callback;
  }
}
