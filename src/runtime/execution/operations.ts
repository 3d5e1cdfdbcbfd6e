import { inBackground } from "../../core/background.ts";
import type { Emission } from "../../core/commands.ts";
import type { AttemptEntry, AwaitedEntry, Entry, ResultEntry } from "../../core/log.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { InboxMessage } from "../../core/state.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { RunLog } from "../log/run-log.ts";
import type { RunSlot } from "../log/run-slot.ts";
import type { LogResidence } from "../log/run-write.ts";

/** Calls back when all that has been decided is committed: at once, if it is. Does not call back for a lost run. */
export function onceCommitted(log: RunLog, callback: () => void): void {
  const committed = log.commit();
  // Awaiting a commit that is done would let a later entry be handed over before this one.
  if (committed === undefined) callback();
  else inBackground(log.logger, committed.then(callback));
}

/**
 * Calls back when a decided entry is committed, with the entry as the log holds it: after a conflict it was decided
 * again. With undefined: the log does not have it, because another process had written something first that excludes it.
 * Does not call back for a lost run.
 */
export function onceInLog(log: RunLog, entry: Entry, callback: (committed: Committed | undefined) => void): void {
  const committed = log.commit();
  if (committed === undefined) callback(standingOf(log, entry));
  else log.handOverAfter(committed, () => callback(standingOf(log, entry)));
}

/** A decided entry whose turn has been committed, as the log holds it. Undefined: the log does not have it. */
export function standingOf(log: RunLog, entry: Entry): Committed | undefined {
  return log.standingOf(entry) as Committed | undefined;
}

/** A result that is handed over without a commit: the log of a plain run does not hold it, or see {@link RunLog.handsOver}. */
export function uncommitted(entry: Entry): Committed {
  return entry as Committed;
}

/**
 * Waits until the store has taken a new run. If it fails to say so, the caller gets an error and does not let the run
 * begin. The run then begins as soon as it is found to be there.
 */
export async function onceTaken(log: RunLog, begin: () => void): Promise<void> {
  try {
    await log.acknowledge();
  } catch (error) {
    onceCommitted(log, begin);
    throw error;
  }
}

declare const inLog: unique symbol;

/** An entry that the committed log of its run holds. An agent gets its results from such entries, and from {@link uncommitted} ones. */
export type Committed = Entry & { readonly [inLog]: true };

/**
 * An operation of an agent: a question, a step or a sub-run. It has a key, work that begins it, and an entry with its
 * result.
 */
export interface Operation {
  readonly key: string;
  /** Of a question: its parts, and how many values the agent had emitted when it asked. */
  readonly asking?: Pick<AwaitedEntry, "parts" | "emitted"> | undefined;
  /** Begins the work. Called once, unless the log holds the result. `before`: the last attempt at it that the log holds. */
  start(before: AttemptEntry | undefined): void;
  /**
   * Makes the value for the agent from the entry with the result. `live` is what the entry does not have: the part of a
   * new result that the log cannot hold, or the message that an earlier execution has taken. A promise of {@link unfit}:
   * the agent gets no value.
   */
  settle(entry: ResultEntry, live: unknown): unknown;
  /** Hands the agent the value. */
  resolve(value: unknown): void;
  reject(error: unknown): void;
  /** The operation has its result, or gets none any more. It lets go of timers and signals. */
  release?(): void;
  /** Of a receive: the message that it has taken, in this execution or an earlier one. */
  taken?: InboxMessage | undefined;
}

/** An entry with a result, and the key of its operation. `live`: see {@link Operation.settle}. */
export interface Delivery {
  readonly key: string;
  readonly entry: ResultEntry;
  readonly live: unknown;
}

/**
 * `if left`: if any process may write to the run now. `unless writing`: unless this process is writing to it, which tells
 * as much. `before work`: if this process may have lost the run. Ask again when it resolves; for a lost run it never does.
 */
export type Sync = "if left" | "unless writing" | "after writing" | "before work";

/**
 * Where a run of a durable store is executed, and how it is written: other processes may take it over and write to it, and it
 * may leave memory. A run in a store of one process has none. It stays loaded until it ends.
 */
export interface Residence extends LogResidence {
  /** Reads what other processes have written to the run. Undefined: nothing is to be read. */
  sync(how: Sync): undefined | Promise<void>;
  /** Resolves when the run can be answered. Undefined: it can. Throws or rejects if it cannot. */
  whenAnswerable(): undefined | Promise<void>;
  /**
   * Whether the agent does again what the log holds, or the code and the log disagree. `expecting`: it does neither. This process
   * owns the run, and something has come that the agent may wait for and does not have yet.
   */
  readonly phase: "live" | "expecting" | "catching up" | "blocked";
  /** The run's slot, if the store counts the slots. Undefined: this process does. */
  slot(): RunSlot | undefined;
  /** The journal of an execution of the run's agent. Undefined: it is executed once, here. */
  journal(agent: JournaledAgent): Journal | undefined;
  /** Leaves the run to other processes, because this one closes. Only of runs that may leave. */
  release(): Promise<void>;
}

/**
 * What a durable agent has done before, and the order in which it gets its results. Results are handed over one at a time,
 * in log order. An agent that is executed again gets the results in the log, and the journal compares what it does with the
 * log. The agent of a run without a journal gets each result as soon as it is committed.
 */
export interface Journal {
  /** Whether the log holds more than the agent has done so far: it does again what an earlier execution has done. */
  readonly isCatchingUp: boolean;
  /** The time as the agent sees it, in milliseconds since 1970. */
  readonly now: number;
  /** The agent begins an operation, now or when it has caught up. Undefined: it was called for the first time in this process. */
  begin(operation?: Operation): void;
  /** Takes a result as it is committed, and hands it over in its turn. */
  deliver(delivery: Delivery): void;
  /** Hands nothing over until the promise resolves. Resolves in the turn after it; without a promise in the next one. */
  hold(until: MaybePromise<void>): Promise<void>;
  /**
   * Compares what the agent emits, the usage that it reports, or the patch for which it asks with the log. Each entry of the log
   * answers once. What is `new` the caller logs; the journal logs a patch itself.
   */
  recall(said: Emission | Usage | Patch): Recalled;
  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  settled(): Promise<void>;
  /**
   * The agent ends: nothing is handed over any more. `error`: what it has thrown, or null where it has returned; undefined:
   * it is stopped, or left where it is; {@link unfit}: its code does not accept what the generation before has given it. An agent that ends before it has done what the log holds is left where it is.
   */
  end(error: unknown): void;
}

/** The id of a patch. */
export interface Patch {
  readonly patch: string;
}

/** `held`: the log has it, or is not to get it from the caller: the journal logs it later, or it is dropped. `passed`: the log holds what comes after it, without it. `new`: the agent is at the end of what it holds. */
export type Recalled = "held" | "passed" | "new";

/** The code does not accept an accepted answer of the log any more, or the schema of an accepted message fails. The agent does not receive it. */
export const unfit = Symbol("unfit");
export type Unfit = typeof unfit;

/** The agent whose journal it is. */
export interface JournaledAgent {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly logger: Logger;
  /** See `AgentRun`. */
  readonly run: { readonly isHeld: boolean; hold(goOn: () => void): void };
  /** Whether nothing is handed over any more. */
  readonly isClosed: boolean;
  /** The keys of the operations without a result. */
  readonly open: readonly string[];
  find(key: string): Operation | undefined;
  /** See {@link Operations.handOver}. */
  handOver(delivery: Delivery): undefined | Promise<Unfit | undefined>;
}

const noOperations: readonly Operation[] = [];

/**
 * The operations of an agent: which are open, and how they get their results. Without a journal each result is handed over
 * as soon as it is committed.
 */
export abstract class Operations {
  /** What a durable agent has done before. Undefined: the agent is executed once. */
  abstract readonly journal: Journal | undefined;
  /** It learns that the agent is about to be given something, and continues. */
  abstract readonly run: { onMove(): void };
  protected abstract readonly clock: Clock;
  protected abstract readonly logger: Logger;
  /** The error of operations that are open when all are closed, and of those that begin later. */
  abstract readonly reason: Error;
  /** The number of the run's generation that is executed, from 1 on. */
  protected abstract readonly generation: number;
  /** The name of the first operation. */
  #firstName: string | undefined;
  /** The operation without a result; with several, the first of them, until it has its result. */
  #only: Operation | undefined;
  /** Undefined for most runs, which have one operation, and no receive. */
  #more: More | undefined;
  /** Set when nothing is handed over any more. */
  #closed: "failed" | "dropped" | undefined;

  /** The keys of the operations without a result. */
  get open(): readonly string[] {
    return this.#all.map(({ key }) => key);
  }

  get #all(): readonly Operation[] {
    const others = this.#more?.others;
    if (others === undefined) return this.#only === undefined ? noOperations : [this.#only];
    return this.#only === undefined ? [...others.values()] : [this.#only, ...others.values()];
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

  /** The key of the next operation of this name: `name#1`, `name#2`, … In a later generation `name#2.1`, `name#2.2`, … */
  keyFor(name: string): string {
    const count = this.#countOf(name);
    return this.generation === 1 ? keyOf(name, count) : `${name}#${this.generation}.${count}`;
  }

  #countOf(name: string): number {
    if (this.#firstName === undefined) {
      this.#firstName = name;
      return 1;
    }
    const { counts } = this.#moreThanOne;
    if (counts.size === 0) counts.set(this.#firstName, 1);
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return count;
  }

  /** Begins an operation, or fails it where all are closed. */
  begin(operation: Operation): void {
    if (this.#closed === undefined) {
      this.#add(operation);
      if (this.journal === undefined) operation.start(undefined);
      else this.journal.begin(operation);
    } else if (this.#closed === "failed") operation.reject(this.reason);
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

  /**
   * Gives an operation its result. A promise: the agent receives the result when it resolves, unless it is {@link unfit}.
   */
  handOver({ key, entry, live }: Delivery): undefined | Promise<Unfit | undefined> {
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
      if ("taken" in operation) this.#moreThanOne.handing = operation;
      // What a schema gives may be a thenable of the user's, whose own `then` may throw or return nothing.
      return Promise.resolve(value).then(
        (later) => (later === unfit ? unfit : this.#resolve(operation, later)),
        (error: unknown) => this.#reject(operation, error),
      );
    }
    this.#resolve(operation, value);
    return undefined;
  }

  /** The messages that receives have taken, and that the agent does not have yet. */
  protected get left(): readonly InboxMessage[] {
    const handing = this.#more?.handing?.taken;
    const left = this.#all.flatMap(({ taken }) => taken ?? []);
    return handing === undefined ? left : [handing, ...left];
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
  protected close(): void {
    for (const operation of this.#stop("failed")) operation.reject(this.reason);
  }

  /** Leaves all operations pending for ever. */
  protected drop(): void {
    this.#stop("dropped");
  }

  /** Nothing is handed over any more. Gives the operations that were open. */
  #stop(closed: "failed" | "dropped"): readonly Operation[] {
    this.#closed = closed;
    const open = this.#all;
    for (const operation of open) operation.release?.();
    this.#only = undefined;
    this.#more?.others.clear();
    this.journal?.end(undefined);
    return open;
  }

  #resolve(operation: Operation, value: unknown): undefined {
    this.#onHanded();
    // The agent may have been left while a schema was asked.
    if (this.#closed === "dropped") return;
    this.run.onMove();
    operation.resolve(value);
  }

  #reject(operation: Operation, error: unknown): undefined {
    this.#onHanded();
    if (this.#closed === "dropped") return;
    this.run.onMove();
    operation.reject(error);
  }

  #onHanded(): void {
    if (this.#more !== undefined) this.#more.handing = undefined;
  }

  get #moreThanOne(): More {
    this.#more ??= { counts: new Map(), others: new Map(), handing: undefined };
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
  /** The receive whose schema is asked about its message, before it is handed over. */
  handing: Operation | undefined;
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
