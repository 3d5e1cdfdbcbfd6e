import { endOf, inBackground } from "../../core/background.ts";
import type { Clock, FoundRun, RunHead, RunKey, StoredRun } from "../../core/ports.ts";
import { isSameRun, RunMap } from "../../core/run-map.ts";
import type { Agent } from "../../runtime/agent/agent.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import type { Lease } from "./lease.ts";
import { leased } from "./leased-residence.ts";
import type { RunLoader } from "./run-loader.ts";
import { SUSPECT_TAKEOVERS } from "./run-loader.ts";
import { Wakeups } from "./wakeups.ts";
import type { Worker } from "./worker.ts";

/** How many runs are taken in one transaction. Few, so that workers which take at the same time get a share each. */
const TAKEN_AT_ONCE = 8;
/**
 * The pause after so many runs of a dead process, in milliseconds. The store tells other workers that there are more,
 * and they come meanwhile.
 */
const OTHERS_COME_MS = 20;
/** How many positions are compared at once. A synchronous store blocks the event loop meanwhile. */
const COMPARED_AT_ONCE = 32;
/**
 * When to look again after a slot became free, in milliseconds. Meanwhile another process may have been giving slots away,
 * so that the first look passed over its queue.
 */
const SLOT_AGAIN_MS = 50;
/** How many runs that may crash the process are executed at a time. */
const SUSPECTS_AT_ONCE = 1;

/**
 * Keeps the lease of this process, takes the runs of the store that need work, and reads what other processes write to
 * the runs of this one.
 */
export class Recovery {
  readonly #worker: Worker;
  readonly #lease: Lease;
  readonly #loader: RunLoader;
  /** The runs that were taken and are not loaded yet. */
  readonly #beginning = new Map<FoundRun, Promise<void>>();
  readonly #unloaded: UnloadedRuns;
  /** In place of frequent scans. Undefined: there is no waker. */
  readonly #wakeups: Wakeups | undefined;
  /** The loaded runs of which the store has told. */
  readonly #hinted = new Set<LiveRun>();
  /** Compares the hinted runs with the store. Undefined: no comparison is under way. */
  #comparing: Promise<void> | undefined;
  /** A scan at the end of this turn. Undefined: none is due. */
  #looking: Promise<void> | undefined;
  /** How long after the next scan to scan again at the latest, in milliseconds. */
  #againMs = Number.POSITIVE_INFINITY;
  /** Stops the timer of the next scan. Undefined: no runs are taken, before the start and after the stop. */
  #clearTimer: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  #scanning: Promise<void> | undefined;
  /** While a run that was accepted here is to be taken: lets the process end. */
  #isHeld = false;

  constructor(worker: Worker, lease: Lease, loader: RunLoader) {
    this.#worker = worker;
    this.#lease = lease;
    this.#loader = loader;
    this.#unloaded = new UnloadedRuns(worker);
    const { waker } = worker.settings;
    this.#wakeups =
      waker &&
      new Wakeups(
        worker,
        waker,
        (stored) => this.#claimAndBegin(stored),
        () => (this.#isTaking ? this.#room : 0),
        (delayMs) => this.lookForWork(delayMs),
      );
  }

  /** Begins to own runs, and to take runs that need work. */
  start(): void {
    const { store, isClosed } = this.#worker;
    if (this.#isTaking || isClosed || !store.persistent) return;
    this.#scanSoon(0);
    this.#lease.start();
    this.#unwatch = store.watch?.(({ due, moved }) => {
      if (due === true && this.#wakeups === undefined) this.lookForWork();
      if (moved !== undefined) this.#onMoved(moved);
    });
    if (this.#wakeups !== undefined) inBackground(this.#worker.logger, this.#wakeups.start());
  }

  /** No more runs are taken. The lease is kept for the loaded ones. */
  async stopTaking(): Promise<void> {
    this.#unwatch?.();
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#endHold();
    await this.#scanning;
    await Promise.all(this.#beginning.values());
  }

  /** Whether runs are taken. */
  get #isTaking(): boolean {
    return this.#clearTimer !== undefined;
  }

  #endHold(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#worker.runs.shared.letGo();
  }

  /** An agent was registered. Its blocked runs are tried once, and the store is scanned at once. */
  onRegistered(agent: Agent): void {
    this.start();
    if (!this.#isTaking) return;
    this.lookForWork();
    this.#loader.tryBlocked(agent);
  }

  /** No run is executed here any more. Resolves when the waker was stopped. */
  async stopWaking(): Promise<void> {
    await this.#wakeups?.stop();
  }

  /** A run was accepted here. The process stays open until the run could be taken. */
  onAccepted(key: RunKey): void {
    if (this.#wakeups !== undefined) this.#wakeups.note(key);
    else {
      if (this.#isTaking && !this.#isHeld) {
        this.#isHeld = true;
        this.#worker.runs.shared.hold();
      }
      this.lookInThisTurn();
    }
  }

  /** A run that waits for the slot may begin. */
  onSlotFree(): void {
    this.#againMs = SLOT_AGAIN_MS;
    this.lookInThisTurn();
  }

  /** Runs may need work that this process has just made possible. All that is made so in one turn takes one scan. */
  lookInThisTurn(): void {
    if (this.#looking !== undefined) return;
    const { clock, logger } = this.#worker;
    const looked = clock.turn().then(() => {
      this.#looking = undefined;
      if (this.#isTaking) this.#scanNow();
    });
    this.#looking = endOf(logger, looked);
  }

  /** A run that is not loaded here may need work. */
  onWake(key: RunKey): void {
    if (this.#wakeups === undefined) this.lookForWork();
    else this.#wakeups.note(key);
  }

  /** A run has no owner any more. A scan finds it when it is due. */
  onReleased(key: RunKey, head: RunHead): void {
    this.#wakeups?.onReleased(key, head);
  }

  /** A run has left this process before its end. */
  onGone(run: LiveRun): void {
    this.onSuspectCleared(run);
    this.#wakeups?.onGone(run.log.key);
  }

  /** Runs may need work. The store is scanned after a delay in milliseconds; without one, at once. */
  lookForWork(delayMs = 0): void {
    if (this.#isTaking) this.#scanSoon(delayMs);
  }

  /** A suspect has made progress, waits, or has left this process. The next one may be tried. */
  onSuspectCleared(run: LiveRun): void {
    if (this.#loader.suspects.delete(run)) this.lookForWork();
  }

  // Runs that need work.

  #scanSoon(delayMs: number): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#worker.clock.setTimeout(() => this.#scanNow(), delayMs);
  }

  #scanNow(): void {
    this.#clearTimer?.();
    this.#scanning = endOf(this.#worker.logger, this.#scanAndGoOn(this.#scanning));
  }

  async #scanAndGoOn(before: Promise<void> | undefined): Promise<void> {
    await before;
    const { scanMs } = this.#worker.settings;
    let wait = Math.min(this.#againMs, scanMs);
    this.#againMs = Number.POSITIVE_INFINITY;
    try {
      await this.#scan();
      if (this.#lease.waitMs > 0) wait = Math.min(wait, this.#lease.waitMs);
    } catch (error) {
      this.#lease.onFailure();
      this.#worker.logger.error("The store failed while runs that need work were taken.", { error });
    }
    this.#endHold();
    if (this.#isTaking) this.#scanSoon(wait);
  }

  /** Takes the runs that need work, a page at a time, until a page is not full. */
  async #scan(): Promise<void> {
    const { store, name: owner, runs, clock, settings } = this.#worker;
    while (this.#isTaking) {
      const limit = Math.min(TAKEN_AT_ONCE, this.#room);
      if (limit <= 0) return;
      await this.#lease.renewBeforeTaking();
      if (this.#lease.waitMs > 0) return;
      const agents = runs.registry.versions;
      const suspects = {
        takeovers: SUSPECT_TAKEOVERS,
        limit: this.#roomForSuspects,
      };
      const taken = await store.take({ owner, agents, limit, suspects, cancelledForMs: settings.leaseMs });
      const lost = taken.filter(({ head }) => head.takeovers > 0).length;
      if (lost > 0)
        this.#worker.logger.info("Runs of processes whose lease has ended were taken over.", { runs: lost });
      for (const found of taken) inBackground(this.#worker.logger, this.#workOn(found));
      if (taken.length < limit) return;
      const othersCome = store.watch !== undefined && lost > 0;
      await (othersCome ? pause(clock, OTHERS_COME_MS) : clock.turn());
    }
  }

  /** How many more runs may be taken. */
  get #room(): number {
    return this.#worker.runs.capacity - this.#beginning.size;
  }

  get #roomForSuspects(): number {
    const beginning = [...this.#beginning.keys()].filter(({ head }) => head.takeovers >= SUSPECT_TAKEOVERS).length;
    return Math.max(0, SUSPECTS_AT_ONCE - this.#loader.suspects.size - beginning);
  }

  /** Begins work on a run that a waker has brought. False: another process owns it, or it cannot begin here now. */
  async #claimAndBegin(stored: StoredRun): Promise<boolean> {
    const { head } = stored;
    const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
    if (takeovers >= SUSPECT_TAKEOVERS && this.#roomForSuspects === 0) return false;
    const claimed = await this.#loader.claim(stored);
    if (claimed !== undefined) await this.#workOn({ ...stored, head: claimed });
    return claimed !== undefined;
  }

  #workOn(found: FoundRun): Promise<void> {
    const beginning = this.#loader
      .begin(found)
      .catch((error: unknown) => this.#loader.damaged.put(found, error))
      .finally(() => this.#beginning.delete(found));
    this.#beginning.set(found, beginning);
    return beginning;
  }

  // Heartbeats: what other processes have written, and runs that are not loaded.

  /** Compares what this process executes with what the store says. */
  async onHeartbeat(): Promise<void> {
    await this.#syncMoved(this.#worker.runs);
    for (const key of await this.#unloaded.find((one) => this.#isKnown(one))) await this.#beginUnloaded(key);
  }

  #isKnown(key: RunKey): boolean {
    return this.#loader.isKnown(key) || [...this.#beginning.keys()].some((found) => isSameRun(found.key, key));
  }

  /** A run that cannot be read is tried again after the time of a lease. Other runs are not affected. */
  async #beginUnloaded(key: RunKey): Promise<void> {
    const { store, name: owner, logger } = this.#worker;
    try {
      const found = await store.find(key);
      if (found?.head.owner === owner) await this.#workOn(found);
    } catch (error) {
      logger.error("A run of this process could not be read. Reading it is tried again later.", { ...key, error });
    }
  }

  /** The store tells of runs that have moved. Those that are loaded here are compared before the next heartbeat. */
  #onMoved(moved: readonly RunKey[]): void {
    for (const key of moved) {
      const run = this.#worker.runs.find(key);
      if (run !== undefined) this.#hinted.add(run);
    }
    if (this.#hinted.size === 0 || this.#comparing !== undefined) return;
    this.#comparing = this.#compareHinted();
    inBackground(this.#worker.logger, this.#comparing);
  }

  async #compareHinted(): Promise<void> {
    try {
      while (this.#hinted.size > 0) {
        const hinted = [...this.#hinted];
        this.#hinted.clear();
        await this.#syncMoved(hinted);
      }
    } catch (error) {
      this.#worker.logger.warn(
        "The store failed to compare runs of which it has told. The next heartbeat compares them.",
        { error },
      );
    }
    this.#comparing = undefined;
  }

  /** Reads what other processes have written to runs that are loaded here. */
  async #syncMoved(loaded: Iterable<LiveRun>): Promise<void> {
    const { store, clock } = this.#worker;
    const known = [...loaded].flatMap((run) => (run.log.head === undefined ? [] : (leased(run)?.known ?? [])));
    for (let from = 0; from < known.length; from += COMPARED_AT_ONCE) {
      if (from > 0) await clock.turn();
      for (const { key } of await store.moved(known.slice(from, from + COMPARED_AT_ONCE))) await this.#sync(key);
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

function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.setTimeout(resolve, ms);
  });
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
