import { TenantCounts } from "../../core/tenants.ts";

/**
 * Counts the slots that are taken, and queues the runs that wait for one. A slot's key names an agent, or one of its
 * tenants or sessions.
 */
export class Slots {
  readonly #pools = new Map<string, Pool>();
  /** How many runs wait for a slot. */
  readonly queued = new TenantCounts();

  /** Whether a slot is free. */
  isFree(key: string, max: number): boolean {
    return (this.#pools.get(key)?.taken ?? 0) < max;
  }

  /**
   * Takes a slot for a run of a tenant and calls back, now or when one is free. The returned function leaves the queue.
   * Undefined: the slot was free.
   */
  take(key: string, max: number, tenant: string, callback: () => void): (() => void) | undefined {
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
    const waiting: Waiting = { tenant, callback };
    pool.queue.push(waiting);
    this.queued.add(tenant, 1);
    return () => {
      if (waiting.callback === undefined) return;
      waiting.callback = undefined;
      this.queued.add(tenant, -1);
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
    const { tenant, callback } = next;
    next.callback = undefined;
    this.queued.add(tenant, -1);
    callback?.();
  }
}

interface Pool {
  taken: number;
  queue: Waiting[];
  next: number;
}

interface Waiting {
  readonly tenant: string;
  /** Undefined when the run has the slot, or has left the queue. */
  callback: (() => void) | undefined;
}

/** Takes the run that waits longest out of the queue. Runs that have left the queue are skipped. */
function nextIn(pool: Pool): Waiting | undefined {
  for (;;) {
    const waiting = pool.queue[pool.next];
    if (waiting === undefined) return undefined;
    pool.next += 1;
    if (2 * pool.next > pool.queue.length) {
      pool.queue = pool.queue.slice(pool.next);
      pool.next = 0;
    }
    if (waiting.callback !== undefined) return waiting;
  }
}
