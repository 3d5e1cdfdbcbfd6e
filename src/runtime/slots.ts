/** Counts who is at work, and queues up who wants to be. A slot has a key: an agent's name, or one of its sessions. */
export class Slots {
  readonly #pools = new Map<string, Pool>();
  #queued = 0;

  /** How many wait for a slot. */
  get queued(): number {
    return this.#queued;
  }

  /** Whether there is a slot at once. */
  isFree(key: string, max: number): boolean {
    return (this.#pools.get(key)?.taken ?? 0) < max;
  }

  /** Takes a slot and calls back, now or when there is one. The answer leaves the queue again; undefined: there was no need to queue up. */
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

  /** Gives a slot back; whoever waits longest takes it over, if no more slots are taken than there are. */
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
  /** Undefined once the slot is taken, or not wanted any more. */
  callback: (() => void) | undefined;
}

/** Takes whoever waits longest out of the queue, and passes over those that have left it. */
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
