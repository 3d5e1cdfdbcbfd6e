import type { CadenzaError } from "../core/errors.ts";
import type { Clock, Logger, RunKey, Store } from "../core/ports.ts";
import type { Follower } from "./follower.ts";
import type { WriteSource } from "./run-write.ts";

/** What the logs of one runtime share. */
export interface LogHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The name under which this runtime owns runs. */
  readonly owner: string;
  /** Called when a log has entries that no caller waits for: they are committed at the end of the turn. */
  commitSoon(log: { flush(): void }): void;
  /** Keeps the process from ending until the answer is called. */
  hold(): () => void;
  /** The store failed to answer, and may have given this process a run all the same. */
  onUnknownOutcome(): void;
  /** Asks the store for runs that other processes may write to. */
  readonly follower: Follower;
  /** The store holds less of a run than it had taken: the run is loaded again. */
  reload(key: RunKey): void;
}

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun extends WriteSource {
  readonly host: LogHost;
  /** Entries were committed, up to the log's `committed`. */
  onCommit(): void;
  /** Another process owns the run now. Nothing that happens here counts any more. */
  onLost(): void;
  /** Whether the end of the run is not to be written yet: no process would cancel its sub-runs after that. */
  readonly isEndHeld: boolean;
  /** Another process has written to the run, and what it wrote has been taken in. */
  onReloaded(): void;
  /** Something that the run waits for has happened elsewhere. */
  onWoken(): void;
  /** Another run has something to do, since this one was written. */
  onWakeWritten(): void;
  /** Why the run does not get on; undefined if it does. */
  readonly blocked: CadenzaError | undefined;
}
