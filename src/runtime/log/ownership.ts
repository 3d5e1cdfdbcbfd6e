import type { Entry } from "../../core/log.ts";
import type { Mismatch, RunHead } from "../../core/ports.ts";
import type { ConcurrencyOptions } from "../agent/agent.ts";
import type { Operations } from "./operations.ts";
import type { RunSlot } from "./run-slot.ts";

/**
 * `sought`: an earlier execution began the sub-run, and it is being found. `idle`: it waits, or another process executes
 * it.
 */
export type SubRunActivity = "at work" | "sought" | "idle";

/**
 * `if left`: if any process may write to the run now. `unless writing`: unless this process is writing to it, which tells
 * as much. `before work`: if this process may have lost the run. Ask again when it resolves; for a lost run it never does.
 */
export type Sync = "if left" | "unless writing" | "after writing" | "before work";

/**
 * Where a run is executed. It varies by store. In a store of one process the owner of a run
 * never changes, and the run stays loaded until it ends. In a durable store other processes may take the run over.
 */
export interface Ownership {
  /** Resolves when the runs above a sub-run that do not follow it here know its questions. Undefined: they know. */
  told(): undefined | Promise<void>;
  /** Reads what other processes have written to the run. Undefined: nothing is to be read. */
  sync(how: Sync): undefined | Promise<void>;

  /** The run's slot, if the store counts the slots. Undefined: this process does. */
  slotOf(concurrency: ConcurrencyOptions): RunSlot | undefined;
  /** Before the agent of a fork is called: it first does again what these entries hold. */
  prepare(entries: readonly Entry[]): void;
  /** How the operations of the run's agent get their results. Undefined: they are executed once, here. */
  operations(): Operations | undefined;
  /** Where the code and the log disagree. Undefined: they agree so far. */
  readonly mismatch: Mismatch | undefined;
  /** Whether the agent still does again what the log holds. */
  readonly isCatchingUp: boolean;
  /** Resolves when the run can be answered. Undefined: it can. Throws or rejects if it cannot. */
  whenAnswerable(): undefined | Promise<void>;
  onCommit(head: RunHead): void;
  /** The run is not loaded here any more. */
  onGone(): void;
  /** Notes what a sub-run of this run does. Undefined: the agent has its result. */
  setSubRun(key: string, activity: SubRunActivity | undefined): void;
  /** A step of the run has ended. A run that waits may be left to any process then. */
  settle(): void;
  /** Whether other processes can go on with the run when this one closes. */
  readonly mayLeave: boolean;
  /** Leaves the run to other processes, because this one closes. Undefined: no other process can execute it. */
  release(): undefined | Promise<void>;
}
