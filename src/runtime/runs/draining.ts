import type { Clock } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { isStopped, startTime } from "../../core/state.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import type { LiveRun } from "./live-run.ts";

/**
 * The time that the runs of a runtime have while it is closed. In its first half they may end or come to rest. In the
 * second half, a run that other processes can go on with begins no more steps here, and is handed on as soon as none of
 * them is at work: a step that takes less than half of the time is not interrupted.
 */
export class Draining {
  readonly #runs: Iterable<LiveRun>;
  readonly #shared: SharedByRuns;
  readonly #handOn: (run: LiveRun) => void;
  readonly #handedOn = new Set<LiveRun>();

  /** `handOn`: called once for each run that may go on elsewhere. */
  constructor(runs: Iterable<LiveRun>, shared: SharedByRuns, handOn: (run: LiveRun) => void) {
    this.#runs = runs;
    this.#shared = shared;
    this.#handOn = handOn;
  }

  /** Resolves when no run is at work here any more, or after `drainMs` milliseconds. */
  async wait(drainMs: number): Promise<void> {
    const shared = this.#shared;
    const first = drainMs / 2;
    await this.#until(() => !this.#isWorking, first);
    shared.isHandingOn = true;
    await this.#until(() => {
      this.#handOnIdle();
      return !this.#isWorking;
    }, drainMs - first);
    shared.onProgress = undefined;
  }

  /** Resolves when a condition holds, which is looked at after each commit, or after a time in milliseconds. */
  async #until(condition: () => boolean, ms: number): Promise<void> {
    const shared = this.#shared;
    if (!(ms > 0) || condition()) return;
    await new Promise<void>((resolve) => {
      const clear = setUnlessEndless(shared.clock, resolve, ms);
      shared.onProgress = () => {
        if (!condition()) return;
        clear();
        resolve();
      };
    });
  }

  #handOnIdle(): void {
    for (const run of [...this.#runs]) {
      const isAtWork = !run.areStepsHeld || isStopped(run.log.state);
      if (isAtWork || !run.mayLeave || this.#handedOn.has(run)) continue;
      this.#handedOn.add(run);
      this.#handOn(run);
    }
  }

  /** Whether a run does more than to wait. The oldest ones, which are looked at first, are often the last to end. */
  get #isWorking(): boolean {
    const now = this.#shared.clock.now();
    for (const run of this.#runs) if (!run.isWaiting && startTime(run.log.state) <= now) return true;
    return false;
  }
}

function setUnlessEndless(clock: Clock, callback: () => void, ms: number): () => void {
  return ms === Number.POSITIVE_INFINITY ? ignore : clock.setTimeout(callback, ms);
}
