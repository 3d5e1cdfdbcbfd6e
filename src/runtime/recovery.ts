import type { FoundRun, RunKey } from "../core/ports.ts";
import type { Agent } from "./agent.ts";
import { Lease } from "./lease.ts";
import type { LiveRun } from "./live-run.ts";
import { LostAnswers } from "./lost-answers.ts";
import type { DurabilitySettings } from "./options.ts";
import type { RecoveryReport } from "./recovery-report.ts";
import { reportOf } from "./recovery-report.ts";
import type { Registry } from "./registry.ts";
import type { RunLoader, RunLoaderHost } from "./run-loader.ts";
import { SUSPECT_TAKEOVERS } from "./run-loader.ts";

/** What recovery needs from the runs of the process. */
export interface RecoveryHost extends RunLoaderHost {
  /** How many more runs this process may take. */
  readonly capacity: number;
}

/** How many runs are taken in one transaction, and how many positions are compared at once: the event loop stands still meanwhile. */
const PAGE = 32;
/** How many runs that may bring their process down are executed at a time. */
const SUSPECTS_AT_ONCE = 1;
/** Looks after the runs of the store: keeps the lease of this process, takes runs that need work, and takes in what other processes write. */
export class Recovery {
  readonly lease: Lease;
  readonly #host: RecoveryHost;
  readonly #registry: Registry;
  readonly #loader: RunLoader;
  readonly #settings: DurabilitySettings;
  /** The runs that were taken and are not loaded yet. */
  readonly #beginning = new Set<FoundRun>();
  readonly #lostAnswers: LostAnswers;
  #clearTimer: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  #scanning: Promise<void> | undefined;
  #isOn = false;

  constructor(host: RecoveryHost, registry: Registry, loader: RunLoader, settings: DurabilitySettings) {
    this.#host = host;
    this.#registry = registry;
    this.#loader = loader;
    this.#settings = settings;
    this.lease = new Lease(host, settings, () => this.#onHeartbeat());
    this.#lostAnswers = new LostAnswers(host, settings.leaseMs, {
      isKnown: (key) => loader.isKnown(key),
      begin: (found) => this.#workOn(found),
    });
  }

  /** Begins to own runs and to look for those that need work. */
  start(): void {
    const { isClosed, store } = this.#host;
    if (this.#isOn || isClosed || !store.persistent) return;
    this.#isOn = true;
    this.lease.start();
    this.#unwatch = store.watch?.(({ due }) => {
      if (due === true) this.lookForWork();
    });
    this.#scanSoon(0);
  }

  /** No more runs are taken. The lease is kept for those that are here. */
  async stopTaking(): Promise<void> {
    this.#isOn = false;
    this.#unwatch?.();
    this.#clearTimer?.();
    await this.#scanning;
  }

  /** The runs of the store that wait for code, or cannot be read. */
  report(): Promise<RecoveryReport> {
    return reportOf(this.#host.store, this.#registry, this.#loader.damaged.report);
  }

  /** An agent was registered: its blocked runs are tried once, and those that need work are looked for at once. */
  onRegistered(agent: Agent): void {
    this.start();
    if (!this.#isOn) return;
    this.lookForWork();
    this.#loader.tryBlocked(agent);
  }

  /** A run may need work: it is looked for at once. */
  lookForWork(): void {
    if (this.#isOn) this.#scanSoon(0);
  }

  /** A suspect has come further, waits, or is gone: the next one may be tried. */
  onSuspectCleared(run: LiveRun): void {
    if (this.#loader.suspects.delete(run)) this.lookForWork();
  }

  /** The store failed in a way that may have left runs with this process that it does not know. */
  onUnknownOutcome(): void {
    this.#lostAnswers.note();
  }

  // Runs that need work.

  #scanSoon(delayMs: number): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#host.clock.setTimeout(() => {
      this.#scanning = this.#scanAndGoOn(this.#scanning);
    }, delayMs);
  }

  async #scanAndGoOn(before: Promise<void> | undefined): Promise<void> {
    await before;
    try {
      await this.#scan();
    } catch (error) {
      this.onUnknownOutcome();
      this.#host.logger.error("The store failed while runs that need work were taken.", { error });
    }
    if (this.#isOn) this.#scanSoon(this.#settings.scanMs);
  }

  /** Takes what needs work, a page at a time, without a pause for as long as pages are full. */
  async #scan(): Promise<void> {
    const { store, clock, owner } = this.#host;
    while (this.#isOn) {
      const limit = Math.min(PAGE, this.#host.capacity - this.#beginning.size);
      if (limit <= 0) return;
      // A store that takes this process for dead would give it its own runs.
      if (!this.lease.isHeld) await this.lease.renew();
      const agents = this.#registry.versions;
      const suspects = {
        takeovers: SUSPECT_TAKEOVERS,
        limit: Math.max(0, SUSPECTS_AT_ONCE - this.#loader.suspects.size - this.#suspectsBeginning),
      };
      const taken = await store.take({ owner, agents, limit, suspects, cancelledForMs: this.#settings.leaseMs });
      for (const found of taken) void this.#workOn(found);
      if (taken.length < limit) return;
      await clock.turn();
    }
  }

  get #suspectsBeginning(): number {
    return [...this.#beginning].filter(({ head }) => head.takeovers >= SUSPECT_TAKEOVERS).length;
  }

  async #workOn(found: FoundRun): Promise<void> {
    this.#beginning.add(found);
    try {
      await this.#loader.begin(found);
    } catch (error) {
      this.#loader.damaged.put(found, error);
    } finally {
      this.#beginning.delete(found);
    }
  }

  // What other processes and lost answers do to the runs of this one.

  async #onHeartbeat(): Promise<void> {
    await this.#lookForOthers();
    await this.#lostAnswers.compare();
  }

  /** Takes in what other processes have written to runs that are loaded here. */
  async #lookForOthers(): Promise<void> {
    const { store, clock } = this.#host;
    const known = [...this.#host].flatMap(({ log }) => (log.head === undefined ? [] : [log.known]));
    for (let from = 0; from < known.length; from += PAGE) {
      if (from > 0) await clock.turn();
      for (const { key } of await store.moved(known.slice(from, from + PAGE))) await this.#catchUp(key);
    }
  }

  /** A run that cannot be read keeps no other from being looked at. */
  async #catchUp(key: RunKey): Promise<void> {
    try {
      await this.#host.find(key)?.log.catchUp();
    } catch (error) {
      const message = `The store failed to read what another process did to run ${key.run_id}. It is asked again.`;
      this.#host.logger.warn(message, { ...key, error });
    }
  }
}
