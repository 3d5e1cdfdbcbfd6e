import { inBackground } from "../core/background.ts";
import type { Clock, Logger, Store } from "../core/ports.ts";
import { isPromise } from "../core/promises.ts";
import type { Settings } from "./options.ts";

/**
 * Has the store delete ended runs and unused sessions above the retention: at an interval, and when many runs have
 * ended.
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

  onEnded(): void {
    this.#ended += 1;
    if (this.#ended > this.#retention.maxRuns / 16) this.#prune();
    else this.#pruneLater();
  }

  stop(): void {
    this.#isOver = true;
    this.#clearTimer?.();
  }

  #pruneLater(): void {
    if (this.#clearTimer !== undefined || this.#isOver) return;
    const { maxAgeMs, maxIdleSessionMs } = this.#retention;
    const wait = Math.min(maxAgeMs, maxIdleSessionMs) / 10;
    if (wait === Number.POSITIVE_INFINITY) return;
    this.#clearTimer = this.#clock.setTimeout(() => this.#prune(), Math.max(wait, 1_000));
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
