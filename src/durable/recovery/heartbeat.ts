import { endOf, inBackground } from "../../core/background.ts";
import type { RunKey } from "../../core/ports.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { RunMap } from "../../core/run-map.ts";
import type { Moment } from "../../core/time.ts";
import { momentOf, msSince } from "../../core/time.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import type { Lease } from "./lease.ts";
import { leased } from "./leased-residence.ts";
import type { RunLoader } from "./run-loader.ts";
import type { Worker } from "./worker.ts";

/** How many positions are compared at once. A synchronous store blocks the event loop meanwhile. */
const COMPARED_AT_ONCE = 32;
/** The same where the store answers later. */
const COMPARED_LATER = 1_000;
/** When to look again at a run that is being written as the store tells of it, in milliseconds: its next write may do. */
const NEXT_WRITE_MS = 20;

/**
 * Compares what this process executes with what the store says: all of it after a renewal of the lease, unless the last
 * comparison is still under way, and a run of which the store tells at once. The renewals do not wait for it.
 */
export class Heartbeat {
  readonly #worker: Worker;
  readonly #lease: Lease;
  readonly #loader: RunLoader;
  readonly #unloaded: UnloadedRuns;
  /** The loaded runs of which the store has told, with how many writes each had begun by then. */
  readonly #hinted = new Map<LiveRun, number>();
  /** Ends the pause before the next look at runs that are being written. Undefined: no pause is under way. */
  #endPause: (() => void) | undefined;
  /** The other workers that lived at the last reading. Undefined: there was none. */
  #others: ReadonlySet<string> | undefined;
  /** When it was read which other workers live, if they were the same as at the reading before. */
  #met: Moment | undefined;
  /** Undefined: no comparison is under way. */
  #comparingAll: Promise<void> | undefined;
  #comparingHinted: Promise<void> | undefined;
  #unwatch: (() => void) | undefined;

  constructor(worker: Worker, lease: Lease, loader: RunLoader) {
    this.#worker = worker;
    this.#lease = lease;
    this.#loader = loader;
    this.#unloaded = new UnloadedRuns(worker);
  }

  start(): void {
    this.#lease.start();
    this.#unwatch = this.#worker.store.watch?.(({ moved }) => this.#onMoved(moved ?? []));
    inBackground(this.#worker.logger, this.#meetOthers().catch(ignore));
  }

  /** Resolves when no heartbeat and no comparison is under way any more. */
  async stop(): Promise<void> {
    this.#unwatch?.();
    this.#hinted.clear();
    this.#endPause?.();
    await this.#lease.stop();
    await Promise.all([this.#comparingAll, this.#comparingHinted]);
  }

  /** The lease was renewed. */
  onRenewed(): void {
    this.#comparingAll ??= this.#ended(this.#compareAll(), () => {
      this.#comparingAll = undefined;
    });
  }

  /** The store tells of runs that have moved. Those that are loaded here are compared before the next heartbeat. */
  #onMoved(moved: readonly RunKey[]): void {
    for (const key of moved) {
      const run = this.#worker.runs.find(key);
      if (run !== undefined) this.#hinted.set(run, leased(run)?.writes ?? 0);
    }
    if (this.#hinted.size === 0) return;
    this.#comparingHinted ??= this.#ended(this.#compareHinted(), () => {
      this.#comparingHinted = undefined;
    });
  }

  #ended(comparing: Promise<void>, onEnd: () => void): Promise<void> {
    const { logger } = this.#worker;
    const compared = comparing.catch((error: unknown) =>
      logger.error(
        "The store failed to read what other processes have written to the runs of this one. The next heartbeat reads it again.",
        { error },
      ),
    );
    return endOf(logger, compared.then(onEnd));
  }

  async #compareAll(): Promise<void> {
    this.#loader.retry();
    if (this.#othersMayDiffer) await this.#meetOthers();
    await this.#syncMoved(this.#worker.runs);
    for (const key of await this.#unloaded.find((one) => this.#loader.isKnown(one))) await this.#beginUnloaded(key);
  }

  /** Whether to read again which other workers live: while they change, and once in the time of a lease. */
  get #othersMayDiffer(): boolean {
    const { clock, settings } = this.#worker;
    const age = this.#met === undefined ? settings.leaseMs : msSince(clock.machine, this.#met);
    return age < 0 || age >= settings.leaseMs;
  }

  /** Reads which other workers live, where hints of due runs reach all of them. */
  async #meetOthers(): Promise<void> {
    const { store, name, clock } = this.#worker;
    if (store.watch === undefined) return;
    const before = this.#others;
    const others = (await store.living()).filter((owner) => owner !== name);
    const areSame = others.length === before?.size && others.every((owner) => before.has(owner));
    this.#met = areSame ? momentOf(clock.machine) : undefined;
    this.#others = new Set(others);
    this.#worker.others = others;
  }

  /**
   * The answer to a write that an owner began after the hint has what the hint is about. So a run that is being written
   * is looked at a moment later, if it has not been written again by then.
   */
  async #compareHinted(): Promise<void> {
    while (this.#hinted.size > 0) {
      const moved: LiveRun[] = [];
      for (const [run, writes] of this.#hinted) {
        const owned = leased(run);
        if (owned?.isWriting === true && owned.writes === writes) continue;
        this.#hinted.delete(run);
        if (owned?.isOwner !== true || owned.writes === writes) moved.push(run);
      }
      await this.#syncMoved(moved);
      if (moved.length === 0 && this.#hinted.size > 0) await this.#pause();
    }
  }

  async #pause(): Promise<void> {
    const { clock } = this.#worker;
    let clear: (() => void) | undefined;
    await new Promise<void>((resolve) => {
      this.#endPause = resolve;
      clear = clock.setTimeout(resolve, NEXT_WRITE_MS);
    });
    clear?.();
    this.#endPause = undefined;
  }

  /** A run that cannot be read is tried again after the time of a lease. Other runs are not affected. */
  async #beginUnloaded(key: RunKey): Promise<void> {
    const { store, name: owner, logger } = this.#worker;
    try {
      const found = await store.find(key);
      if (found?.head.owner === owner) await this.#loader.begin(found, "with inbox");
    } catch (error) {
      logger.error("A run of this process could not be read. Reading it is tried again later.", { ...key, error });
    }
  }

  /** Reads what other processes have written to runs that are loaded here. */
  async #syncMoved(loaded: Iterable<LiveRun>): Promise<void> {
    const { store, clock } = this.#worker;
    const known = [...loaded].flatMap((run) => (run.log.head === undefined ? [] : (leased(run)?.known ?? [])));
    let page = COMPARED_AT_ONCE;
    for (let from = 0; from < known.length; ) {
      if (from > 0) await clock.turn();
      const moved = store.moved(known.slice(from, from + page));
      from += page;
      if (isPromise(moved)) page = COMPARED_LATER;
      for (const { key } of await moved) await this.#sync(key);
    }
  }

  /** A run that cannot be read does not keep the others from being read. */
  async #sync(key: RunKey): Promise<void> {
    try {
      await this.#worker.runs.find(key)?.residence?.sync("unless writing");
    } catch (error) {
      this.#worker.logger.warn(
        "The store failed to read what another process has written to a run. The next heartbeat reads it again.",
        { ...key, error },
      );
    }
  }
}

/**
 * Finds runs that this process owns and has not loaded. This happens when an answer of the store was lost, when the
 * store has lost its last commits, and when a run could be neither loaded nor released.
 */
export class UnloadedRuns {
  readonly #worker: Worker;
  /** The runs of this process in the store that it has not loaded, with the times when they were last given out. */
  #given = new RunMap<number>();

  constructor(worker: Worker) {
    this.#worker = worker;
  }

  /**
   * Compares the runs that this process owns in the store with its loaded runs. `isKnown`: whether a run is loaded here,
   * or is being loaded. Gives a run out at once, and again after the time of a lease. The run may have ended by then.
   */
  async find(isKnown: (key: RunKey) => boolean): Promise<readonly RunKey[]> {
    const { store, name: owner, runs, clock, settings } = this.#worker;
    const now = clock.now();
    // Runs that leave while the store answers are not missing.
    const loaded = new RunMap<true>();
    for (const { log } of runs) loaded.set(log.key, true);
    const owned = await store.owned(owner, Number.POSITIVE_INFINITY);
    const missing = owned.filter((key) => !loaded.has(key) && !isKnown(key));
    const before = this.#given;
    // After the clock was set back, the time counts from now.
    const last = (key: RunKey): number => Math.min(before.get(key) ?? Number.NEGATIVE_INFINITY, now);
    const due = missing.filter((key) => now - last(key) >= settings.leaseMs);
    this.#given = new RunMap();
    for (const key of missing) this.#given.set(key, last(key));
    for (const key of due) this.#given.set(key, now);
    return due;
  }
}
