import { ignore } from "../core/promises.ts";
import type { LiveRun } from "../runtime/live-run.ts";
import type { Worker } from "./worker.ts";

/** The share of the lease by which it ends earlier for its owner, because work begins a moment after the check. */
const MARGIN = 0.1;

/**
 * The right of this process to execute runs. Heartbeats renew it on a timer of their own, so that no other work delays
 * them. The store measures the lease with its own clock. The process measures it from before the request, and so never
 * longer than the store.
 */
export class Lease {
  readonly #worker: Worker;
  /** The runs that other processes may have taken over while the lease had expired. */
  readonly #doubted = new WeakSet<LiveRun>();
  #renewedAt = Number.NEGATIVE_INFINITY;
  #clearTimer: (() => void) | undefined;
  #beating: Promise<void> = Promise.resolve();
  #renewing: Promise<void> | undefined;
  #isOn = false;

  readonly #onRenewed: () => Promise<void>;

  /** `onRenewed`: called after each heartbeat, to compare what this process executes with what the store says. */
  constructor(worker: Worker, onRenewed: () => Promise<void>) {
    this.#worker = worker;
    this.#onRenewed = onRenewed;
  }

  /**
   * Begins to own runs. The lease is requested before the first run is written, so that no other process takes the run
   * over.
   */
  start(): void {
    this.#isOn = true;
    void this.renew().catch(ignore);
    this.#beatLater(this.#worker.settings.heartbeatMs);
  }

  /** Stops the heartbeats. The lease ends with the store's `release`. Resolves when no heartbeat is pending. */
  async stop(): Promise<void> {
    this.#isOn = false;
    this.#clearTimer?.();
    await this.#beating;
  }

  /** Renews the lease for its whole time. Concurrent calls share one request. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Renews an expired lease: the store would give the runs of this process to any other. Undefined: it holds. */
  renewIfExpired(): undefined | Promise<void> {
    return this.isHeld ? undefined : this.renew();
  }

  async #renew(): Promise<void> {
    const { store, name: owner, runs, clock } = this.#worker;
    const before = this.#renewedAt;
    const now = clock.now();
    await store.renew(owner, this.#worker.settings.leaseMs);
    const isLate = before !== Number.NEGATIVE_INFINITY && this.#isOver(before, clock.now());
    if (isLate) for (const run of runs) this.#doubted.add(run);
    this.#renewedAt = now;
  }

  /**
   * Checks that this process still owns a run. Undefined: it does. A promise: check again when it resolves. The promise
   * stays pending if the run is lost.
   */
  ensure(run: LiveRun): undefined | Promise<void> {
    if (!this.#isOn || (this.isHeld && !this.#doubted.has(run))) return undefined;
    return this.#reassure(run);
  }

  /** Whether the lease holds, less the safety margin. */
  get isHeld(): boolean {
    const { leaseMs } = this.#worker.settings;
    const now = this.#worker.clock.now();
    // After the clock was set back, the age of the renewal is unknown.
    return now >= this.#renewedAt && now < this.#renewedAt + leaseMs * (1 - MARGIN);
  }

  #isOver(renewedAt: number, now: number): boolean {
    return now < renewedAt || now >= renewedAt + this.#worker.settings.leaseMs;
  }

  #beatLater(delayMs: number): void {
    this.#clearTimer = this.#worker.clock.setTimeout(() => {
      this.#beating = this.#beat();
    }, delayMs);
  }

  async #beat(): Promise<void> {
    const { leaseMs, heartbeatMs } = this.#worker.settings;
    let wait = heartbeatMs;
    try {
      await this.renew();
    } catch (error) {
      // A shorter interval allows several tries before the lease expires.
      wait = Math.min(heartbeatMs, leaseMs / 8);
      this.#worker.logger.error("The store failed to renew the lease.", { error });
    }
    if (!this.#isOn) return;
    this.#beatLater(wait);
    await this.#onRenewed().catch((error: unknown) =>
      this.#worker.logger.error(
        "The store failed to read what other processes have written to the runs of this one. The next heartbeat reads it again.",
        { error },
      ),
    );
  }

  async #reassure(run: LiveRun): Promise<void> {
    for (;;) {
      try {
        await this.renew();
        // No process can have claimed the run since the renewal. If one has claimed it before, the epoch differs.
        this.#doubted.delete(run);
        await run.ownership.catchUpSurely();
        if (this.isHeld && !this.#doubted.has(run)) break;
      } catch (error) {
        this.#doubted.add(run);
        this.#worker.logger.error("The store failed to renew the lease.", { error });
        await new Promise<void>((resolve) => this.#worker.clock.setTimeout(resolve, this.#worker.settings.leaseMs / 8));
      }
    }
    if (run.log.lost) await new Promise(ignore);
  }
}
