import type { CadenzaError } from "../../core/errors.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "./retry-pause.ts";
import type { Attempt } from "./run-write.ts";
import type { SharedByRuns } from "./shared-by-runs.ts";

/** The time in which the store fails to take the writes of a run. */
export class Outage {
  /** The error of the last write. */
  failure: CadenzaError;
  /** The attempts that failed. The store may still have written them. */
  readonly attempts: Attempt[] = [];
  readonly #shared: Pick<SharedByRuns, "clock" | "hold">;
  #nextPauseMs = FIRST_PAUSE_MS;
  #endPause: (() => void) | undefined;

  constructor(shared: Pick<SharedByRuns, "clock" | "hold">, failure: CadenzaError) {
    this.#shared = shared;
    this.failure = failure;
  }

  /**
   * Resolves when the next attempt is due. The process is kept open until then, because decided entries that are not
   * committed would be lost.
   */
  pause(): Promise<void> {
    const pauseMs = this.#nextPauseMs;
    this.#nextPauseMs = nextPauseMs(pauseMs);
    return new Promise((resolve) => {
      const letGo = this.#shared.hold();
      const clearTimer = this.#shared.clock.setTimeout(() => {
        letGo();
        resolve();
      }, pauseMs);
      this.#endPause = () => {
        letGo();
        clearTimer();
        // A process that closes, or looks at the run once more, waits for the pause.
        resolve();
      };
    });
  }

  /** There is no next attempt. */
  end(): void {
    this.#endPause?.();
  }
}
