import { inBackground } from "../../core/background.ts";
import type { Emission } from "../../core/commands.ts";
import type { AttemptEntry, ReceivedEntry, ResultEntry } from "../../core/log.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { Committed, Operation, Operations } from "../log/operations.ts";
import type { RunLog } from "../log/run-log.ts";

/** What operations need from the run of their agent. */
export interface OperationsHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly settings: { readonly maxBacklog: number };
  /** Now and then another turn of the event loop is due. Undefined: it is not. */
  pace(at: number): undefined | Promise<void>;
  /** The agent is about to receive something. */
  onMove(): void;
}

/** An entry with a result, and the key of its operation. `live` is the part that the log cannot hold. */
export interface Delivery {
  readonly key: string;
  readonly entry: ResultEntry;
  readonly live: unknown;
}

/** The operations of an agent that is executed once. Each result is handed over as soon as it is committed. */
export class LiveOperations implements Operations {
  protected readonly host: OperationsHost;
  /** The name of the first operation. */
  #firstName: string | undefined;
  /** The operation without a result; with several, the first of them, until it has its result. */
  #only: Operation | undefined;
  /** Undefined for most runs, which have one operation. */
  #more: More | undefined;
  /** Set when nothing is handed over any more. */
  #closed: (() => Error) | "dropped" | undefined;

  constructor(host: OperationsHost) {
    this.host = host;
  }

  get open(): readonly string[] {
    return this.#all.map(({ key }) => key);
  }

  get #all(): readonly Operation[] {
    const others = this.#more?.others.values() ?? [];
    return this.#only === undefined ? [...others] : [this.#only, ...others];
  }

  get isCatchingUp(): boolean {
    return false;
  }

  get isPaced(): boolean {
    return false;
  }

  find(key: string): Operation | undefined {
    return this.#only?.key === key ? this.#only : this.#more?.others.get(key);
  }

  received(_position: number): ReceivedEntry | undefined {
    return undefined;
  }

  /** Whether nothing is handed over any more. */
  get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  begin(): void {
    // Nothing is in the log.
  }

  now(): number {
    return this.host.clock.now();
  }

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

  isOpen(key: string): boolean {
    return this.find(key) !== undefined;
  }

  perform(operation: Operation): void {
    if (this.accepts(operation)) operation.start();
  }

  /** Adds an operation, or fails it where all are closed. */
  protected accepts(operation: Operation): boolean {
    if (this.#closed === undefined) this.#add(operation);
    else if (this.#closed !== "dropped") operation.reject(this.#closed());
    return this.#closed === undefined;
  }

  lastAttempt(_key: string): AttemptEntry | undefined {
    return undefined;
  }

  deliver(entry: Committed, live?: unknown): void {
    const key = resultKey(entry);
    if (key !== undefined && this.#closed === undefined) this.take({ key, entry: entry as ResultEntry, live });
  }

  /** Takes a result. */
  protected take(delivery: Delivery): void {
    const handed = this.handOver(delivery);
    if (handed !== undefined) inBackground(this.host.logger, handed);
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

  reject(key: string, error: unknown): void {
    const operation = this.#remove(key);
    if (operation === undefined) return;
    operation.release?.();
    this.#reject(operation, error);
  }

  onUnfitAnswer(_key: string): void {
    // No answer is in the log before the question is asked.
  }

  emit(emission: Emission, at: number): undefined | Promise<void> {
    const { log, settings } = this.host;
    log.decide({ type: "emit", at, item: emission });
    return log.backlog >= settings.maxBacklog ? log.commit() : this.host.pace(at);
  }

  read<Value>(value: MaybePromise<Value>): MaybePromise<Value> {
    return value;
  }

  holdsUsage(_usage: unknown): boolean {
    return false;
  }

  get tokensLeft(): number | undefined {
    return undefined;
  }

  withSlot(take: (callback: () => void) => void, callback: () => void): void {
    take(callback);
  }

  settled(): Promise<void> {
    return this.host.clock.turn();
  }

  mayEnd(_error: unknown, _stopped: unknown): boolean {
    return true;
  }

  close(reason: () => Error): void {
    const open = this.#all;
    this.end(reason);
    for (const operation of open) operation.reject(reason());
  }

  drop(): void {
    this.end("dropped");
  }

  /** Nothing is handed over any more. */
  protected end(closed: (() => Error) | "dropped"): void {
    this.#closed = closed;
    for (const operation of this.#all) operation.release?.();
    this.#only = undefined;
    this.#more?.others.clear();
  }

  #resolve(operation: Operation, value: unknown): void {
    // The agent may have been left while a schema was asked.
    if (this.#closed === "dropped") return;
    this.host.onMove();
    operation.resolve(value);
  }

  #reject(operation: Operation, error: unknown): void {
    if (this.#closed === "dropped") return;
    this.host.onMove();
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
