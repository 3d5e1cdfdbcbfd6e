import type { RunKey } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { Worker } from "./worker.ts";

/**
 * Finds runs that this process owns and has not loaded. This happens when an answer of the store was lost, when the
 * store has lost its last commits, and when a run could be neither loaded nor released.
 */
export class UnloadedRuns {
  readonly #worker: Worker;
  /** The runs of this process in the store that it has not loaded, with the times when they were last given out. */
  #given = new RunMap<number>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /**
   * Compares the runs that this process owns in the store with its loaded runs. `isKnown`: whether a run is loaded here,
   * or is being loaded. Gives a run out at once, and again after the time of a lease. The run may have ended by then.
   */
  async find(isKnown: (key: RunKey) => boolean): Promise<readonly RunKey[]> {
    const { store, name: owner, runs, clock, settings } = this.#worker;
    const now = clock.now();
    // Runs that leave while the store answers are not missing.
    const loaded = new RunMap<true>();
    for (const { log } of runs) loaded.set(log.key, true);
    const owned = await store.owned(owner, Number.POSITIVE_INFINITY);
    const missing = owned.filter((key) => !loaded.has(key) && !isKnown(key));
    const before = this.#given;
    // After the clock was set back, the time counts from now.
    const last = (key: RunKey): number => Math.min(before.get(key) ?? Number.NEGATIVE_INFINITY, now);
    const due = missing.filter((key) => now - last(key) >= settings.leaseMs);
    this.#given = new RunMap();
    for (const key of missing) this.#given.set(key, last(key));
    for (const key of due) this.#given.set(key, now);
    return due;
  }
}
