import type { Clock, Logger, RunKey, Store, StoredRun } from "../core/ports.ts";

/** What is needed to find runs whose owner does not know of them. */
export interface LostAnswersHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The name under which this process owns runs. */
  readonly owner: string;
}

/** What is done with a run that is found. */
export interface FoundAgain {
  /** Whether the run is loaded here, or is being loaded. */
  isKnown(key: RunKey): boolean;
  /** Begins work on a run that this process owns. */
  begin(found: StoredRun): Promise<void>;
}

/** A call whose answer was lost may still be carried out: for so many leases its runs are looked for. */
const LEASES_UNTIL_SETTLED = 10;

/**
 * A run may belong to this process although the process never learned it, since an answer of the store was lost, or although it could
 * neither load the run nor give it back. After a lease that is certain, and work on the run begins.
 */
export class LostAnswers {
  readonly #host: LostAnswersHost;
  readonly #leaseMs: number;
  readonly #runs: FoundAgain;
  /** Runs of this process in the store that it does not know, each with the time when that was seen first. */
  #unknown = new Map<string, number>();
  /** Since when an answer of the store is missing that may have given this process runs. */
  #since: number | undefined;

  constructor(host: LostAnswersHost, leaseMs: number, runs: FoundAgain) {
    this.#host = host;
    this.#leaseMs = leaseMs;
    this.#runs = runs;
  }

  /** The store failed in a way that may have left runs with this process that it does not know. */
  note(): void {
    this.#since = this.#host.clock.now();
  }

  /** Compares what this process owns with what it knows, if an answer is missing. */
  async compare(): Promise<void> {
    const since = this.#since;
    if (since === undefined) return;
    const { store, clock, owner } = this.#host;
    const now = clock.now();
    const before = this.#unknown;
    this.#unknown = new Map();
    const certain: RunKey[] = [];
    for (const key of await store.owned(owner, Number.POSITIVE_INFINITY)) {
      if (this.#runs.isKnown(key)) continue;
      // A clock that was set back begins to count anew.
      const seen = Math.min(before.get(key.run_id) ?? now, now);
      const isCertain = now - seen >= this.#leaseMs;
      if (isCertain) certain.push(key);
      this.#unknown.set(key.run_id, isCertain ? now : seen);
    }
    const isSettled = this.#unknown.size === 0 && now - since >= LEASES_UNTIL_SETTLED * this.#leaseMs;
    if (isSettled && this.#since === since) this.#since = undefined;
    for (const key of certain) await this.#begin(key);
  }

  /** A run that cannot be read is looked at again after a lease, and keeps no other from being found. */
  async #begin(key: RunKey): Promise<void> {
    const { store, owner, logger } = this.#host;
    try {
      const found = await store.find(key);
      if (found?.head.owner === owner) await this.#runs.begin(found);
    } catch (error) {
      logger.error(`Run ${key.run_id} belongs to this process, and could not be read.`, { ...key, error });
    }
  }
}
