import type { AttemptEntry, Entry, ResultEntry } from "../../core/log.ts";

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
  /** Begins the work. Called once, unless the log holds the result. `before`: the last attempt at it that the log holds. */
  start(before: AttemptEntry | undefined): void;
  /**
   * Makes the value for the agent from the entry with the result. `live` is what the entry does not have: the part of a
   * new result that the log cannot hold, or the message that an earlier execution has taken.
   */
  settle(entry: ResultEntry, live: unknown): unknown;
  /** Hands the agent the value. */
  resolve(value: unknown): void;
  reject(error: unknown): void;
  /** The operation has its result, or gets none any more. It lets go of timers and signals. */
  release?(): void;
}

/** An entry with a result, and the key of its operation. `live`: see {@link Operation.settle}. */
export interface Delivery {
  readonly key: string;
  readonly entry: ResultEntry;
  readonly live: unknown;
}
