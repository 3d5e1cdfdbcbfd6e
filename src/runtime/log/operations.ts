import type { Emission } from "../../core/commands.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { AttemptEntry, Entry, ReceivedEntry, ResultEntry } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Usage } from "../../protocol/extensions.ts";

declare const inLog: unique symbol;

/** An entry that the committed log of its run holds. An agent gets its results from such entries only. */
export type Committed = Entry & { readonly [inLog]: true };

/**
 * An operation of an agent: a question, a step or a sub-run. It has a key, work that begins it, and an entry with its
 * result.
 */
export interface Operation {
  readonly key: string;
  /** Of a question: how many values the agent had emitted when it asked. */
  readonly emitted?: number | undefined;
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
  /** The operation has its result, or gets none any more. It lets go of timers and signals. */
  release?(): void;
}

/**
 * How the operations and the output of an agent get into the log, and how the operations get their results. It varies
 * by agent: those of a durable agent on a durable store may be in the log already.
 */
export interface Operations {
  /** The keys of the operations without a result. */
  readonly open: readonly string[];
  /** The operation with this key, if it has no result. */
  find(key: string): Operation | undefined;
  /** The message at a position of the log, if an earlier execution has taken it. */
  received(position: number): ReceivedEntry | undefined;
  /** Whether the log holds more than the agent has done so far: it does again what an earlier execution has done. */
  readonly isCatchingUp: boolean;
  /** Whether the agent goes on only when it receives a result, one result a turn of the event loop. */
  readonly isPaced: boolean;
  /** The agent was called for the first time in this process. */
  begin(): void;
  /** The time as the agent sees it, in milliseconds since 1970. */
  now(): number;
  /** The key of the next operation of this name: `name#1`, `name#2`, … */
  keyFor(name: string): string;
  perform(operation: Operation): void;
  /** The last attempt at an operation without a result, or that it has failed, if the log holds one. */
  lastAttempt(key: string): AttemptEntry | undefined;
  /** Takes the entry that holds an operation's result, as it is committed. */
  deliver(entry: Committed, live?: unknown): void;
  /** Fails one operation. */
  reject(key: string, error: unknown): void;
  /** The answer in the log fails the validation of the question as the code asks it now. */
  onUnfitAnswer(key: string): void;
  /** Takes what the agent emits. A promise: the agent waits for it before it emits more. */
  emit(emission: Emission, at: number): undefined | Promise<void>;
  /** Gives the agent what it reads outside of its log. */
  read<Value>(value: MaybePromise<Value>): MaybePromise<Value>;
  /** Whether the log holds this report of usage. Each report in the log counts once. */
  holdsUsage(usage: Usage): boolean;
  /**
   * How many tokens of the run's budget are left by the results that the agent has received. Undefined: the agent sees
   * what is left now.
   */
  readonly tokensLeft: number | undefined;
  /** Calls `take` with the callback, which it calls when the run has its slot. Results keep their order meanwhile. */
  withSlot(take: (callback: () => void) => void, callback: () => void): void;
  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  settled(): Promise<void>;
  /** Whether the agent may end: with this error, or null. `stopped`: why it was stopped, if it was. */
  mayEnd(error: unknown, stopped: CadenzaError | undefined): boolean;
  /** Fails all open operations, and all later ones. */
  close(reason: () => Error): void;
  /** Leaves all operations pending for ever. */
  drop(): void;
}
