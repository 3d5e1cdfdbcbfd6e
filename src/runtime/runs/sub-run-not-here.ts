import type { CadenzaError } from "../../core/errors.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import type { Run } from "../../protocol/run.ts";

/** A sub-run that is not loaded in this process. */
export type SubRunNotHere = EndedRun | RunElsewhere;

/**
 * A run that has not ended, and that this process cannot load: another process owns it, or its code is not registered
 * here.
 */
export interface RunElsewhere {
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  /** How many entries its log holds. */
  readonly position: number;
  /** Reads its current state. Undefined: the store has deleted it. */
  readonly read: () => MaybePromise<RunState | undefined>;
}

/** A run that has ended. */
export interface EndedRun {
  readonly run: Run;
  readonly state: RunState;
}
