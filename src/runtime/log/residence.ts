import type { Entry } from "../../core/log.ts";
import type { ConcurrencyOptions } from "../agent/agent.ts";
import type { Journal, JournaledAgent } from "./journal.ts";
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
 * What happens to a run, for its residence. `step ended`: the run may only wait from now on. `gone`: it is not loaded here any
 * more. `subRun`: what a sub-run does; undefined: the agent has its result. `redoes`: the agent of a fork is to be called,
 * and first does again what these entries hold.
 */
export type ResidenceEvent =
  | "committed"
  | "step ended"
  | "gone"
  | { readonly subRun: string; readonly activity: SubRunActivity | undefined }
  | { readonly redoes: readonly Entry[] };

/**
 * Where a run of a durable store is executed: other processes may take it over, and it may leave memory. A run in a store of
 * one process has none. It stays loaded until it ends.
 */
export interface Residence {
  /** Reads what other processes have written to the run. Undefined: nothing is to be read. */
  sync(how: Sync): undefined | Promise<void>;
  /** Resolves when the runs above a sub-run that do not follow it here know its questions. Undefined: they know. */
  told(): undefined | Promise<void>;
  /** Resolves when the run can be answered. Undefined: it can. Throws or rejects if it cannot. */
  whenAnswerable(): undefined | Promise<void>;
  /** Whether the agent does again what the log holds, or the code and the log disagree. */
  readonly phase: "live" | "catching up" | "blocked";
  /** The run's slot, if the store counts the slots. Undefined: this process does. */
  slotOf(concurrency: ConcurrencyOptions): RunSlot | undefined;
  /** The journal of an execution of the run's agent. Undefined: it is executed once, here. */
  journal(agent: JournaledAgent): Journal | undefined;
  note(event: ResidenceEvent): void;
  /** Leaves the run to other processes, because this one closes. Only of runs that may leave. */
  release(): Promise<void>;
}
