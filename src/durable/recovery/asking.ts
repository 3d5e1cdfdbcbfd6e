import { endOf, inBackground } from "../../core/background.ts";
import type { Pause } from "../../core/pauses.ts";
import { pauseKey } from "../../core/pauses.ts";
import type { AgentVersion, FoundRun, RunHead, RunKey, StoredRun, StoreHint } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import type { Moment } from "../../core/time.ts";
import { momentOf, msSince, waitFor } from "../../core/time.ts";
import type { Agent } from "../../runtime/agent/agent.ts";
import type { Pauses } from "../../runtime/log/pauses.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import { DueHints } from "./due-hints.ts";
import type { Heartbeat } from "./heartbeat.ts";
import type { Lease } from "./lease.ts";
import { leased } from "./leased-residence.ts";
import type { RunLoader } from "./run-loader.ts";
import { SUSPECT_TAKEOVERS } from "./run-loader.ts";
import { Wakeups } from "./wakeups.ts";
import type { Worker } from "./worker.ts";

/** How many runs the first question takes at most. Few, so that workers which ask at the same time get a share each. */
const FIRST_PAGE = 8;
/** The same after a question that got as many as it took at most, none of them from a dead process. */
const PAGE = 64;
/**
 * The pause after so many runs of a dead process, in milliseconds. The store tells other workers that there are more,
 * and they come meanwhile.
 */
const OTHERS_COME_MS = 20;
/**
 * When to ask again after a slot became free, in milliseconds. Meanwhile another process may have been giving slots away,
 * so that the first question passed over its queue.
 */
const SLOT_AGAIN_MS = 50;
/** How many runs that may crash the process are executed at a time. */
const SUSPECTS_AT_ONCE = 1;

/** The agents whose runs are taken together. */
interface Question {
  /** The agent with `per: "process"`. Undefined: they have no slots of this process. */
  readonly name: string | undefined;
  readonly agents: readonly AgentVersion[];
  /** How many of their runs may begin here. */
  readonly slots: number;
}

/**
 * Asks the store for runs that need work: at the start, when an agent is registered, when runs may be due by what this
 * process or a hint of the store says, and every `scanMs`. It asks one question at a time, and none without room: what it
 * could not ask, it asks when a run has made room.
 */
export class Asking {
  readonly #worker: Worker;
  readonly #lease: Lease;
  readonly #heartbeat: Heartbeat;
  readonly #loader: RunLoader;
  /** In place of frequent questions and of hints. Undefined: there is no waker. */
  readonly #wakeups: Wakeups | undefined;
  readonly #hints: DueHints;
  /** Whether runs may be due since the last question was asked. */
  #isDue = false;
  /** The agents with `per: "process"` of which runs may be due, and were not asked for or taken for want of slots. */
  readonly #slotless = new Set<string | undefined>();
  /** Undefined: the store is not being asked. */
  #asking: Promise<void> | undefined;
  /** A question at the end of this turn. Undefined: none. */
  #looking: Promise<void> | undefined;
  /** When a question had slots freed that no process uses. Undefined: none had. */
  #freed: Moment | undefined;
  /** Which runs get what room there is first. They take turns. */
  #first: "blocked" | "due" = "blocked";
  /** How long after the next question to ask again at the latest, in milliseconds. */
  #againMs = Number.POSITIVE_INFINITY;
  /** Stops the timer of the next question. Undefined: no runs are taken, before the start and after the stop. */
  #clearTimer: (() => void) | undefined;
  /** Stops the timer of the next reading of the pauses. */
  #clearReading: (() => void) | undefined;
  #clearBack: (() => void) | undefined;
  /** Runs come back that a pause had set aside. Undefined: none have. */
  #comingBack: Promise<void> | undefined;
  #unwatch: (() => void) | undefined;
  /** Lets the process end. Undefined: it may. It stays open until a run that was accepted here could be taken. */
  #letGo: (() => void) | undefined;

  constructor(worker: Worker, lease: Lease, heartbeat: Heartbeat, loader: RunLoader) {
    this.#worker = worker;
    this.#lease = lease;
    this.#heartbeat = heartbeat;
    this.#loader = loader;
    this.#hints = new DueHints(worker);
    this.#pauses.onChange.push((before) => this.#onPauses(before));
    const { waker } = worker.settings;
    this.#wakeups =
      waker &&
      new Wakeups(
        worker,
        waker,
        (stored) => this.#claimAndBegin(stored),
        () => this.#room,
        (delayMs) => this.lookForWork(delayMs),
      );
  }

  /** Begins to own runs, and to take runs that need work. */
  start(): void {
    const { store, isClosed, logger } = this.#worker;
    if (this.#isTaking || isClosed || !store.persistent) return;
    this.#askIn(0);
    this.#readPauses();
    this.#heartbeat.start();
    if (this.#wakeups === undefined) this.#unwatch = store.watch?.((hint) => this.#hear(hint));
    else inBackground(logger, this.#wakeups.start());
  }

  /** Leaves out the runs that this process owns: their owner reads their inboxes, and `take` would not give them. */
  #hear({ moved, ...hint }: StoreHint): void {
    const others = moved?.filter((key) => {
      const run = this.#worker.runs.find(key);
      return run === undefined || leased(run)?.isOwner !== true;
    });
    if (others?.length !== 0 || moved?.length === 0) this.#hints.hear({ ...hint, moved: others });
  }

  /** No more runs are taken. The lease is kept for the loaded ones. */
  async stopTaking(): Promise<void> {
    this.#unwatch?.();
    this.#hints.clear();
    this.#clearTimer?.();
    this.#clearTimer = undefined;
    this.#clearBack?.();
    this.#endHold();
    await Promise.all([...this.#worker.runs].map((run) => leased(run)?.residency.stopExpecting()));
    await this.#asking;
    await this.#comingBack;
    await this.#loader.begun();
  }

  /** Whether runs are taken. */
  get #isTaking(): boolean {
    return this.#clearTimer !== undefined;
  }

  #endHold(): void {
    this.#letGo?.();
    this.#letGo = undefined;
  }

  /** An agent was registered. Its blocked runs are to be tried once, and the store is asked at once. */
  onRegistered(agent: Agent): void {
    this.start();
    if (!this.#isTaking) return;
    this.#loader.onRegistered(agent);
    this.lookForWork();
  }

  /** No run is executed here any more. Resolves when the waker was stopped. */
  async stopWaking(): Promise<void> {
    // A run that ends while this process closes may be paused with `now` meanwhile.
    this.#clearReading?.();
    await this.#wakeups?.stop();
  }

  /** A run was accepted here. The process stays open until the run could be taken. */
  onAccepted(key: RunKey): void {
    if (this.#wakeups !== undefined) {
      this.#wakeups.note(key);
      return;
    }
    if (this.#isTaking && this.#letGo === undefined) {
      const { shared } = this.#worker.runs;
      shared.hold();
      this.#letGo = () => shared.letGo();
    }
    this.#askInThisTurn();
  }

  /** A run that waits for the slot may begin. */
  onSlotFree(): void {
    this.#againMs = SLOT_AGAIN_MS;
    this.#askInThisTurn();
  }

  /** There may be room for another run, or it is the turn of this worker to ask for one. */
  onRoom(): void {
    if (this.#areDue) this.#lookInThisTurn();
  }

  /** A run that is not loaded here may need work. */
  onWake(key: RunKey): void {
    if (this.#wakeups === undefined) this.lookForWork();
    else this.#wakeups.note(key);
  }

  /** A run has no owner any more. A question finds it when it is due. */
  onReleased(key: RunKey, head: RunHead): void {
    this.#wakeups?.onReleased(key, head);
  }

  /** A run has left this process before its end. */
  onGone(run: LiveRun): void {
    this.onSuspectCleared(run);
    this.#wakeups?.onGone(run.log.key);
  }

  /** Runs may need work. The store is asked after a delay in milliseconds. */
  lookForWork(delayMs = 0): void {
    if (delayMs === 0) this.#askInThisTurn();
    else if (this.#isTaking) this.#askIn(delayMs);
  }

  /** A suspect has made progress, waits, or has left this process. The next one may be tried. */
  onSuspectCleared(run: LiveRun): void {
    if (this.#loader.suspects.delete(run)) this.lookForWork();
  }

  get #pauses(): Pauses {
    return this.#worker.runs.shared.pauses;
  }

  /** Reads the pauses every `scanMs`, unless an answer to a question has had them meanwhile. */
  #readPauses(): void {
    const { clock, logger, settings } = this.#worker;
    const pauses = this.#pauses;
    const isFirst = !pauses.isScanned;
    pauses.isScanned = true;
    // Where the store fails, the questions report it.
    const read = async (): Promise<void> => {
      if (isFirst || pauses.ageMs >= settings.scanMs) await pauses.read()?.catch(ignore);
      if (isFirst) this.#comeBack();
    };
    inBackground(logger, read());
    this.#clearReading = clock.setTimeout(() => this.#readPauses(), settings.scanMs);
  }

  /** What was resumed may be due, and what was set aside comes back. */
  #onPauses(before: readonly Pause[]): void {
    if (!this.#isTaking) return;
    this.#loader.onPauses();
    this.#askInThisTurn();
    const known = new Set(this.#pauses.known.map(pauseKey));
    if (before.some((pause) => pause.tenant !== undefined && !known.has(pauseKey(pause)))) this.#comeBack();
  }

  /**
   * Makes runs due that pauses of their tenants have set aside, and that were resumed. It is done again once in the time of
   * a lease: a process that hears late of a resume may set one more run aside, and die.
   */
  #comeBack(): void {
    const { logger } = this.#worker;
    const comeBack = async (): Promise<void> => {
      if ((await this.#pauses.comeBack(() => this.#isTaking)) > 0) this.lookForWork();
    };
    const coming = (this.#comingBack ?? Promise.resolve())
      .then(comeBack)
      .catch((error: unknown) =>
        logger.error("The store failed to make runs due that were resumed. It is tried again later.", { error }),
      );
    this.#comingBack = endOf(logger, coming);
    this.#comeBackLater();
  }

  #comeBackLater(): void {
    if (!this.#isTaking) return;
    const { clock, settings } = this.#worker;
    this.#clearBack?.();
    this.#clearBack = clock.setTimeout(() => this.#comeBack(), settings.leaseMs);
  }

  #askIn(delayMs: number): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#worker.clock.setTimeout(() => {
      this.#askIn(this.#worker.settings.scanMs);
      this.#isDue = true;
      this.#ask();
    }, delayMs);
  }

  /** Runs may need work. All that is made possible in one turn takes one question. */
  #askInThisTurn(): void {
    this.#isDue = true;
    this.#lookInThisTurn();
  }

  #lookInThisTurn(): void {
    if (!this.#isTaking || this.#looking !== undefined) return;
    const { clock, logger } = this.#worker;
    const looked = clock.turn().then(() => {
      this.#looking = undefined;
      this.#ask();
    });
    this.#looking = endOf(logger, looked);
  }

  /** Asks if runs may be due. Without room, and while the store is being asked, that is done later. */
  #ask(): void {
    if (this.#asking !== undefined) return;
    if (!this.#areDue || this.#room <= 0) {
      this.#endHold();
      return;
    }
    const asked = this.#askWhileDue().finally(() => {
      this.#asking = undefined;
      this.#ask();
    });
    this.#asking = endOf(this.#worker.logger, asked);
  }

  get #areDue(): boolean {
    const hasSlot = ({ name, slots }: Question): boolean => slots > 0 && this.#slotless.has(name);
    if (this.#isDue || this.#hints.areDue || this.#loader.hasUntried) return true;
    return this.#slotless.size > 0 && this.#questions.some(hasSlot);
  }

  /** One question for each agent with `per: "process"`, and one for all others. */
  get #questions(): readonly Question[] {
    const { registry, shared } = this.#worker.runs;
    const limited = new Map<string, Question>();
    const others: AgentVersion[] = [];
    for (const version of registry.versions) {
      if (this.#pauses.cover(version)) continue;
      const name = version.agent_name;
      const { concurrency } = registry.find(name, version.version ?? undefined)?.options ?? {};
      if (concurrency?.per !== "process") others.push(version);
      else {
        const beginning = this.#loader.beginning.filter(({ created }) => created?.agent_name === name).length;
        const slots = shared.slots.free(name, concurrency.max) - beginning;
        limited.set(name, { name, slots, agents: [...(limited.get(name)?.agents ?? []), version] });
      }
    }
    return [...limited.values(), { name: undefined, slots: Number.POSITIVE_INFINITY, agents: others }];
  }

  /** Asks until no more runs may be due, or there is no more room. */
  async #askWhileDue(): Promise<void> {
    const againMs = this.#againMs;
    this.#againMs = Number.POSITIVE_INFINITY;
    let waitMs = 0;
    let page = FIRST_PAGE;
    try {
      await this.#pauses.ready();
      while (this.#areDue && this.#room > 0) {
        await this.#lease.renewBeforeTaking();
        this.#isDue = false;
        this.#hints.clear();
        waitMs = this.#lease.waitMs;
        if (waitMs > 0) {
          this.#loader.putOff();
          break;
        }
        const first = this.#first;
        this.#first = first === "due" ? "blocked" : "due";
        if (first === "blocked") await this.#tryBlocked();
        page = await this.#askAll(page);
        if (first === "due") await this.#tryBlocked();
      }
    } catch (error) {
      this.#isDue = false;
      this.#hints.clear();
      this.#loader.putOff();
      this.#lease.onFailure();
      this.#worker.logger.error("The store failed while runs that need work were taken.", { error });
    }
    const { scanMs } = this.#worker.settings;
    if (this.#isTaking) this.#askIn(Math.min(waitMs || scanMs, againMs, scanMs));
  }

  #tryBlocked(): Promise<void> {
    return this.#loader.tryBlocked(() => this.#room);
  }

  /** Asks all questions once. Resolves with how many runs each of them may take the next time. */
  async #askAll(page: number): Promise<number> {
    const { store, clock } = this.#worker;
    let taken: readonly FoundRun[] = [];
    for (const { name, agents, slots } of this.#questions) {
      this.#slotless.delete(name);
      const limit = Math.min(page, this.#room, slots);
      const found = limit > 0 ? await this.#take(limit, agents, name) : [];
      if (found.length < limit) continue;
      taken = [...taken, ...found];
      if (limit < slots) this.#isDue = true;
      else this.#slotless.add(name);
    }
    if (taken.length === 0) return FIRST_PAGE;
    const areLost = taken.some(isLost);
    const othersCome = store.watch !== undefined && areLost;
    await (othersCome ? waitFor(clock, OTHERS_COME_MS) : clock.turn());
    return areLost ? FIRST_PAGE : PAGE;
  }

  /** Takes runs that need work, and begins them. */
  async #take(limit: number, agents: readonly AgentVersion[], name: string | undefined): Promise<readonly FoundRun[]> {
    const { store, name: owner, settings, logger, runs } = this.#worker;
    const suspects = { takeovers: SUSPECT_TAKEOVERS, limit: this.#roomForSuspects };
    const cancelledForMs = name === undefined ? settings.leaseMs : undefined;
    const unusedForMs = name === undefined && this.#freesSlots() ? settings.leaseMs : undefined;
    return runs.expect(limit, async () => {
      const onPauses = (pauses: readonly Pause[]): void => this.#pauses.onRead(pauses);
      const taken = await store.take({ owner, agents, limit, suspects, cancelledForMs, unusedForMs, onPauses });
      const lost = taken.filter(isLost).length;
      if (lost > 0) logger.info("Runs of processes whose lease has ended were taken over.", { runs: lost });
      for (const found of taken) inBackground(logger, this.#loader.begin(found));
      return taken;
    });
  }

  /** Whether the next question has slots freed that no process uses: once in the time of a lease. */
  #freesSlots(): boolean {
    const { clock, settings } = this.#worker;
    const age = this.#freed === undefined ? settings.leaseMs : msSince(clock.machine, this.#freed);
    if (age >= 0 && age < settings.leaseMs) return false;
    this.#freed = momentOf(clock.machine);
    return true;
  }

  /** How many more runs may be taken. */
  get #room(): number {
    return this.#isTaking ? this.#worker.runs.capacity : 0;
  }

  get #roomForSuspects(): number {
    const beginning = this.#loader.beginning.filter(({ head }) => head.takeovers >= SUSPECT_TAKEOVERS).length;
    return Math.max(0, SUSPECTS_AT_ONCE - this.#loader.suspects.size - beginning);
  }

  /** Begins work on a run that a waker has brought. False: another process owns it, or it cannot begin here now. */
  async #claimAndBegin(stored: StoredRun): Promise<boolean> {
    const { head } = stored;
    const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
    if (takeovers >= SUSPECT_TAKEOVERS && this.#roomForSuspects === 0) return false;
    return this.#worker.runs.expect(1, async () => {
      const claimed = await this.#loader.claim(stored);
      if (claimed !== undefined) await this.#loader.begin({ ...stored, head: claimed });
      return claimed !== undefined;
    });
  }
}

/** Whether a run was taken from a process whose lease has ended. */
function isLost({ head }: FoundRun): boolean {
  return head.takeovers > 0;
}
