import type { CadenzaError } from "../core/errors.ts";
import type { Clock, Logger, RunKey, Store } from "../core/ports.ts";
import type { Follower } from "./follower.ts";
import type { WriteSource } from "./run-write.ts";

/** What the logs of one runtime share. */
export interface LogHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Called when a log has entries that no caller waits for. They are committed at the end of the turn. */
  commitSoon(log: { flush(): void }): void;
  /** Keeps the process open until the returned function is called. */
  hold(): () => void;
  /** A call to the store failed. The store may still have made this process the owner of a run. */
  onUnknownOutcome(): void;
  /** Polls the store for runs that other processes may write to. */
  readonly follower: Follower;
  /** The store has lost entries of a run that it had accepted. The run is loaded again. */
  reload(key: RunKey): void;
}

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun extends WriteSource {
  readonly host: LogHost;
  /** Entries were committed, up to the log's `committed`. */
  onCommit(): void;
  /** Another process owns the run now. This process writes nothing to it any more. */
  onLost(): void;
  /** Whether the end of the run must not be written yet, because no process would cancel its sub-runs after that. */
  readonly isEndHeld: boolean;
  /** Another process has written to the run, and the new entries are loaded. */
  onReloaded(): void;
  /** Something that the run waits for has happened elsewhere. */
  onWoken(): void;
  /** The last write of this run has woken another run. */
  onWakeWritten(): void;
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
}
