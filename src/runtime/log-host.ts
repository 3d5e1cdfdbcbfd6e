import type { CadenzaError } from "../core/errors.ts";
import type { Clock, Logger, SessionChange, Store } from "../core/ports.ts";

/** What the logs of one runtime share. */
export interface LogHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called when a log has entries that no caller waits for. They are committed at the end of the turn. */
  commitSoon(log: { flush(): void }): void;
  /** Keeps the process open until the returned function is called. */
  hold(): () => void;
}

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun {
  readonly host: LogHost;
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
}
