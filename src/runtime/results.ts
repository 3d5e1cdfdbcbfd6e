import type { Entry, ResultEntry } from "../core/log.ts";
import { resultKey } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";

/** A recorded operation: an ask, a step or a sub-run. It has a key, work that begins it, and a result that ends it. */
export interface Operation {
  readonly key: string;
  /** Begins the work. Called once, and only where the log does not hold the result already. */
  start(): void;
  /** Makes what the agent gets out of the entry that holds the result. `live` is what the log cannot hold, when the work was done here and now. */
  settle(entry: ResultEntry, live: unknown): unknown;
  /** Hands the agent what it gets. */
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** What an agent that is run again meets before it does anything new. */
export interface Replay {
  /** The recorded results, in log order. */
  readonly results: readonly ResultEntry[];
  /** The operations that were begun, each with the position of its first entry in the log: the agent has to ask for them again. */
  readonly begun: ReadonlyMap<string, number>;
  /** The question that is shown: asking it again takes it up. */
  readonly shown: string | undefined;
  /** What the agent has yet to show again before anything new begins. */
  unshown(): Missing | undefined;
  /** Everything that was recorded has happened again: what is new begins. */
  onCaughtUp(): void;
  /** Nothing has happened in a while although the log holds more; with undefined it has happened after all. */
  onStall(missing: Missing | undefined, asked: readonly string[]): void;
}

/** What the log holds and the agent has not done again. */
export interface Missing {
  /** In words. */
  readonly what: string;
  /** Of the entry that the agent has not come to. */
  readonly position: number;
}

/** How long the agent may take to ask for what the log holds next, in milliseconds, before that is reported. */
const STALL_MS = 5_000;

/**
 * Hands operations their results. A result is always an entry of the log, whether it was recorded by an earlier
 * incarnation of the agent or has only now been committed: the two are one queue. With `paced`, for durable agents,
 * results are handed over one at a time, in log order, each in a turn of the event loop of its own. An agent that is run
 * again then meets them in the same order, and `Promise.race` has the same winner. Until it has caught up with the log, no new work begins.
 */
export class Results {
  readonly #clock: Clock;
  readonly #paced: boolean;
  readonly #keys = new Keys();
  /** The operations that have no result yet: the first by itself, since most runs have one at a time. */
  #only: Operation | undefined;
  #waiting: Map<string, Operation> | undefined;
  /** Results to hand over: first those that were recorded, then those of live work. */
  #queue: Delivery[] | undefined;
  #next = 0;
  #delivering = false;
  /** What the agent itself waits for. */
  #held: Promise<void> | undefined;
  /** Called when there is nothing more to hand over. */
  #onIdle: (() => void)[] | undefined;
  #replaying: Replaying | undefined;
  /** Why nothing is handed over any more. */
  #closed: (() => Error) | "dropped" | undefined;

  constructor(clock: Clock, paced: boolean, replay?: Replay) {
    this.#clock = clock;
    this.#paced = paced;
    if (replay === undefined) return;
    this.#queue = replay.results.map((entry) => ({ key: resultKey(entry) ?? "", entry, live: undefined }));
    if (this.#queue.length === 0) this.#queue = undefined;
    const recorded = new Set(this.#queue?.map(({ key }) => key));
    this.#replaying = new Replaying(clock, replay, recorded, () => this.open);
    this.#replaying.watch();
  }

  /** The key of the next operation of this name: `name#1`, `name#2`, … */
  keyFor(name: string): string {
    return this.#keys.next(name);
  }

  /** The operations that have no result yet. */
  get open(): readonly string[] {
    const first = this.#only === undefined ? [] : [this.#only.key];
    return [...first, ...(this.#waiting?.keys() ?? [])];
  }

  /** Whether the agent is still on its way through its log. */
  get isReplaying(): boolean {
    return this.#replaying !== undefined;
  }

  /** What the log holds next and the agent has not done again. */
  get missing(): Missing | undefined {
    return this.#replaying?.missing;
  }

  /** Whether the agent has had its turn with all that it was handed, and nothing more is about to be. */
  get isIdle(): boolean {
    if (this.#closed !== undefined) return true;
    return !this.#delivering && this.#held === undefined && this.#replaying === undefined;
  }

  /** Resolves the next time that there is nothing more to hand over. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#onIdle ??= [];
      this.#onIdle.push(resolve);
    });
  }

  /** The agent has done something that it did before. One that finds nothing recorded has caught up soon. */
  advance(): void {
    if (!this.#delivering) void this.#deliverAll();
  }

  /** Begins an operation. */
  perform(operation: Operation): void {
    if (this.#closed !== undefined) {
      if (this.#closed !== "dropped") operation.reject(this.#closed());
      return;
    }
    this.#add(operation);
    const replaying = this.#replaying;
    if (replaying === undefined || replaying.takesUp(operation)) operation.start();
    if (replaying !== undefined) this.advance();
  }

  /** Takes the entry that holds an operation's result. */
  deliver(entry: Entry, live?: unknown): void {
    const key = resultKey(entry);
    if (key === undefined || this.#closed !== undefined || this.#replaying?.isRecorded(key) === true) return;
    const delivery: Delivery = { key, entry: entry as ResultEntry, live };
    if (!this.#paced) {
      void this.#handOver(delivery);
      return;
    }
    this.#queue ??= [];
    this.#queue.push(delivery);
    this.advance();
  }

  /** Hands nothing over until then: what the agent does with one result comes before the next. */
  holdUntil(wait: Promise<void>): Promise<void> {
    const held = this.#held === undefined ? wait : this.#held.then(() => wait);
    this.#held = held;
    this.advance();
    return held;
  }

  async #release(held: Promise<void>): Promise<void> {
    await held;
    await this.#clock.turn();
    if (this.#held === held) this.#held = undefined;
  }

  /** Fails one operation that can have no result. */
  reject(key: string, error: unknown): void {
    this.#remove(key)?.reject(error);
  }

  /** Fails all that is open, and all that comes. */
  close(reason: () => Error): void {
    this.#closed = reason;
    this.#replaying?.stop();
    const open = [this.#only, ...(this.#waiting?.values() ?? [])];
    this.#letGo();
    for (const operation of open) operation?.reject(reason());
  }

  /** Leaves everything as it is: whoever waits waits for ever. */
  drop(): void {
    this.#closed = "dropped";
    this.#replaying?.stop();
    this.#letGo();
  }

  #letGo(): void {
    this.#only = undefined;
    this.#waiting = undefined;
    this.#queue = undefined;
    this.#next = 0;
    this.#tellIdle();
  }

  #tellIdle(): void {
    const waiting = this.#onIdle;
    this.#onIdle = undefined;
    for (const resolve of waiting ?? []) resolve();
  }

  #add(operation: Operation): void {
    if (this.#only === undefined) {
      this.#only = operation;
      return;
    }
    this.#waiting ??= new Map();
    this.#waiting.set(operation.key, operation);
  }

  #has(key: string): boolean {
    return this.#only?.key === key || this.#waiting?.has(key) === true;
  }

  #remove(key: string): Operation | undefined {
    const only = this.#only;
    if (only?.key === key) {
      this.#only = undefined;
      return only;
    }
    const operation = this.#waiting?.get(key);
    this.#waiting?.delete(key);
    return operation;
  }

  /** Hands over what can be handed over, a turn apart. An agent has caught up when, a turn after the last result, there is nothing that it has yet to do again. */
  async #deliverAll(): Promise<void> {
    this.#delivering = true;
    for (;;) {
      await this.#clock.turn();
      // One that goes on showing more and more has nothing left to do again either.
      while (this.#held !== undefined && !this.#isThrough) await this.#release(this.#held);
      if (this.#closed !== undefined) return;
      const delivery = this.#deliverable();
      if (delivery === undefined) {
        if (!this.#isThrough) break;
        this.#catchUp();
        continue;
      }
      this.#forgetDelivered();
      this.#replaying?.watch();
      const settled = this.#handOver(delivery);
      if (settled !== undefined) await settled;
    }
    this.#delivering = false;
    this.#tellIdle();
  }

  /** Whether an agent that is run again has nothing left to do again. */
  get #isThrough(): boolean {
    return this.#replaying !== undefined && this.#queue === undefined && this.#replaying.missing === undefined;
  }

  /** The next result, if it has been asked for. A live one that nobody waits for is passed over. */
  #deliverable(): Delivery | undefined {
    for (;;) {
      const delivery = this.#queue?.[this.#next];
      if (delivery === undefined) return undefined;
      if (this.#has(delivery.key)) return delivery;
      if (this.#replaying !== undefined) return undefined;
      this.#forgetDelivered();
    }
  }

  #forgetDelivered(): void {
    this.#next += 1;
    if (this.#queue !== undefined && this.#next < this.#queue.length) return;
    this.#queue = undefined;
    this.#next = 0;
  }

  #catchUp(): void {
    const replaying = this.#replaying;
    this.#replaying = undefined;
    replaying?.end();
  }

  #handOver({ key, entry, live }: Delivery): undefined | Promise<void> {
    const operation = this.#remove(key);
    if (operation === undefined) return undefined;
    let value: MaybePromise<unknown>;
    try {
      value = operation.settle(entry, live);
    } catch (error) {
      operation.reject(error);
      return undefined;
    }
    if (isPromise(value)) {
      return value.then(
        (later) => operation.resolve(later),
        (error: unknown) => operation.reject(error),
      );
    }
    operation.resolve(value);
    return undefined;
  }
}

interface Delivery {
  readonly key: string;
  readonly entry: ResultEntry;
  readonly live: unknown;
}

/** Numbers operations by name. The first name has no table entry, since most agents use one. */
class Keys {
  #first: string | undefined;
  #firstCount = 0;
  #others: Map<string, number> | undefined;

  next(name: string): string {
    this.#first ??= name;
    if (name === this.#first) return `${name}#${++this.#firstCount}`;
    this.#others ??= new Map();
    const occurrence = (this.#others.get(name) ?? 0) + 1;
    this.#others.set(name, occurrence);
    return `${name}#${occurrence}`;
  }
}

/** An agent on its way through its log, until it has caught up. */
class Replaying {
  readonly replay: Replay;
  readonly #clock: Clock;
  readonly #recorded: ReadonlySet<string>;
  /** What the agent has begun and not asked for again, in log order. */
  readonly #missing: Map<string, number>;
  /** Operations whose results the log does not hold. */
  #held: Operation[] = [];
  /** The operations that the agent waits for. */
  readonly #open: () => readonly string[];
  #clearStall: (() => void) | undefined;
  #stalled = false;

  constructor(clock: Clock, replay: Replay, recorded: ReadonlySet<string>, open: () => readonly string[]) {
    this.#clock = clock;
    this.#open = open;
    this.replay = replay;
    this.#recorded = recorded;
    this.#missing = new Map(replay.begun);
  }

  isRecorded(key: string): boolean {
    return this.#recorded.has(key);
  }

  /** What comes first in the log of all that the agent has not done again. */
  get missing(): Missing | undefined {
    const unshown = this.replay.unshown();
    for (const [key, position] of this.#missing) {
      if (unshown !== undefined && unshown.position < position) return unshown;
      return { what: this.#recorded.has(key) ? `the result of ${key}` : key, position };
    }
    return unshown;
  }

  /** Whether the operation takes up what is shown. What is recorded needs no start, and what is new has to wait. */
  takesUp(operation: Operation): boolean {
    this.#missing.delete(operation.key);
    if (this.#recorded.has(operation.key)) return false;
    if (operation.key === this.replay.shown) return true;
    this.#held.push(operation);
    return false;
  }

  /** The agent gets on: from now on it has its time again. */
  watch(): void {
    this.#clearStall?.();
    if (this.#stalled) this.replay.onStall(undefined, []);
    this.#stalled = false;
    this.#clearStall = this.#clock.setTimeout(() => {
      const { missing } = this;
      if (missing === undefined) return;
      this.#stalled = true;
      this.replay.onStall(missing, this.#open());
    }, STALL_MS);
  }

  stop(): void {
    this.#clearStall?.();
    this.#held = [];
  }

  /** The agent has caught up: what is new begins, unless it is stopped now. */
  end(): void {
    this.#clearStall?.();
    if (this.#stalled) this.replay.onStall(undefined, []);
    this.replay.onCaughtUp();
    for (const operation of this.#held) operation.start();
  }
}
