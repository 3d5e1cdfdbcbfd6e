import type { RunKey } from "../core/ports.ts";
import type { Worker } from "./worker.ts";

/**
 * Finds runs that this process owns and has not loaded. This happens when an answer of the store was lost, when the
 * store has lost its last commits, and when a run could be neither loaded nor released. They are those for which the
 * store names this process as the owner for the time of a lease.
 */
export class UnloadedRuns {
  readonly #worker: Worker;
  /** The runs of this process in the store that it has not loaded, with the times when they were first found. */
  #found = new Map<string, number>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /**
   * Compares the runs that this process owns in the store with its loaded runs. `isKnown`: whether a run is loaded here,
   * or is being loaded.
   */
  async find(isKnown: (key: RunKey) => boolean): Promise<readonly RunKey[]> {
    const { store, name: owner, clock, settings } = this.#worker;
    const now = clock.now();
    const before = this.#found;
    this.#found = new Map();
    const certain: RunKey[] = [];
    for (const key of await store.owned(owner, Number.POSITIVE_INFINITY)) {
      if (isKnown(key)) continue;
      // After the clock was set back, the time counts from now.
      const since = Math.min(before.get(key.run_id) ?? now, now);
      const isCertain = now - since >= settings.leaseMs;
      if (isCertain) certain.push(key);
      this.#found.set(key.run_id, isCertain ? now : since);
    }
    return certain;
  }
}
