import { inBackground } from "../../core/background.ts";
import type { ResultEntry } from "../../core/log.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { Journal } from "../log/journal.ts";
import type { Committed, Delivery, Operation } from "../log/operations.ts";

/**
 * The operations of an agent: which are open, and how they get their results. Without a journal each result is handed over
 * as soon as it is committed.
 */
export abstract class Operations {
  /** What a durable agent has done before. Undefined: the agent is executed once. */
  abstract readonly journal: Journal | undefined;
  protected abstract readonly clock: Clock;
  protected abstract readonly logger: Logger;
  /** The name of the first operation. */
  #firstName: string | undefined;
  /** The operation without a result; with several, the first of them, until it has its result. */
  #only: Operation | undefined;
  /** Undefined for most runs, which have one operation. */
  #more: More | undefined;
  /** Set when nothing is handed over any more. */
  #closed: (() => Error) | "dropped" | undefined;

  /** The keys of the operations without a result. */
  get open(): readonly string[] {
    return this.#all.map(({ key }) => key);
  }

  get #all(): readonly Operation[] {
    const others = this.#more?.others.values() ?? [];
    return this.#only === undefined ? [...others] : [this.#only, ...others];
  }

  /** Whether the agent does again what the log holds. */
  get isCatchingUp(): boolean {
    return this.journal?.isCatchingUp === true;
  }

  /** Whether the agent continues only when it receives a result, one result a turn of the event loop. */
  get isPaced(): boolean {
    return this.journal?.isCatchingUp === false;
  }

  /** The operation with this key, if it has no result. */
  find(key: string): Operation | undefined {
    return this.#only?.key === key ? this.#only : this.#more?.others.get(key);
  }

  /** Whether nothing is handed over any more. */
  get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  /** The time as the agent sees it, in milliseconds since 1970. */
  now(): number {
    return this.journal?.now ?? this.clock.now();
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

  /** Begins an operation, or fails it where all are closed. */
  begin(operation: Operation): void {
    if (this.#closed === undefined) {
      this.#add(operation);
      if (this.journal === undefined) operation.start(undefined);
      else this.journal.begin(operation);
    } else if (this.#closed !== "dropped") operation.reject(this.#closed());
  }

  /** Takes the entry that holds an operation's result, as it is committed. */
  deliver(entry: Committed, live?: unknown): void {
    const key = resultKey(entry);
    if (key === undefined || this.#closed !== undefined) return;
    const delivery = { key, entry: entry as ResultEntry, live };
    if (this.journal !== undefined) {
      this.journal.deliver(delivery);
      return;
    }
    const handed = this.handOver(delivery);
    if (handed !== undefined) inBackground(this.logger, handed);
  }

  /** Gives an operation its result. A promise: the agent receives the result when it resolves. */
  handOver({ key, entry, live }: Delivery): undefined | Promise<void> {
    const operation = this.#remove(key);
    if (operation === undefined) return undefined;
    operation.release?.();
    let value: MaybePromise<unknown>;
    try {
      value = operation.settle(entry, live);
    } catch (error) {
      this.#reject(operation, error);
      return undefined;
    }
    if (isPromise(value)) {
      // What a schema gives may be a thenable of the user's, whose own `then` may throw or return nothing.
      return Promise.resolve(value).then(
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
    if (operation === undefined) return;
    operation.release?.();
    this.#reject(operation, error);
  }

  /** Gives the agent what it reads outside of its log: with a journal at the same point in each execution, whatever the store needs for it. */
  read<Value>(value: MaybePromise<Value>): MaybePromise<Value> {
    if (this.journal === undefined) return value;
    const reading = Promise.resolve(value);
    return this.journal.hold(reading.then(ignore, ignore)).then(() => reading);
  }

  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  settled(): Promise<void> {
    return this.journal?.settled() ?? this.clock.turn();
  }

  /** Fails all open operations, and all later ones. */
  protected close(reason: () => Error): void {
    const open = this.#all;
    this.#stop(reason);
    for (const operation of open) operation.reject(reason());
  }

  /** Leaves all operations pending for ever. */
  protected drop(): void {
    this.#stop("dropped");
  }

  /** Nothing is handed over any more. */
  #stop(closed: (() => Error) | "dropped"): void {
    this.#closed = closed;
    for (const operation of this.#all) operation.release?.();
    this.#only = undefined;
    this.#more?.others.clear();
    this.journal?.stop();
  }

  /** The agent is about to receive something. */
  abstract onMove(): void;

  #resolve(operation: Operation, value: unknown): void {
    // The agent may have been left while a schema was asked.
    if (this.#closed === "dropped") return;
    this.onMove();
    operation.resolve(value);
  }

  #reject(operation: Operation, error: unknown): void {
    if (this.#closed === "dropped") return;
    this.onMove();
    operation.reject(error);
  }

  get #moreThanOne(): More {
    this.#more ??= { counts: new Map(), others: new Map() };
    return this.#more;
  }

  #add(operation: Operation): void {
    const others = this.#more?.others.size ?? 0;
    if (this.#only === undefined && others === 0) this.#only = operation;
    else this.#moreThanOne.others.set(operation.key, operation);
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
