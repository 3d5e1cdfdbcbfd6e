import type { Emission } from "../../core/commands.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { Delivery, Operation } from "./operations.ts";
import type { RunLog } from "./run-log.ts";

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
  /** How many tokens of the run's budget are left by the results that the agent has received. */
  readonly tokensLeft: number;
  /** The agent begins an operation, now or when it has caught up. Undefined: it was called for the first time in this process. */
  begin(operation?: Operation): void;
  /** Takes a result as it is committed, and hands it over in its turn. */
  deliver(delivery: Delivery): void;
  /** Takes what the agent emits. A promise: the agent waits for it before it emits more. */
  emit(emission: Emission, at: number): undefined | Promise<void>;
  /** Hands nothing over until the promise resolves. Resolves in the turn after it. */
  hold(until: Promise<void>): Promise<void>;
  /** Whether the log holds this report of usage. Each report in the log counts once. */
  holdsUsage(usage: Usage): boolean;
  /** The answer in the log fails the validation of the question as the code asks it now. */
  onUnfitAnswer(key: string): void;
  /** Resolves after a turn of the event loop in which the agent has used the results that it received. */
  settled(): Promise<void>;
  /** Whether the agent may end: with this error, or null. `stopped`: why it was stopped, if it was. */
  mayEnd(error: unknown, stopped: CadenzaError | undefined): boolean;
  /** Nothing is handed over any more. */
  stop(): void;
}

/** The agent whose journal it is. */
export interface JournaledAgent {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly settings: { readonly maxBacklog: number };
  /** Whether nothing is handed over any more. */
  readonly isClosed: boolean;
  /** The keys of the operations without a result. */
  readonly open: readonly string[];
  find(key: string): Operation | undefined;
  /** Gives an operation its result. A promise: the agent receives the result when it resolves. */
  handOver(delivery: Delivery): undefined | Promise<void>;
}
