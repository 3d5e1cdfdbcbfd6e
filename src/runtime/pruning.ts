import { inBackground } from "../core/background.ts";
import type { Clock, Logger, Store } from "../core/ports.ts";
import { isPromise } from "../core/promises.ts";
import type { Settings } from "./options.ts";
import { systemChance } from "./system.ts";

/** When a process prunes for the first time at the latest, in milliseconds after its start. */
const FIRST_PAUSE_MS = 1_000;
/** The longest and the shortest pause between two prunings, in milliseconds. */
const MAX_PAUSE_MS = 600_000;
const MIN_PAUSE_MS = 1_000;

/**
 * Has the store delete ended runs and unused sessions above the retention: soon after the process has started, at an
 * interval, and when many runs have ended. The store may hold runs of processes that did not live for an interval. A
 * store in memory is empty at first, and is pruned from the first run on.
 */
export class Pruning {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #retention: Settings["retention"];
  /** How many runs have ended since the last pruning. */
  #ended = 0;
  #clearTimer: (() => void) | undefined;
  #isOver = false;

  constructor({ store, clock, logger, retention }: Settings) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
    this.#retention = retention;
  }

  start(): void {
    if (this.#store.persistent) this.#pruneIn(FIRST_PAUSE_MS);
  }

  onEnded(): void {
    if (this.#isOver) return;
    this.#ended += 1;
    if (this.#ended > this.#retention.maxRuns / 16) this.#prune();
    else this.#pruneLater();
  }

  stop(): void {
    this.#isOver = true;
    this.#clearTimer?.();
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
   * Whether time alone may bring something to delete: a store in memory is within `maxRuns` after each run, and deletes the
   * old events of its feed by itself.
   */
  get #isLimited(): boolean {
    const { maxRuns, maxAgeMs, maxIdleSessionMs } = this.#retention;
    const limits = this.#store.persistent ? [maxRuns, maxAgeMs, maxIdleSessionMs] : [maxAgeMs, maxIdleSessionMs];
    return limits.some(Number.isFinite) || (this.#store.persistent && this.#store.readFeed !== undefined);
  }

  #prune(): void {
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#ended = 0;
    const { maxRuns, maxAgeMs, maxIdleSessionMs } = this.#retention;
    const now = this.#clock.now();
    try {
      const pruned = this.#store.prune({
        maxRuns,
        endedBefore: now - maxAgeMs,
        sessionsBefore: now - maxIdleSessionMs,
      });
      if (isPromise(pruned))
        inBackground(
          this.#logger,
          pruned.catch((error: unknown) => this.#pruneFailed(error)),
        );
    } catch (error) {
      this.#pruneFailed(error);
    }
    this.#pruneLater();
  }

  #pruneFailed(error: unknown): void {
    this.#logger.error("The store failed to delete ended runs and unused sessions. It is tried again later.", {
      error,
    });
  }
}
