import { endOf, inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { Moment } from "../../core/time.ts";
import { momentOf, msSince, waitFor } from "../../core/time.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import type { Worker } from "./worker.ts";

/** The share of the lease by which it ends earlier for its owner, because work begins a moment after the check. */
const MARGIN = 0.1;
/**
 * After an outage of the store of more than this share of the lease, other leases may have expired too. For as long a
 * time nothing is taken over, so that living processes can renew theirs: no call of a store lasts longer.
 */
const OUTAGE = 0.5;
/** The share of the lease that a renewal may take. If it fails, a second and a third one are in time. */
const RENEWAL = 0.25;

/**
 * The right of this process to execute runs. Heartbeats renew it on a timer of their own, so that no other work delays
 * them. The store measures the lease with its own clock. The process measures it from before the request, and so never
 * longer than the store. Its wall clock may stand still while it is frozen, and its monotonic clock while the machine
 * sleeps: it takes the larger age.
 */
export class Lease {
  readonly #worker: Worker;
  /** The runs that other processes may have taken over while the lease had expired. */
  readonly #doubted = new WeakSet<LiveRun>();
  /** How often it was renewed after it had expired. */
  lapses = 0;
  /** When the last renewal was requested. Undefined: it was not yet. */
  #renewed: Moment | undefined;
  /** Whether the store has failed since the last renewal. */
  #hasFailed = false;
  /** The store's time, as the last renewal has told it. Undefined: it told none. */
  #told: number | undefined;
  /** When the first renewal after an outage was answered. */
  #outageEnded: Moment | undefined;
  /** Stops the timer of the next heartbeat. Undefined: there are no heartbeats, before the start and after the stop. */
  #clearTimer: (() => void) | undefined;
  #beating: Promise<void> = Promise.resolve();
  #renewing: Promise<void> | undefined;

  readonly #onRenewed: () => void;

  /** `onRenewed`: called at each heartbeat. It is not waited for. */
  constructor(worker: Worker, onRenewed: () => void) {
    this.#worker = worker;
    this.#onRenewed = onRenewed;
  }

  /**
   * Begins to own runs. The lease is requested before the first run is written, so that no other process takes the run
   * over.
   */
  start(): void {
    inBackground(this.#worker.logger, this.renew().catch(ignore));
    this.#beatLater(this.#worker.settings.heartbeatMs);
  }

  /** Stops the heartbeats. The lease ends with the store's `release`. Resolves when no heartbeat is pending. */
  async stop(): Promise<void> {
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    await this.#beating;
  }

  /** Renews the lease for its whole time, and learns the store's time. Concurrent calls share one request. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /**
   * Renews a lease that has expired, because the store would give the runs of this process to any other; and one during
   * which the store has failed, or the machine's clock was set. Undefined: it holds.
   */
  renewBeforeTaking(): undefined | Promise<void> {
    const { isSet } = this.#worker.clock;
    return this.isHeld && !this.#hasFailed && !isSet ? undefined : this.renew();
  }

  /** The store has failed to give work. */
  onFailure(): void {
    this.#hasFailed = true;
  }

  /** How long nothing is taken over yet, in milliseconds: other processes renew their leases after an outage. */
  get waitMs(): number {
    if (this.#outageEnded === undefined) return 0;
    const waited = msSince(this.#worker.clock.machine, this.#outageEnded);
    // After the only clock was set back, the wait is over.
    return waited < 0 ? 0 : Math.max(0, OUTAGE * this.#worker.settings.leaseMs - waited);
  }

  /** How long ago it was renewed, in milliseconds. Null: it was not. */
  get ageMs(): number | null {
    return this.#renewed === undefined ? null : msSince(this.#worker.clock.machine, this.#renewed);
  }

  async #renew(): Promise<void> {
    const { runs, clock, settings } = this.#worker;
    const before = this.#renewed;
    const requested = momentOf(clock.machine);
    try {
      const asking = this.#told === undefined ? clock.ask() : undefined;
      // A renewal that throws at once is what fails then.
      asking?.catch(ignore);
      await this.#inTime([asking, this.#extend()]);
    } catch (error) {
      this.#hasFailed = true;
      throw error;
    }
    const lastedMs = before === undefined ? Number.POSITIVE_INFINITY : msSince(clock.machine, before);
    if (this.#hasFailed && lastedMs > OUTAGE * settings.leaseMs) this.#outageEnded = momentOf(clock.machine);
    this.#hasFailed = false;
    const isLate = before !== undefined && !isWithin(lastedMs, settings.leaseMs);
    if (isLate) {
      this.lapses += 1;
      for (const run of runs) this.#doubted.add(run);
    }
    this.#renewed = requested;
  }

  /** The store extends the lease, and may tell its time. */
  #extend(): MaybePromise<void> {
    const { store, name: owner, clock, settings } = this.#worker;
    const askedAt = clock.monotonic();
    const onAnswer = (time: unknown): void => {
      this.#told = typeof time === "number" ? time : undefined;
      if (this.#told !== undefined) clock.onAnswer(this.#told, askedAt);
    };
    const renewed = store.renew(owner, settings.leaseMs);
    return isPromise(renewed) ? renewed.then(onAnswer) : onAnswer(renewed);
  }

  /** Fails for a store that does not answer, so that the next heartbeat asks it again. */
  async #inTime(answers: readonly (undefined | MaybePromise<void>)[]): Promise<void> {
    if (!answers.some(isPromise)) return;
    const { clock, logger, settings } = this.#worker;
    const waitMs = RENEWAL * settings.leaseMs;
    let clear: () => void = ignore;
    const late = new Promise<never>((_resolve, reject) => {
      const fail = (): void =>
        reject(new CadenzaError("store_failed", `The store did not answer within ${waitMs} ms.`));
      // After a freeze of the process an answer may be there too.
      clear = clock.setTimeout(() => inBackground(logger, clock.turn().then(fail)), waitMs);
    });
    await Promise.race([Promise.all(answers), late]).finally(() => clear());
  }

  /**
   * Checks that this process still owns a run. Undefined: it does. A promise: check again when it resolves. The promise
   * stays pending if the run is lost.
   */
  ensure(run: LiveRun): undefined | Promise<void> {
    if (this.#clearTimer === undefined || (this.isHeld && !this.#doubted.has(run))) return undefined;
    return this.#reassure(run);
  }

  /** Whether the lease holds, less the safety margin. */
  get isHeld(): boolean {
    const { clock, settings } = this.#worker;
    return (
      this.#renewed !== undefined && isWithin(msSince(clock.machine, this.#renewed), settings.leaseMs * (1 - MARGIN))
    );
  }

  #beatLater(delayMs: number): void {
    this.#clearTimer = this.#worker.clock.setTimeout(() => {
      this.#beating = endOf(this.#worker.logger, this.#beat());
    }, delayMs);
  }

  async #beat(): Promise<void> {
    const { clock } = this.#worker;
    const { leaseMs, heartbeatMs } = this.#worker.settings;
    const since = momentOf(clock.machine);
    let wait = heartbeatMs;
    try {
      await this.renew();
    } catch (error) {
      // A shorter interval allows several tries before the lease expires. A store may fail late.
      const retryMs = Math.min(heartbeatMs, leaseMs / 8);
      wait = Math.min(retryMs, Math.max(0, retryMs - msSince(clock.machine, since)));
      this.#worker.logger.error("The store failed to renew the lease.", { error });
    }
    if (this.#clearTimer === undefined) return;
    this.#beatLater(wait);
    this.#onRenewed();
  }

  async #reassure(run: LiveRun): Promise<void> {
    for (;;) {
      try {
        await this.renew();
        // No process can have claimed the run since the renewal. If one has claimed it before, the epoch differs.
        this.#doubted.delete(run);
        await run.residence?.sync("after writing");
        if (this.isHeld && !this.#doubted.has(run)) break;
      } catch (error) {
        this.#doubted.add(run);
        this.#worker.logger.error("The store failed to renew the lease.", { error });
        await waitFor(this.#worker.clock, this.#worker.settings.leaseMs / 8);
      }
    }
    if (run.log.lost) await new Promise(ignore);
  }
}

/** Whether an age is known, and is less than a time. */
function isWithin(ageMs: number, ms: number): boolean {
  return ageMs >= 0 && ageMs < ms;
}
