import type { RunKey } from "../../core/ports.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import type { Ancestors } from "./ancestors.ts";
import type { Lease } from "./lease.ts";
import type { Worker } from "./worker.ts";

/** The process that owns loaded runs, as they see it. */
export interface Owner {
  readonly worker: Worker;
  readonly lease: Lease;
  readonly ancestors: Ancestors;
  /** Releases the run, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void;
  /** Loads the run again after it was given up. */
  reload(key: RunKey): void;
  /** A run that was suspected to crash its process has made progress, or has left. */
  onSuspectCleared(run: LiveRun): void;
  /** A run has left this process before its end. */
  onGone(run: LiveRun): void;
  /** This process has lost a run, but not the sub-run. */
  onParentLost(child: LiveRun, parent: LiveRun): void;
}
