import { ASIDE_MS } from "../../core/pauses.ts";
import type { RunHead, RunKey, StoredRun } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import { isFinal } from "../../core/state.ts";
import { waitFor } from "../../core/time.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "../../runtime/log/store-failures.ts";
import type { Waker } from "./options.ts";
import { isPaused } from "./run-loader.ts";
import type { Worker } from "./worker.ts";

/** When to look again at a run that another process owns, or that cannot begin here now, in milliseconds. */
const SOON_MS = 500;
/** When to look again after the store has failed, in milliseconds. */
const AFTER_FAILURE_MS = 5_000;
/**
 * When to scan the store after a dead owner was met, in milliseconds. The wake-ups of its other runs come before that,
 * and spread these over the workers. The scan finds its runs without a wake-up.
 */
const SCAN_AFTER_DEATH_MS = 2_000;

/** Of how many runs without code here it is remembered since when they are brought. */
const MAX_STRANGE = 1_000;

const working = Symbol("working");

/** Wakes runs by the waker of this process, and works on those that the waker brings. */
export class Wakeups {
  readonly #worker: Worker;
  readonly #waker: Waker;
  /** Claims a run and begins work on it. False: another process owns it, or it cannot begin here now. */
  readonly #claimAndBegin: (stored: StoredRun) => Promise<boolean>;
  /** How many more runs may be taken. */
  readonly #room: () => number;
  readonly #lookForWork: (delayMs: number) => void;
  /** The runs that the waker has brought and this process works on, with what ends the look. */
  readonly #looks = new RunMap<(again: number | undefined) => void>();
  readonly #waking = new Set<Promise<void>>();
  /** Since when the waker brings runs whose agent is not registered here, by tenant and id. */
  readonly #strange = new Map<string, number>();
  #isStopped = false;

  constructor(
    worker: Worker,
    waker: Waker,
    claimAndBegin: (stored: StoredRun) => Promise<boolean>,
    room: () => number,
    lookForWork: (delayMs: number) => void,
  ) {
    this.#worker = worker;
    this.#waker = waker;
    this.#claimAndBegin = claimAndBegin;
    this.#room = room;
    this.#lookForWork = lookForWork;
  }

  /** Begins to get wake-ups. It is tried until it succeeds. */
  async start(): Promise<void> {
    const { clock, logger } = this.#worker;
    for (let wait = FIRST_PAUSE_MS; !this.#isStopped; wait = nextPauseMs(wait)) {
      try {
        await this.#waker.start(
          (key) => this.#look(key),
          () => this.#room(),
        );
        return;
      } catch (error) {
        logger.error("The waker could not be started. It is tried again.", { error });
      }
      await waitFor(clock, wait);
    }
  }

  /** A run may be due. If it has no owner, a worker is to get it then. */
  note(key: RunKey): void {
    const waking = this.#note(key).finally(() => this.#waking.delete(waking));
    this.#waking.add(waking);
  }

  /** A run has no owner any more. If it is due at a time, a worker is to get it then. */
  onReleased(key: RunKey, { status }: RunHead): void {
    if (isFinal(status)) this.#settle(key, undefined);
    else this.note(key);
  }

  /** A run has left this process before its end. */
  onGone(key: RunKey): void {
    this.#settle(key, this.#in(SOON_MS));
  }

  /** No run is executed here any more. Resolves when the last wake-up was handed over. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#waking);
    for (const settle of this.#looks.values()) settle(this.#byMachine(this.#in(0)));
    this.#looks.clear();
    try {
      await this.#waker.stop();
    } catch (error) {
      this.#worker.logger.error("The waker could not be stopped.", { error });
    }
  }

  // Waking.

  async #note(key: RunKey): Promise<void> {
    try {
      await this.#wake(key);
    } catch (error) {
      this.#worker.logger.warn("A run could not be woken. A scan of the store finds it when it is due.", {
        ...key,
        error,
      });
      this.#lookForWork(0);
    }
  }

  async #wake(key: RunKey): Promise<void> {
    const stored = await this.#worker.store.find(key);
    // An owner does all that is to be done.
    if (stored === undefined || stored.head.owner !== null) return;
    const { head, created } = stored;
    // What a pause has set aside is found by a scan when it has come back.
    const due_at = head.due_at !== null && head.due_at >= ASIDE_MS ? null : head.due_at;
    // The wake-up that has brought the run here is used again.
    if (this.#settle(key, due_at ?? undefined) || due_at === null) return;
    const { agent_name, version = null } = created;
    await this.#waker.wake(key, this.#byMachine(due_at), { agent_name, version, tenant: key.tenant });
  }

  // Looking.

  async #look(key: RunKey): Promise<number | undefined> {
    // Another wake-up has brought the run here already. This one is not needed.
    if (this.#looks.has(key)) return undefined;
    const looking = new Promise<number | undefined>((resolve) => this.#looks.set(key, resolve));
    try {
      const again = await this.#begin(key);
      if (again !== working) this.#settle(key, again);
    } catch (error) {
      this.#worker.logger.error("The store failed while a run was looked at. It is looked at again.", {
        ...key,
        error,
      });
      this.#settle(key, this.#in(AFTER_FAILURE_MS));
    }
    return looking;
  }

  /** Begins work on a run, or says when to look at it again. */
  async #begin(key: RunKey): Promise<number | undefined | typeof working> {
    const { store, name, runs, clock, settings } = this.#worker;
    const stored = await store.find(key);
    if (stored === undefined || isFinal(stored.head.status)) return undefined;
    const { created, head } = stored;
    const { owner, due_at } = head;
    if (owner === null && (due_at === null || due_at >= ASIDE_MS)) return undefined;
    if (owner === null && due_at !== null && due_at > clock.now()) return due_at;
    if (runs.registry.find(created.agent_name, created.version) === undefined) return this.#laterAndLater(key, due_at);
    if (owner !== name && isPaused(stored, runs.shared.pauses)) return this.#in(settings.scanMs);
    if (owner !== name) {
      const hasBegun = this.#room() > 0 && (await this.#claimAndBegin(stored));
      if (!hasBegun) return this.#in(SOON_MS);
      if (owner !== null) this.#lookForWork(SCAN_AFTER_DEATH_MS);
    }
    return runs.find(key) === undefined ? this.#in(SOON_MS) : working;
  }

  /** Ends the look at a run. False: no look is under way. */
  #settle(key: RunKey, again: number | undefined): boolean {
    const settle = this.#looks.get(key);
    this.#looks.delete(key);
    settle?.(again === undefined ? undefined : this.#byMachine(again));
    return settle !== undefined;
  }

  /**
   * When to look again at a run whose agent is not registered here. Perhaps no worker has it: the longer the run has been
   * due, the later. A claimed run does not say since when, so the first look counts. A worker that registers the agent
   * scans the store.
   */
  #laterAndLater({ tenant, run_id }: RunKey, dueAt: number | null): number {
    const { clock, settings } = this.#worker;
    const name = JSON.stringify([tenant, run_id]);
    const since = dueAt ?? this.#strange.get(name) ?? clock.now();
    if (dueAt === null) this.#strange.set(name, since);
    for (const first of this.#strange.keys()) {
      if (this.#strange.size <= MAX_STRANGE) break;
      this.#strange.delete(first);
    }
    const overdueMs = clock.now() - since;
    return this.#in(Math.min(Math.max(SOON_MS, overdueMs), settings.scanMs));
  }

  /** A waker has the clock of its machine, and not the store's. */
  #byMachine(at: number): number {
    const { clock } = this.#worker;
    return at - clock.now() + clock.machine.now();
  }

  #in(delayMs: number): number {
    return this.#worker.clock.now() + delayMs;
  }
}
