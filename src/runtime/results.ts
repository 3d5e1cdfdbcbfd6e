import type { Entry, ResultEntry } from "../core/log.ts";
import { resultKey } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { Delivery, Missing, OpenOperations, Replay } from "./log-order.ts";
import { LogOrder } from "./log-order.ts";

/**
 * An operation of an agent: a question, a step or a sub-run. It has a key, work that begins it, and an entry with its
 * result.
 */
export interface Operation {
  readonly key: string;
  /** Begins the work. Called once, unless the log holds the result. */
  start(): void;
  /**
   * Makes the value for the agent from the entry with the result. `live` is the part of a new result that the log
   * cannot hold.
   */
  settle(entry: ResultEntry, live: unknown): unknown;
  /** Hands the agent the value. */
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * Hands operations their results. A result is always an entry of the log: one of the history, or one that has just been
 * committed. For durable agents a {@link LogOrder} decides when.
 */
export class Results implements OpenOperations {
  readonly #order: LogOrder | undefined;
  /** The name of the first operation. */
  #firstName: string | undefined;
  /** The operation without a result; with several, the first of them. */
  #only: Operation | undefined;
  /** Undefined for most runs, which have one operation. */
  #more: More | undefined;
  /** Set when nothing is handed over any more. */
  #closed: (() => Error) | "dropped" | undefined;
  /** Called before the agent receives something. */
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

  /** The keys of the operations without a result. */
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

  /** Whether the agent is being replayed. */
  get isReplaying(): boolean {
    return this.#order?.isReplaying === true;
  }

  /** What the history holds next and the agent has not done again. */
  get missing(): Missing | undefined {
    return this.#order?.missing;
  }

  /** Whether the agent has had its turn with all results, and no other result is ready. */
  get isIdle(): boolean {
    return this.#closed !== undefined || this.#order === undefined || this.#order.isIdle;
  }

  /** Resolves the next time that no result is ready. */
  idle(): Promise<void> {
    return this.#order?.idle() ?? Promise.resolve();
  }

  /**
   * The replayed agent has done something again. If its history is at its end, the agent catches up in a later turn.
   */
  advance(): void {
    this.#order?.advance();
  }

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

  /** Hands nothing over until the promise resolves, so that the agent finishes with one result before the next. */
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

  /** Fails one operation. */
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

  /** Fails all open operations, and all later ones. */
  close(reason: () => Error): void {
    const open = [this.#only, ...(this.#more?.others.values() ?? [])];
    this.#letGo(reason);
    for (const operation of open) operation?.reject(reason());
  }

  /** Leaves all operations pending for ever. */
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

/** The operations of an agent after its first. */
interface More {
  /** How many operations of each name have begun. */
  readonly counts: Map<string, number>;
  /** The operations without a result, except `#only`. */
  readonly others: Map<string, Operation>;
}

let lastName = "";
let lastKey = "";

/** Saves memory: the many runs that wait for the first operation of the same name share the string of its key. */
function keyOf(name: string, count: number): string {
  if (count > 1) return `${name}#${count}`;
  if (name !== lastName) {
    lastName = name;
    lastKey = `${name}#1`;
  }
  return lastKey;
}
