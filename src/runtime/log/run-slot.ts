import type { Clock } from "../../core/ports.ts";
import type { Rate, Slot } from "../../core/slots.ts";
import { TenantCounts } from "../../core/tenants.ts";

/** The slots of one run, under the `concurrency` and the `limits` of its agent. It has all of them or none. */
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

const MIN_KEYS = 64;

/**
 * Counts the slots that are taken in this process, and queues the runs that wait for them. A run takes all of its slots at
 * once, and waits for the first of them that it cannot have. In a queue the higher priority comes first; within it those
 * take turns with whose runs a run is queued.
 */
export class Slots {
  readonly #clock: Pick<Clock, "now" | "setTimeout">;
  readonly #pools = new Map<string, Pool>();
  /** With so many keys, those are forgotten of which nothing counts any more. */
  #most = MIN_KEYS;
  /** How many runs wait for a slot. */
  readonly queued = new TenantCounts();

  constructor(clock: Pick<Clock, "now" | "setTimeout">) {
    this.#clock = clock;
  }

  /** How many slots are free. */
  free(key: string, max: number): number {
    return max - (this.#pools.get(key)?.taken ?? 0);
  }

  /** The first of the slots that a run cannot have now. Undefined: it may take them. */
  refusing(slots: readonly Slot[]): Slot | undefined {
    return this.#refusing(slots);
  }

  /**
   * Takes the slots for a run and calls back, now or when they are free. The returned function leaves the queue.
   * Undefined: the slots were free.
   */
  take(queuer: Queuer): (() => void) | undefined {
    const refusing = this.#refusing(queuer.slots);
    if (refusing === undefined) {
      this.occupy(queuer.slots);
      queuer.callback();
      return undefined;
    }
    const waiting: Waiting = { ...queuer, turn: 0 };
    this.#join(waiting, refusing);
    this.queued.add(waiting.tenant, 1);
    return () => {
      if (waiting.callback === undefined) return;
      waiting.callback = undefined;
      this.queued.add(waiting.tenant, -1);
    };
  }

  /** Takes slots even if they are not free. */
  occupy(slots: readonly Slot[]): void {
    for (const { key, rate } of slots) {
      const pool = this.#pool(key);
      pool.taken += 1;
      if (rate === undefined) continue;
      const now = this.#clock.now();
      pool.given.push(now);
      pool.until = now + rate.perMs;
    }
  }

  /** Gives slots back. The runs that wait for them get them in turn, unless more than their `max` are taken. */
  give(slots: readonly Slot[]): void {
    for (const { key } of slots) this.#pool(key).taken -= 1;
    for (const { key } of slots) this.#serve(key);
  }

  #pool(key: string): Pool {
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#pools.size >= this.#most) this.#forget();
      pool = { taken: 0, given: [], until: 0, queue: [], turn: 0, turns: new Map(), clearTimer: undefined };
      this.#pools.set(key, pool);
    }
    return pool;
  }

  /** The first of the slots that a run cannot have now. */
  #refusing(slots: readonly Slot[], but?: Pool): Slot | undefined {
    return slots.find((slot) => {
      const pool = this.#pools.get(slot.key);
      if (pool === undefined) return false;
      return !this.#has(pool, slot) || (pool !== but && pool.queue.some(({ callback }) => callback !== undefined));
    });
  }

  #has(pool: Pool, { max = Number.POSITIVE_INFINITY, rate }: Slot): boolean {
    return pool.taken < max && (rate === undefined || this.#untilGiven(pool, rate) <= 0);
  }

  /** How long it takes until a rate allows one more, in milliseconds. Forgets what does not count any more. */
  #untilGiven(pool: Pool, { count, perMs }: Rate): number {
    const before = this.#clock.now() - perMs;
    const last = pool.given.at(-count);
    if (pool.given.length > 2 * count) pool.given = pool.given.slice(-count);
    return last === undefined ? 0 : last - before;
  }

  /** A run joins a queue: in front of the lower priorities, and of later turns of its own. */
  #join(waiting: Waiting, { key }: Slot): void {
    const pool = this.#pool(key);
    const whose = JSON.stringify([waiting.priority, waiting.fair]);
    waiting.turn = Math.max(pool.turn, (pool.turns.get(whose) ?? -1) + 1);
    pool.turns.set(whose, waiting.turn);
    let [from, to] = [0, pool.queue.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      const other = pool.queue[middle];
      if (other !== undefined && isBefore(waiting, other)) to = middle;
      else from = middle + 1;
    }
    pool.queue.splice(from, 0, waiting);
    if (pool.queue[0] === waiting) this.#serveLater(pool, waiting, key);
  }

  /** Gives slots to the first runs of a queue, as long as they can have them. A run that lacks another slot waits for that. */
  #serve(key: string): void {
    const pool = this.#pool(key);
    for (let first = pool.queue[0]; first !== undefined; first = pool.queue[0]) {
      const { callback, slots } = first;
      const own = slots.find((slot) => slot.key === key);
      if (callback !== undefined && own !== undefined) {
        if (!this.#has(pool, own)) {
          this.#serveLater(pool, first, key);
          return;
        }
        const refusing = this.#refusing(slots, pool);
        pool.queue.shift();
        pool.turn = Math.max(pool.turn, first.turn);
        if (refusing === undefined) {
          first.callback = undefined;
          this.queued.add(first.tenant, -1);
          this.occupy(slots);
          callback();
        } else this.#join(first, refusing);
      } else pool.queue.shift();
    }
    pool.turns.clear();
    if (pool.taken === 0 && pool.given.length === 0 && this.#pools.get(key) === pool) this.#pools.delete(key);
  }

  #forget(): void {
    const now = this.#clock.now();
    for (const [key, pool] of this.#pools)
      if (pool.taken === 0 && pool.queue.length === 0 && pool.until <= now) this.#pools.delete(key);
    this.#most = Math.max(MIN_KEYS, 2 * this.#pools.size);
  }

  /** If a rate alone keeps the first of a queue waiting, the queue is served when the rate allows one more. */
  #serveLater(pool: Pool, { slots }: Waiting, key: string): void {
    const rate = slots.find((slot) => slot.key === key)?.rate;
    if (rate === undefined || pool.clearTimer !== undefined) return;
    pool.clearTimer = this.#clock.setTimeout(
      () => {
        pool.clearTimer = undefined;
        this.#serve(key);
      },
      Math.max(1, this.#untilGiven(pool, rate)),
    );
  }
}

/** A run that asks for slots of this process. */
interface Queuer {
  readonly slots: readonly Slot[];
  readonly tenant: string;
  readonly priority: number;
  /** With whose runs it takes turns. */
  readonly fair: string;
  readonly callback: () => void;
}

interface Pool {
  taken: number;
  /** When a rate was given, the last ones. */
  given: number[];
  /** Until when the last one counts. */
  until: number;
  queue: Waiting[];
  /** The turn of the last run that has left the queue. */
  turn: number;
  /** The turns of those that have joined last, by priority and with whose runs they take turns. */
  readonly turns: Map<string, number>;
  clearTimer: (() => void) | undefined;
}

interface Waiting extends Omit<Queuer, "callback"> {
  turn: number;
  /** Undefined when the run has its slots, or has left the queue. */
  callback: (() => void) | undefined;
}

function isBefore(one: Waiting, other: Waiting): boolean {
  return one.priority > other.priority || (one.priority === other.priority && one.turn < other.turn);
}

/** Slots of this process: no other one knows of them. */
export class LocalSlot extends RunSlot {
  readonly #pools: Slots;
  readonly #run: Omit<Queuer, "slots" | "callback">;
  /** A rate counts a run once: with the first slots that it takes. */
  #slots: readonly Slot[];
  /** `taken`: the run has the slots. A function: it takes the run out of the queue. Undefined: the run is not in the queue. */
  #place: "taken" | (() => void) | undefined;

  constructor(pools: Slots, slots: readonly Slot[], run: Omit<Queuer, "slots" | "callback">, per: string | undefined) {
    super(per);
    this.#pools = pools;
    this.#slots = slots;
    this.#run = run;
  }

  override get isHeld(): boolean {
    return this.#place === "taken";
  }

  override get needsMemory(): boolean {
    return this.isKept;
  }

  protected override request(): void {
    const leaveQueue = this.#pools.take({
      ...this.#run,
      slots: this.#slots,
      callback: () => {
        this.#onTaken();
        this.goOn();
      },
    });
    if (leaveQueue !== undefined) this.#place = leaveQueue;
  }

  #onTaken(): void {
    this.#place = "taken";
    if (this.#slots.some(({ rate }) => rate !== undefined))
      this.#slots = this.#slots.map(({ key, max }) => ({ key, max }));
  }

  /** Takes a slot even if none is free. */
  override occupy(callback: () => void): void {
    this.#pools.occupy(this.#slots);
    this.#onTaken();
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
    if (place === "taken") this.#pools.give(this.#slots);
    else place?.();
  }
}
