import { inBackground } from "../../core/background.ts";
import type { Clock, Logger, Store } from "../../core/ports.ts";
import { isPromise } from "../../core/promises.ts";
import { systemChance } from "../log/system.ts";
import type { Settings } from "./options.ts";

/** When a process prunes for the first time at the latest, in milliseconds after its start. */
const FIRST_PAUSE_MS = 1_000;
/** The longest and the shortest pause between two prunings, in milliseconds. */
const MAX_PAUSE_MS = 600_000;
const MIN_PAUSE_MS = 1_000;
/** A number of runs may be exceeded by one in so many. */
const EXCESS = 16;

/**
 * Has the store delete ended runs and unused sessions above the retention: soon after the process has started, at an
 * interval, and when many runs have ended. The store may hold runs of processes that did not live for an interval. A
 * store in memory is empty at first, and is pruned from the first run on.
 *
 * What is limited for each tenant is looked at for the tenants whose runs end. A look at one costs a persistent store as
 * much as the tenant keeps, and a process may not live to see many of its runs end: so it looks by chance, on average
 * once for each sixteenth of what the tenant may keep.
 */
export class Pruning {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #retention: Settings["retention"];
  /** How many ended runs, and sessions, of one tenant are kept. */
  readonly #perTenant: { readonly maxRuns: number; readonly maxSessions: number };
  /** How many runs may end before the next pruning. */
  readonly #maxEnded: number;
  /** How many runs have ended since the last pruning. */
  #ended = 0;
  /** The tenants to look at. */
  readonly #tenants = new Set<string>();
  #clearTimer: (() => void) | undefined;
  #isOver = false;

  constructor({ store, clock, logger, retention, perTenant }: Settings) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
    this.#retention = retention;
    this.#perTenant = { maxRuns: perTenant.storedRuns, maxSessions: perTenant.sessions };
    this.#maxEnded = (store.persistent ? retention.maxRuns : Math.min(retention.maxRuns, this.#fewest)) / EXCESS;
  }

  start(): void {
    if (this.#store.persistent) this.#pruneIn(FIRST_PAUSE_MS);
  }

  onEnded(tenant: string): void {
    if (this.#isOver) return;
    this.#ended += 1;
    if (this.#isToLookAt) this.#lookAt(tenant);
    if (this.#ended > this.#maxEnded) this.#prune();
    else this.#pruneLater();
  }

  stop(): void {
    this.#isOver = true;
    this.#clearTimer?.();
  }

  /** The lower one of a tenant's two limits: of ended runs, and of sessions. */
  get #fewest(): number {
    return Math.min(this.#perTenant.maxRuns, this.#perTenant.maxSessions);
  }

  /** Whether the next pruning is to look at the tenant of a run that has ended. A store in memory looks at few things. */
  get #isToLookAt(): boolean {
    const fewest = this.#fewest;
    return fewest < Number.POSITIVE_INFINITY && (!this.#store.persistent || systemChance() * fewest < EXCESS);
  }

  #lookAt(tenant: string): void {
    const isFirst = this.#tenants.size === 0;
    this.#tenants.add(tenant);
    if (!isFirst || !this.#store.persistent) return;
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#pruneIn(MIN_PAUSE_MS);
  }

  #pruneLater(): void {
    const { maxAgeMs, maxIdleSessionMs } = this.#retention;
    this.#pruneIn(Math.max(MIN_PAUSE_MS, Math.min(MAX_PAUSE_MS, maxAgeMs / 10, maxIdleSessionMs / 10)));
  }

  /** Not all at once, where many processes have started together. */
  #pruneIn(atMostMs: number): void {
    if (this.#clearTimer !== undefined || this.#isOver || !this.#isLimited) return;
    const pauseMs = atMostMs * (1 - systemChance() / 4);
    this.#clearTimer = this.#clock.setTimeout(() => this.#prune(), pauseMs);
  }

  /**
   * Whether time alone may bring something to delete: a store in memory is within its numbers after each run, and deletes
   * the old events of its feed by itself.
   */
  get #isLimited(): boolean {
    const { maxRuns, maxAgeMs, maxIdleSessionMs } = this.#retention;
    const { persistent, readFeed } = this.#store;
    if (Number.isFinite(maxAgeMs) || Number.isFinite(maxIdleSessionMs)) return true;
    return persistent && (readFeed !== undefined || Number.isFinite(maxRuns) || Number.isFinite(this.#fewest));
  }

  #prune(): void {
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#ended = 0;
    const { maxRuns, maxAgeMs, maxIdleSessionMs } = this.#retention;
    const tenants = [...this.#tenants];
    this.#tenants.clear();
    const now = this.#clock.now();
    try {
      const pruned = this.#store.prune({
        maxRuns,
        endedBefore: now - maxAgeMs,
        sessionsBefore: now - maxIdleSessionMs,
        ...(tenants.length > 0 && { perTenant: { tenants, ...this.#perTenant } }),
      });
      if (isPromise(pruned))
        inBackground(
          this.#logger,
          pruned.catch((error: unknown) => this.#pruneFailed(error, tenants)),
        );
    } catch (error) {
      this.#pruneFailed(error, tenants);
    }
    this.#pruneLater();
  }

  /** The tenants are looked at when the store is pruned again. */
  #pruneFailed(error: unknown, tenants: readonly string[]): void {
    for (const tenant of tenants) this.#tenants.add(tenant);
    this.#logger.error("The store failed to delete ended runs and unused sessions. It is tried again later.", {
      error,
    });
  }
}
