import type { RunKey, StoredRun } from "../core/ports.ts";
import type { Owner } from "./owner.ts";

/** The runs of the process. */
export interface FoundAgain {
  /** Whether the run is loaded here, or is being loaded. */
  isKnown(key: RunKey): boolean;
  /** Begins work on a run that this process owns. */
  begin(found: StoredRun): Promise<void>;
}

/**
 * A call whose answer was lost may still be carried out later. For so many leases the runs of this process are compared
 * with the store.
 */
const LEASES_UNTIL_SETTLED = 10;

/**
 * Finds runs that this process owns and has not loaded. This happens when an answer of the store was lost, or when a
 * run could be neither loaded nor released. If the store names this process as the owner for the time of a lease, work
 * on the run begins.
 */
export class LostAnswers {
  readonly #owner: Owner;
  readonly #runs: FoundAgain;
  /** The runs of this process in the store that it has not loaded, with the times when they were first found. */
  #unknown = new Map<string, number>();
  /** The time of the last call with an unknown outcome. Undefined: all calls are settled. */
  #since: number | undefined;

  constructor(owner: Owner, runs: FoundAgain) {
    this.#owner = owner;
    this.#runs = runs;
  }

  /** A call to the store failed. The store may still have made this process the owner of a run. */
  note(): void {
    this.#since = this.#owner.runs.shared.clock.now();
  }

  /**
   * Compares the runs that this process owns in the store with its loaded runs, if the outcome of a call is unknown.
   */
  async compare(): Promise<void> {
    const since = this.#since;
    if (since === undefined) return;
    const { store, name: owner, runs, settings } = this.#owner;
    const { leaseMs } = settings;
    const now = runs.shared.clock.now();
    const before = this.#unknown;
    this.#unknown = new Map();
    const certain: RunKey[] = [];
    for (const key of await store.owned(owner, Number.POSITIVE_INFINITY)) {
      if (this.#runs.isKnown(key)) continue;
      // After the clock was set back, the time counts from now.
      const seen = Math.min(before.get(key.run_id) ?? now, now);
      const isCertain = now - seen >= leaseMs;
      if (isCertain) certain.push(key);
      this.#unknown.set(key.run_id, isCertain ? now : seen);
    }
    const isSettled = this.#unknown.size === 0 && now - since >= LEASES_UNTIL_SETTLED * leaseMs;
    if (isSettled && this.#since === since) this.#since = undefined;
    for (const key of certain) await this.#begin(key);
  }

  /** A run that cannot be read is tried again after the time of a lease. Other runs are not affected. */
  async #begin(key: RunKey): Promise<void> {
    const { store, name: owner, runs } = this.#owner;
    try {
      const found = await store.find(key);
      if (found?.head.owner === owner) await this.#runs.begin(found);
    } catch (error) {
      runs.shared.logger.error(
        `Run ${key.run_id} is owned by this process, but could not be read. Reading it is tried again later.`,
        { ...key, error },
      );
    }
  }
}
