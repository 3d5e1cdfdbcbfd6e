import { aboutRun } from "../../core/about-run.ts";
import type { Clock, Logger, Mismatch } from "../../core/ports.ts";
import { createdEntry } from "../../core/state.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import { blockedError } from "../replay/blocked-error.ts";
import type { JournalHost } from "../replay/journal-host.ts";
import type { Owner } from "./owner.ts";
import type { Residency } from "./residency.ts";
import type { Worker } from "./worker.ts";

/** What becomes of a durable run when its agent has caught up with its history, or does not match it. */
export class RunJournal implements JournalHost {
  readonly #owner: Owner;
  readonly #worker: Worker;
  readonly #run: LiveRun;
  readonly #residency: Residency;

  constructor(owner: Owner, run: LiveRun, residency: Residency) {
    this.#owner = owner;
    this.#worker = owner.worker;
    this.#run = run;
    this.#residency = residency;
  }

  get log(): RunLog {
    return this.#run.log;
  }

  get clock(): Clock {
    return this.#worker.clock;
  }

  get logger(): Logger {
    return this.#worker.logger;
  }

  get settings(): { readonly maxBacklog: number } {
    return this.#worker.runs.shared.settings;
  }

  get stallMs(): number {
    return this.#worker.stallMs;
  }

  pace(at: number): undefined | Promise<void> {
    return this.#worker.runs.shared.pace(at);
  }

  onMove(): void {
    this.#run.onMove();
  }

  onCaughtUp(): void {
    this.#run.execution?.onCaughtUp();
    this.#residency.caughtUp();
  }

  onDifference(): void {
    this.#worker.differences += 1;
  }

  onStall(mismatch: Mismatch | undefined): void {
    this.#setMismatch(mismatch);
  }

  onMismatch(mismatch: Mismatch): void {
    this.#run.execution?.fence();
    if (this.#setMismatch(mismatch)) this.#residency.block();
  }

  /** Whether other code than the run's agent is registered for it by now. */
  get #hasOtherCode(): boolean {
    const { agent, log } = this.#run;
    const { agent_name, version } = createdEntry(log.state);
    return this.#worker.runs.registry.find(agent_name, version) !== agent;
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
    if (mismatch !== undefined && this.#hasOtherCode) {
      this.#residency.tellReady();
      this.#owner.loadAgain(run);
      return false;
    }
    this.#residency.setBlocked(mismatch ?? null);
    run.setBlocked(mismatch && blockedError(run_id, run.agent.name, mismatch));
    if (mismatch !== undefined) {
      this.#worker.logger.warn(
        "A run is blocked: its code does not match its history. Register matching code, or cancel the run.",
        { ...aboutRun(run.log), ...mismatch },
      );
      this.#worker.runs.onBlocked(run, mismatch);
      this.#residency.forgetTakeovers();
      this.#residency.tellReady();
    }
    return true;
  }
}
