import type { Clock, Logger, Store } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import type { LiveRun } from "./live-run.ts";
import type { DurabilitySettings } from "./options.ts";

/** What the lease needs from the runs of the process. */
export interface LeaseHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The name under which this process owns runs. */
  readonly owner: string;
  /** The live runs of this process. */
  [Symbol.iterator](): Iterator<LiveRun>;
}

/** The share of the lease by which it ends earlier for its owner, because work begins a moment after the check. */
const MARGIN = 0.1;

/**
 * The right of this process to execute runs. Heartbeats renew it on a timer of their own, so that no other work delays
 * them. The store measures the lease with its own clock. The process measures it from before the request, and so never
 * longer than the store.
 */
export class Lease {
  readonly #host: LeaseHost;
  readonly #settings: DurabilitySettings;
  /** The runs that other processes may have taken over while the lease had expired. */
  readonly #doubted = new WeakSet<LiveRun>();
  #renewedAt = Number.NEGATIVE_INFINITY;
  #clearTimer: (() => void) | undefined;
  #beating: Promise<void> = Promise.resolve();
  #renewing: Promise<void> | undefined;
  #isOn = false;

  readonly #onRenewed: () => Promise<void>;

  /** `onRenewed`: called after each heartbeat, to compare what this process executes with what the store says. */
  constructor(host: LeaseHost, settings: DurabilitySettings, onRenewed: () => Promise<void>) {
    this.#host = host;
    this.#settings = settings;
    this.#onRenewed = onRenewed;
  }

  /**
   * Begins to own runs. The lease is requested before the first run is written, so that no other process takes the run
   * over.
   */
  start(): void {
    this.#isOn = true;
    void this.renew().catch(ignore);
    this.#beatLater(this.#settings.heartbeatMs);
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

  async #renew(): Promise<void> {
    const { store, clock, owner } = this.#host;
    const before = this.#renewedAt;
    const now = clock.now();
    await store.renew(owner, this.#settings.leaseMs);
    const isLate = before !== Number.NEGATIVE_INFINITY && this.#isOver(before, clock.now());
    if (isLate) for (const run of this.#host) this.#doubted.add(run);
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
    const { leaseMs } = this.#settings;
    const now = this.#host.clock.now();
    // After the clock was set back, the age of the renewal is unknown.
    return now >= this.#renewedAt && now < this.#renewedAt + leaseMs * (1 - MARGIN);
  }

  #isOver(renewedAt: number, now: number): boolean {
    return now < renewedAt || now >= renewedAt + this.#settings.leaseMs;
  }

  #beatLater(delayMs: number): void {
    this.#clearTimer = this.#host.clock.setTimeout(() => {
      this.#beating = this.#beat();
    }, delayMs);
  }

  async #beat(): Promise<void> {
    const { leaseMs, heartbeatMs } = this.#settings;
    let wait = heartbeatMs;
    try {
      await this.renew();
    } catch (error) {
      // A shorter interval allows several tries before the lease expires.
      wait = Math.min(heartbeatMs, leaseMs / 8);
      this.#host.logger.error("The store failed to renew the lease.", { error });
    }
    if (!this.#isOn) return;
    this.#beatLater(wait);
    await this.#onRenewed().catch((error: unknown) =>
      this.#host.logger.error(
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
        await run.log.catchUp(true);
        if (this.isHeld && !this.#doubted.has(run)) break;
      } catch (error) {
        this.#doubted.add(run);
        this.#host.logger.error("The store failed to renew the lease.", { error });
        await new Promise<void>((resolve) => this.#host.clock.setTimeout(resolve, this.#settings.leaseMs / 8));
      }
    }
    if (run.log.lost) await new Promise(ignore);
  }
}
