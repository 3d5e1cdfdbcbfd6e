import type { Entry } from "../core/log.ts";
import type { Mismatch, RunKey, Store } from "../core/ports.ts";
import type { LiveRun, LiveRuns } from "../runtime/live-run.ts";
import type { Follower } from "./follower.ts";
import type { DurabilitySettings } from "./options.ts";

/** A process as the owner of runs: what all parts of the durable room share, and what its runs report. */
export interface Owner {
  /** The loaded runs. */
  readonly runs: LiveRuns;
  readonly store: Store;
  /** The name under which this process owns runs. */
  readonly name: string;
  readonly settings: DurabilitySettings;
  /** How long a waiting durable run stays loaded before it is evicted, in milliseconds. */
  readonly evictAfterMs: number;
  /** How long a replayed agent may take for the next operation in its history, in milliseconds. */
  readonly stallMs: number;
  /** Polls the store for runs that other processes may write to. */
  readonly follower: Follower;
  /** The logs of runs that are not loaded here, while readers wait for more of them. */
  readonly followed: Set<{ end(): void }>;
  /** Whether the runtime and its store are closed. */
  readonly isOver: boolean;
  /** Resolves when it is certain that this process still owns the run. Undefined: it is certain now. */
  ensureOwner(run: LiveRun): undefined | Promise<void>;
  /** Renews the lease of this process if it has expired: the store would give its runs to any other. Undefined: it holds. */
  renewIfExpired(): undefined | Promise<void>;
  /** Whether other code than the run's agent is registered for it by now. */
  hasOtherCode(run: LiveRun): boolean;
  /** Releases the run, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void;
  /** Loads the run again after it was given up. */
  reload(key: RunKey): void;
  /** The code does not match the history. */
  onBlocked(run: LiveRun, mismatch: Mismatch): void;
  /** A replayed agent emitted another value than its history holds. */
  onDifference(): void;
  /** A run that is not loaded here may need work. */
  onWake(): void;
  /** A call to the store failed. The store may still have made this process the owner of a run. */
  onUnknownOutcome(): void;
  /** A run that was suspected to crash its process has made progress, or has left. */
  onSuspectCleared(run: LiveRun): void;
  /** Shows what a sub-run asks in the logs of the runs above it, if they do not follow it in this process. */
  tellAncestors(run: LiveRun, entries: readonly Entry[]): void;
  /** Resolves when the runs above have been told. Undefined: they have been. */
  ancestorsTold(run: LiveRun): undefined | Promise<void>;
  /** This process has lost a run, but not the sub-run. */
  onParentLost(child: LiveRun, parent: LiveRun): void;
}
