import type { CadenzaError } from "../../core/errors.ts";
import type { SessionChange } from "../../core/ports.ts";
import type { SharedByRuns } from "./shared-by-runs.ts";

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun {
  readonly shared: SharedByRuns;
  /** The session change that goes with the end of the run. */
  sessionAtEnd(): SessionChange | undefined;
  /** Whether the end of the run must not be written yet, because no process would cancel its sub-runs after that. */
  readonly isEndHeld: boolean;
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  /** Entries were committed, up to the log's `committed`. */
  onCommit(): void;
  /** Nothing is written to the run here any more. */
  onLost(): void;
  /** Another process has written to the run, and the new entries are loaded. */
  onReloaded(): void;
  /** The run may be active from now on, or not any more. */
  settleActiveTime(): void;
}
