import type { Clock, Mismatch } from "../core/ports.ts";
import type { LiveRun, LiveRunHost } from "../runtime/live-run.ts";

import type { RunLog } from "../runtime/run-log.ts";
import { blockedError } from "./blocked-error.ts";
import type { Handover } from "./handover.ts";
import type { JournalHost } from "./journaled-operations.ts";
import type { Residency } from "./residency.ts";

/** What the journals of one process share. */
export interface JournalSettings {
  readonly runs: LiveRunHost;
  /** How long a replayed agent may take for the next operation in its history, in milliseconds. */
  readonly stallMs: number;
  /** Whether other code than the run's agent is registered for it by now. */
  hasOtherCode(run: LiveRun): boolean;
  /** Releases the run, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void;
  /** The code does not match the history. */
  onBlocked(run: LiveRun, mismatch: Mismatch): void;
  /** A replayed agent emitted another value than its history holds. */
  onDifference(): void;
}

/** What becomes of a durable run when its agent has caught up with its history, or does not match it. */
export class RunJournal implements JournalHost {
  readonly #host: JournalSettings;
  readonly #run: LiveRun;
  readonly #residency: Residency;
  readonly #handover: Handover;

  constructor(host: JournalSettings, run: LiveRun, residency: Residency, handover: Handover) {
    this.#host = host;
    this.#run = run;
    this.#residency = residency;
    this.#handover = handover;
  }

  get log(): RunLog {
    return this.#run.log;
  }

  get clock(): Clock {
    return this.#host.runs.clock;
  }

  get settings(): { readonly maxBacklog: number } {
    return this.#host.runs.settings;
  }

  get stallMs(): number {
    return this.#host.stallMs;
  }

  pace(at: number): undefined | Promise<void> {
    return this.#host.runs.pace(at);
  }

  onMove(): void {
    this.#run.onMove();
  }

  onCaughtUp(): void {
    this.#run.execution?.onCaughtUp();
    this.#residency.caughtUp();
    this.#run.goOn();
  }

  onDifference(): void {
    this.#host.onDifference();
  }

  onStall(mismatch: Mismatch | undefined): void {
    this.#setMismatch(mismatch);
  }

  onMismatch(mismatch: Mismatch): void {
    this.#run.execution?.fence();
    if (this.#setMismatch(mismatch)) this.#residency.block();
  }

  /** Whether the run stays loaded with this mismatch. */
  #setMismatch(mismatch: Mismatch | undefined): boolean {
    const run = this.#run;
    const { run_id } = run.log.key;
    this.#residency.mismatch = mismatch;
    run.settleHold();
    if (mismatch !== undefined && run.log.state.status === "cancelling") {
      run.execution?.fence();
      run.endWithoutAgent();
      return false;
    }
    if (mismatch !== undefined && this.#host.hasOtherCode(run)) {
      this.#residency.tellReady();
      this.#host.loadAgain(run);
      return false;
    }
    this.#handover.setBlocked(mismatch ?? null);
    run.setBlocked(mismatch && blockedError(run_id, run.agent.name, mismatch));
    if (mismatch !== undefined) {
      this.#host.onBlocked(run, mismatch);
      this.#handover.forgetTakeovers();
      this.#residency.tellReady();
    }
    return true;
  }
}
