import { inBackground } from "../../core/background.ts";
import type { Clock, Logger } from "../../core/ports.ts";

/** What the measurement of a run's active time depends on. */
interface Measured {
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long the run may be active, in milliseconds. */
  readonly limitMs: number;
  /** How long it was active before it was loaded, as far as its log records it, in milliseconds. */
  readonly recordedMs: number;
  /** The write of the run that is under way, or waits to be tried again. Undefined: none. */
  readonly writing: () => Promise<void> | undefined;
  /** The active time has reached the limit. */
  readonly onOver: () => void;
}

/**
 * Measures how long one run is active, by a clock that is never set. `LiveRun` says when it is. Only a run with a
 * `timeoutMs` has one. Its log records the time, so that the next process continues with it.
 */
export class ActiveTime {
  readonly #run: Measured;
  /** The time that counts, whatever becomes of the write that is under way. */
  #certainMs: number;
  /** Since when the run is active beyond that. Undefined: it is not active. */
  #since: number | undefined;
  #clearTimer: (() => void) | undefined;

  constructor(run: Measured) {
    this.#run = run;
    this.#certainMs = run.recordedMs;
  }

  /** How long the run was active so far, in whole milliseconds: what its log may record. */
  get ms(): number {
    if (this.#run.writing() === undefined) this.count();
    return Math.floor(this.#certainMs);
  }

  /** How long it may still be active, in whole milliseconds. */
  get leftMs(): number {
    return Math.max(0, Math.ceil(this.#run.limitMs - this.ms));
  }

  get #isRunning(): boolean {
    return this.#since !== undefined;
  }

  /** The run is active from now on. */
  goOn(): void {
    if (this.#isRunning) return;
    this.#since = this.#now;
    this.#watch();
  }

  /** The run is not active from now on. */
  pause(): void {
    if (!this.#isRunning) return;
    this.count();
    this.discount();
  }

  /** The time up to now counts. Called where a write begins: if the write fails, the time from then on does not count. */
  count(): void {
    if (this.#since === undefined) return;
    const now = this.#now;
    this.#certainMs += Math.max(0, now - this.#since);
    this.#since = now;
  }

  /** The time since it last was counted does not count, and the run is not active: the store has failed. */
  discount(): void {
    this.#since = undefined;
    this.#clearTimer?.();
  }

  /** A sub-run was active so long that the run was, too. */
  atLeast(ms: number): void {
    if (ms <= this.ms) return;
    this.#certainMs = ms;
    if (ms >= this.#run.limitMs) this.#run.onOver();
    else if (this.#isRunning) this.#watch();
  }

  get #now(): number {
    const { clock } = this.#run;
    return clock.monotonic?.() ?? clock.now();
  }

  #watch(): void {
    this.#clearTimer?.();
    const leftMs = Math.max(0, this.#run.limitMs - this.#certainMs);
    this.#clearTimer = this.#run.clock.setTimeout(() => this.#check(), leftMs);
  }

  /** The time may be over. That is certain only when the write that is under way has succeeded. */
  #check(): void {
    const writing = this.#run.writing();
    if (writing === undefined) this.count();
    if (this.#certainMs >= this.#run.limitMs) this.#run.onOver();
    // Timers may fire a little early.
    else if (writing === undefined) this.#watch();
    else {
      const checked = writing.then(() => {
        if (this.#isRunning) this.#check();
      });
      inBackground(this.#run.logger, checked);
    }
  }
}
