import { TenantCounts } from "../../core/tenants.ts";

/** The slot of one run under its agent's `concurrency`. */
export abstract class RunSlot {
  readonly #per: string | undefined;
  /** What waits for the slot, and continues without it as soon as the run waits for something else. */
  #waiting: (() => void)[] = [];
  /** The step bodies that wait for the slot. None begins without it. */
  #bodies: (() => void)[] = [];
  /** Called when the run leaves the queue, with a slot or without. */
  #onUnqueued: (() => void)[] = [];

  /** `per`: what the agent's `concurrency` counts for. */
  constructor(per: string | undefined) {
    this.#per = per;
  }

  /** Whether the run keeps the slot while it waits: the others of its session wait for it. */
  get isKept(): boolean {
    return this.#per === "session";
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

  /** The run has its slot: what has waited for it continues. */
  goOn(): void {
    const bodies = this.#bodies;
    this.#bodies = [];
    this.goOnWithout();
    for (const callback of bodies) callback();
  }

  /** The run needs no slot for what it does outside its steps. */
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

/**
 * Counts the slots that are taken, and queues the runs that wait for one. A slot's key names an agent, or one of its
 * tenants or sessions.
 */
export class Slots {
  readonly #pools = new Map<string, Pool>();
  /** How many runs wait for a slot. */
  readonly queued = new TenantCounts();

  /** How many slots are free. */
  free(key: string, max: number): number {
    return max - (this.#pools.get(key)?.taken ?? 0);
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

/** A slot of this process: no other one knows of it. */
export class LocalSlot extends RunSlot {
  readonly #slots: Slots;
  readonly #key: string;
  readonly #max: number;
  readonly #tenant: string;
  /** `taken`: the run has the slot. A function: it takes the run out of the queue. Undefined: the run is not in the queue. */
  #place: "taken" | (() => void) | undefined;

  constructor(
    slots: Slots,
    key: string,
    { max, per }: { readonly max: number; readonly per?: string | undefined },
    tenant: string,
  ) {
    super(per);
    this.#slots = slots;
    this.#key = key;
    this.#max = max;
    this.#tenant = tenant;
  }

  override get isHeld(): boolean {
    return this.#place === "taken";
  }

  override get needsMemory(): boolean {
    return this.isKept;
  }

  protected override request(): void {
    const leaveQueue = this.#slots.take(this.#key, this.#max, this.#tenant, () => {
      this.#place = "taken";
      this.goOn();
    });
    if (leaveQueue !== undefined) this.#place = leaveQueue;
  }

  /** Takes a slot even if none is free. */
  override occupy(callback: () => void): void {
    this.#slots.take(this.#key, Number.POSITIVE_INFINITY, this.#tenant, () => {
      this.#place = "taken";
    });
    callback();
  }

  override onCommit(waits: boolean): void {
    if (!waits || this.isKept) return;
    this.giveBack();
    this.goOnWithout();
  }

  protected override giveBack(): void {
    const place = this.#place;
    this.#place = undefined;
    if (place === "taken") this.#slots.give(this.#key, this.#max);
    else place?.();
  }
}
