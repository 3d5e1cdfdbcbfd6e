import { newController, onceAborted } from "../../core/background.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import type { RunSignal } from "./run-signal.ts";

/** The limits of one attempt: see {@link StepOptions}. At least one of them is finite. */
export interface AttemptLimits {
  readonly timeoutMs: number;
  readonly stallMs: number;
}

/** The time limits of one attempt at a step. When the time is over, the attempt fails, whatever its body does. */
export class TimeLimit {
  readonly #shared: SharedByRuns;
  readonly #runSignal: RunSignal;
  readonly #limits: AttemptLimits;
  readonly #newError: (exceeded: keyof AttemptLimits) => CadenzaError;
  /** Whether the attempt has gone on since the last look. */
  #hasProgress = false;
  readonly #timers = new Map<keyof AttemptLimits, () => void>();
  #controller: AbortController | undefined;
  #error: CadenzaError | undefined;
  /** Undefined: the attempt has not begun, or is over. */
  #clear: (() => void) | undefined;
  #unfollow: (() => void) | undefined;

  constructor(
    shared: SharedByRuns,
    runSignal: RunSignal,
    limits: AttemptLimits,
    newError: (exceeded: keyof AttemptLimits) => CadenzaError,
  ) {
    this.#shared = shared;
    this.#runSignal = runSignal;
    this.#limits = limits;
    this.#newError = newError;
  }

  /** Aborts when the time is over, and with the run's signal. It is created on first use. */
  get signal(): AbortSignal {
    this.#controller ??= this.#newController();
    return this.#controller.signal;
  }

  /** Whether the time was over before the body ended. */
  get isExceeded(): boolean {
    return this.#error !== undefined;
  }

  /** Calls a function. Rejects when the time is over. What the function gives after that is dropped. */
  apply<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#clear = () => {
        for (const clear of this.#timers.values()) clear();
      };
      const exceed = (exceeded: keyof AttemptLimits): void => {
        this.end();
        const error = this.#newError(exceeded);
        this.#error = error;
        reject(error);
        this.#controller?.abort(error);
      };
      this.#watch("timeoutMs", exceed);
      this.#watch("stallMs", exceed);
      const worked = work().finally(() => this.end());
      worked.then(resolve, reject);
    });
  }

  /** The attempt goes on. */
  progress(): void {
    this.#hasProgress = true;
  }

  /** Starts the timer of a limit. That of `stallMs` starts again for as long as there is progress. */
  #watch(limit: keyof AttemptLimits, exceed: (exceeded: keyof AttemptLimits) => void): void {
    if (this.#limits[limit] === Number.POSITIVE_INFINITY) return;
    const clear = this.#shared.clock.setTimeout(() => {
      const goesOn = limit === "stallMs" && this.#hasProgress;
      this.#hasProgress = false;
      if (goesOn) this.#watch(limit, exceed);
      else exceed(limit);
    }, this.#limits[limit]);
    this.#timers.set(limit, clear);
  }

  /** The time is not measured any more. */
  end(): void {
    this.#clear?.();
    this.#clear = undefined;
    this.#unfollow?.();
    this.#unfollow = undefined;
  }

  #newController(): AbortController {
    const { logger } = this.#shared;
    const controller = newController(logger);
    const { signal } = this.#runSignal;
    const stop = (): void => controller.abort(signal.reason);
    if (this.#error !== undefined) controller.abort(this.#error);
    else if (signal.aborted) stop();
    else if (this.#clear !== undefined) this.#unfollow = onceAborted(logger, signal, stop);
    return controller;
  }
}
