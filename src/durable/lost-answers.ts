import type { RunKey } from "../core/ports.ts";
import type { Worker } from "./worker.ts";

/**
 * A call whose answer was lost may still be carried out later. For so many leases the runs of this process are compared
 * with the store.
 */
const LEASES_UNTIL_SETTLED = 10;

/**
 * Finds runs that this process owns and has not loaded. This happens when an answer of the store was lost, or when a
 * run could be neither loaded nor released. They are those for which the store names this process as the owner for the
 * time of a lease.
 */
export class LostAnswers {
  readonly #worker: Worker;
  /** The runs of this process in the store that it has not loaded, with the times when they were first found. */
  #unknown = new Map<string, number>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /**
   * Compares the runs that this process owns in the store with its loaded runs, if the outcome of a call is unknown.
   * `isKnown`: whether a run is loaded here, or is being loaded.
   */
  async find(isKnown: (key: RunKey) => boolean): Promise<readonly RunKey[]> {
    const { store, name: owner, clock, settings, unsettledSince: since } = this.#worker;
    if (since === undefined) return [];
    const { leaseMs } = settings;
    const now = clock.now();
    const before = this.#unknown;
    this.#unknown = new Map();
    const certain: RunKey[] = [];
    for (const key of await store.owned(owner, Number.POSITIVE_INFINITY)) {
      if (isKnown(key)) continue;
      // After the clock was set back, the time counts from now.
      const seen = Math.min(before.get(key.run_id) ?? now, now);
      const isCertain = now - seen >= leaseMs;
      if (isCertain) certain.push(key);
      this.#unknown.set(key.run_id, isCertain ? now : seen);
    }
    const isSettled = this.#unknown.size === 0 && now - since >= LEASES_UNTIL_SETTLED * leaseMs;
    if (isSettled && this.#worker.unsettledSince === since) this.#worker.unsettledSince = undefined;
    return certain;
  }
}
