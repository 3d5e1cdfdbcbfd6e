import type { StepUse } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { waitFor } from "../core/time.ts";
import type { StepLimits } from "../runtime/log/step-limits.ts";
import { FIRST_PAUSE_MS, nextPauseMs, pollMs } from "../runtime/log/store-failures.ts";
import type { Lease } from "./recovery/lease.ts";
import type { Worker } from "./recovery/worker.ts";

/**
 * Limits of steps that the store counts, over all its processes. Permits that it gives to this process while others give
 * theirs back are looked for when a hint tells of them, at each heartbeat, and, where there are no hints, as often as what
 * other processes write. Nothing is asked while no step waits for a permit.
 */
export class StoredStepLimits {
  readonly #worker: Worker;
  readonly #lease: Lease;
  /** How often the lease had expired, as far as the store was told after it what this process has at work. */
  #lapses = 0;
  #unwatch: (() => void) | undefined;
  #clearLook: (() => void) | undefined;

  constructor(worker: Worker, lease: Lease) {
    const { store } = worker;
    this.#worker = worker;
    this.#lease = lease;
    if (!store.persistent) return;
    this.#limits.countBy({
      grant: (name, rate, wanted) => this.#surely(name, () => store.grantSteps(name, rate, wanted)),
      permit: (name, max, use) => this.#surely(name, () => this.#permit(name, max, use)),
    });
  }

  get #limits(): StepLimits {
    return this.#worker.runs.shared.settings.stepLimits;
  }

  /** The lease keeps the permits. */
  async #permit(name: string, max: number, use: StepUse): Promise<number> {
    const { store, name: owner } = this.#worker;
    this.#unwatch ??= store.watch?.(({ permits }) => permits === true && this.#limits.look());
    if (!this.#lease.isHeld) await this.#lease.renew();
    const given = await store.permitSteps(owner, name, max, use);
    if (given < use.wanted && store.watch === undefined) this.#lookLater();
    return given;
  }

  /** After a heartbeat. While the lease had expired, the store may have given the permits of this process to others. */
  onRenewed(): void {
    const { lapses } = this.#lease;
    this.#limits.look(lapses === this.#lapses ? undefined : "what is held");
    this.#lapses = lapses;
  }

  /** Gives all permits back before the lease ends. */
  async stop(): Promise<void> {
    this.#unwatch?.();
    this.#clearLook?.();
    await this.#limits.end();
  }

  /** Calls until the call succeeds, or the runtime is closed. */
  async #surely<T>(limit: string, call: () => MaybePromise<T>): Promise<T> {
    const { clock, logger } = this.#worker;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = nextPauseMs(pauseMs)) {
      try {
        return await call();
      } catch (error) {
        if (this.#worker.isOver) throw error;
        logger.warn("The store failed to count a step that has a limit. It is tried again.", { limit, error });
      }
      await waitFor(clock, pauseMs);
    }
  }

  #lookLater(): void {
    const { clock, store } = this.#worker;
    this.#clearLook ??= clock.setTimeout(() => {
      this.#clearLook = undefined;
      this.#limits.look();
    }, pollMs(store));
  }
}
