import type { Entry, ResultEntry } from "../core/log.ts";
import { resultKey } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { Delivery, Missing, OpenOperations, Replay } from "./log-order.ts";
import { LogOrder } from "./log-order.ts";

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

/**
 * Hands operations their results. A result is always an entry of the log, whether it was recorded by an earlier
 * incarnation of the agent or has only now been committed. For durable agents a {@link LogOrder} says when.
 */
export class Results implements OpenOperations {
  readonly #order: LogOrder | undefined;
  /** The name of the first operation. */
  #firstName: string | undefined;
  /** The operation that has no result yet; with others, the first of them. */
  #only: Operation | undefined;
  /** Most runs have one operation, or one at a time. */
  #more: More | undefined;
  /** Why nothing is handed over any more. */
  #closed: (() => Error) | "dropped" | undefined;
  /** The agent is about to be given something. */
  readonly #onMove: () => void;

  /** With `paced`, for durable agents, results are handed over one at a time, in log order. */
  constructor(clock: Clock, paced: boolean, onMove: () => void, replay?: Replay) {
    this.#onMove = onMove;
    this.#order = paced ? new LogOrder(clock, this, replay) : undefined;
  }

  /** The key of the next operation of this name: `name#1`, `name#2`, … */
  keyFor(name: string): string {
    if (this.#firstName === undefined) {
      this.#firstName = name;
      return keyOf(name, 1);
    }
    const { counts } = this.#moreThanOne;
    if (counts.size === 0) counts.set(this.#firstName, 1);
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return keyOf(name, count);
  }

  /** The operations that have no result yet. */
  get open(): readonly string[] {
    const first = this.#only === undefined ? [] : [this.#only.key];
    return [...first, ...(this.#more?.others.keys() ?? [])];
  }

  isOpen(key: string): boolean {
    return this.#only?.key === key || this.#more?.others.has(key) === true;
  }

  /** Whether nothing is handed over any more. */
  get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  /** See {@link LogOrder.time}. */
  get time(): number | undefined {
    return this.#order?.time;
  }

  /** Whether the agent is still on its way through its log. */
  get isReplaying(): boolean {
    return this.#order?.isReplaying === true;
  }

  /** What the log holds next and the agent has not done again. */
  get missing(): Missing | undefined {
    return this.#order?.missing;
  }

  /** Whether the agent has had its turn with all that it was handed, and nothing more is about to be. */
  get isIdle(): boolean {
    return this.#closed !== undefined || this.#order === undefined || this.#order.isIdle;
  }

  /** Resolves the next time that there is nothing more to hand over. */
  idle(): Promise<void> {
    return this.#order?.idle() ?? Promise.resolve();
  }

  /** The agent has done something that it did before. One that finds nothing recorded has caught up soon. */
  advance(): void {
    this.#order?.advance();
  }

  /** Begins an operation. */
  perform(operation: Operation): void {
    if (this.#closed !== undefined) {
      if (this.#closed !== "dropped") operation.reject(this.#closed());
      return;
    }
    this.#add(operation);
    if (this.#order === undefined || this.#order.takesUp(operation)) operation.start();
    if (this.isReplaying) this.advance();
  }

  /** Takes the entry that holds an operation's result. */
  deliver(entry: Entry, live?: unknown): void {
    const key = resultKey(entry);
    if (key === undefined || this.#closed !== undefined) return;
    const delivery: Delivery = { key, entry: entry as ResultEntry, live };
    if (this.#order === undefined) void this.handOver(delivery);
    else this.#order.deliver(delivery);
  }

  /** Hands nothing over until then: what the agent does with one result comes before the next. */
  holdUntil(wait: Promise<void>): Promise<void> {
    return this.#order?.holdUntil(wait) ?? wait;
  }

  handOver({ key, entry, live }: Delivery): undefined | Promise<void> {
    const operation = this.#remove(key);
    if (operation === undefined) return undefined;
    let value: MaybePromise<unknown>;
    try {
      value = operation.settle(entry, live);
    } catch (error) {
      this.#reject(operation, error);
      return undefined;
    }
    if (isPromise(value)) {
      return value.then(
        (later) => this.#resolve(operation, later),
        (error: unknown) => this.#reject(operation, error),
      );
    }
    this.#resolve(operation, value);
    return undefined;
  }

  /** Fails one operation that can have no result. */
  reject(key: string, error: unknown): void {
    const operation = this.#remove(key);
    if (operation !== undefined) this.#reject(operation, error);
  }

  #resolve(operation: Operation, value: unknown): void {
    this.#onMove();
    operation.resolve(value);
  }

  #reject(operation: Operation, error: unknown): void {
    this.#onMove();
    operation.reject(error);
  }

  /** Fails all that is open, and all that comes. */
  close(reason: () => Error): void {
    const open = [this.#only, ...(this.#more?.others.values() ?? [])];
    this.#letGo(reason);
    for (const operation of open) operation?.reject(reason());
  }

  /** Leaves everything as it is: whoever waits waits for ever. */
  drop(): void {
    this.#letGo("dropped");
  }

  #letGo(closed: (() => Error) | "dropped"): void {
    this.#closed = closed;
    this.#only = undefined;
    this.#more?.others.clear();
    this.#order?.stop();
  }

  get #moreThanOne(): More {
    this.#more ??= { counts: new Map(), others: new Map() };
    return this.#more;
  }

  #add(operation: Operation): void {
    if (this.#only === undefined) {
      this.#only = operation;
      return;
    }
    this.#moreThanOne.others.set(operation.key, operation);
  }

  #remove(key: string): Operation | undefined {
    const only = this.#only;
    if (only?.key === key) {
      this.#only = undefined;
      return only;
    }
    const operation = this.#more?.others.get(key);
    this.#more?.others.delete(key);
    return operation;
  }
}

/** The operations of an agent beside its first. */
interface More {
  /** How many there were of each name. */
  readonly counts: Map<string, number>;
  /** Those without a result beside the first of them. */
  readonly others: Map<string, Operation>;
}

let lastName = "";
let lastKey = "";

/** Many runs wait for the first operation of the same name: they share the text of its key. */
function keyOf(name: string, count: number): string {
  if (count > 1) return `${name}#${count}`;
  if (name !== lastName) {
    lastName = name;
    lastKey = `${name}#1`;
  }
  return lastKey;
}
