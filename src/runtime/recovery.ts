import { decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import { evolve, replay } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { RunHead, RunKey, RunWrite, StoredRun } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, isFinal } from "../core/state.ts";
import type { Agent } from "./agent.ts";
import { lostError } from "./commit.ts";
import type { LiveRunHost } from "./live-run.ts";
import { LiveRun } from "./live-run.ts";
import type { DurabilitySettings } from "./options.ts";
import { blockedError, closedError, refusalError } from "./refusals.ts";
import type { Registry } from "./registry.ts";
import type { Divergence } from "./rerun.ts";

/** What recovery needs from the runs of the process. */
export interface RecoveryHost extends LiveRunHost {
  find(key: RunKey): LiveRun | undefined;
  /** The live runs of this process. */
  [Symbol.iterator](): Iterator<LiveRun>;
  /** Takes a run in that was in the store. */
  add(run: LiveRun): void;
  /** Under which place the run works. */
  placeOf(run: LiveRun): string | undefined;
}

/** A run whose code does not fit its log: nothing is written until fitting code comes. */
export interface ParkedRun {
  readonly run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  /** At which entry of the log: how many fit. */
  readonly position: number;
  /** What the log holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

const SWEEP_LIMIT = 256;
/** A share of the lease: so much earlier it ends for its owner, who begins something a moment after it has looked. */
const LEASE_MARGIN = 0.1;
const READ_CHUNK = 1_000;

/**
 * Brings runs back that are in the store and not at work: after a start, when their owner has died, when their deadline has passed
 * while they slept, and when somebody answers or cancels them. Each run that is executed belongs to one process, by the lease that the process renews.
 */
export class Recovery {
  readonly #host: RecoveryHost;
  readonly #registry: Registry;
  readonly #settings: DurabilitySettings;
  readonly #waking = new Map<string, Promise<LiveRun | undefined>>();
  readonly #parked = new Map<string, Parked>();
  #stranded: ReadonlySet<string> = new Set();
  #leasedUntil = Number.NEGATIVE_INFINITY;
  /** The runs that others may have taken over while this process gave no sign of life. */
  readonly #doubted = new WeakSet<LiveRun>();
  #lastRenewal = 0;
  #clearTimer: (() => void) | undefined;
  #sweeping: Promise<void> | undefined;
  #isOn = false;

  constructor(host: RecoveryHost, registry: Registry, settings: DurabilitySettings) {
    this.#host = host;
    this.#registry = registry;
    this.#settings = settings;
  }

  /** The runs that wait for fitting code. */
  get parked(): readonly ParkedRun[] {
    return [...this.#parked.values()].map(({ report }) => report);
  }

  /** How many runs need somebody whose agent or version is not registered here. */
  get stranded(): number {
    return this.#stranded.size;
  }

  /** Begins to own runs. The first lease is asked for before the first run is written, so that nobody takes it for abandoned. */
  start(): void {
    if (this.#isOn || this.#host.isClosed || !this.#host.store.persistent) return;
    this.#isOn = true;
    void this.renew().catch(ignore);
    this.#sweepSoon(0);
  }

  /** No more sweeps; the lease ends with the store's `release`. */
  async stop(): Promise<void> {
    this.#isOn = false;
    this.#clearTimer?.();
    await this.#sweeping;
  }

  /** An agent was registered: its runs are looked for at once, and what its other code did not fit is tried again. */
  onRegistered(agentName: string): void {
    for (const { key, report } of this.#parked.values()) {
      if (report.agent_name !== agentName) continue;
      this.#parked.delete(key.run_id);
      this.#tryAgain(key);
    }
    if (this.#isOn) this.#sweepSoon(0);
    else this.start();
  }

  /** The code does not fit the log, or fits after all. Says whether the run is parked for that: not if other code has been registered meanwhile. */
  onDivergence(run: LiveRun, divergence: Divergence | undefined): boolean {
    const { run_id } = run.log.key;
    if (divergence === undefined) {
      this.#parked.delete(run_id);
      return false;
    }
    const { agent_name, version } = createdEntry(run.log.state);
    if (this.#registry.find(agent_name, version) !== run.agent) {
      this.#tryAgain(run.log.key);
      return false;
    }
    const parked: ParkedRun = { run_id, agent_name, version: version ?? null, ...divergence };
    const ancestors = this.#ancestorsOf(run);
    const error = blockedError(run_id, agent_name, divergence);
    this.#parked.set(run_id, {
      key: run.log.key,
      report: parked,
      error,
      ancestors: ancestors.map(({ log }) => log.key),
    });
    this.#host.logger.warn(error.message, parked);
    for (const waiting of [run, ...ancestors]) waiting.tellBlocked(error);
    return true;
  }

  /** Why a run cannot get on here: its code does not match its history, or it waits for a sub-run whose code does not. */
  blockedError({ tenant, run_id }: RunKey): CadenzaError | undefined {
    if (this.#parked.size === 0) return undefined;
    const isMeant = (key: RunKey): boolean => key.run_id === run_id && key.tenant === tenant;
    for (const { key, ancestors, error } of this.#parked.values())
      if (isMeant(key) || ancestors.some(isMeant)) return error;
    return undefined;
  }

  /** The runs at work here that wait for this one, the one that has started it first. */
  #ancestorsOf(run: LiveRun): readonly LiveRun[] {
    const { parent } = createdEntry(run.log.state);
    const above = parent && this.#host.find({ tenant: run.log.key.tenant, run_id: parent.run_id });
    return above === undefined ? [] : [above, ...this.#ancestorsOf(above)];
  }

  /** The run is over, and needs no code any more. */
  onEnded(runId: string): void {
    if (this.#parked.size > 0) this.#parked.delete(runId);
  }

  #tryAgain(key: RunKey): void {
    const trying = async (): Promise<void> => {
      await this.#host.find(key)?.park(true);
      await this.wake(key);
    };
    trying().catch((error: unknown) =>
      this.#host.logger.error("A parked run could not be tried again.", { run_id: key.run_id, error }),
    );
  }

  /** Undefined: this process owns its runs for certain. A promise: it may have lost them, and stays open if it has lost this one. */
  ensureOwner(run: LiveRun): undefined | Promise<void> {
    if (!this.#isOn || (this.#isLeased && !this.#doubted.has(run))) return undefined;
    return this.#reassure(run);
  }

  get #isLeased(): boolean {
    return this.#host.clock.now() < this.#leasedUntil - this.#settings.leaseMs * LEASE_MARGIN;
  }

  /** Gives a sign of life. One that comes too late is a new beginning: others may have taken over whatever was at work here. */
  async renew(): Promise<void> {
    const { store, clock, owner } = this.#host;
    const before = this.#leasedUntil;
    const until = clock.now() + this.#settings.leaseMs;
    this.#lastRenewal = clock.now();
    await store.renew(owner, until);
    const isLate = before !== Number.NEGATIVE_INFINITY && clock.now() >= before;
    if (isLate) for (const run of this.#host) this.#doubted.add(run);
    this.#leasedUntil = until;
  }

  /**
   * The run at work in this process, brought back from the store if it sleeps or was abandoned. Undefined: it has ended,
   * another process executes it, there is no code for it here, or this runtime has been closed.
   */
  async wake(key: RunKey): Promise<LiveRun | undefined> {
    if (this.#host.isClosed) return this.#host.find(key);
    let waking = this.#waking.get(key.run_id);
    if (waking === undefined) {
      waking = this.#wake(key).finally(() => this.#waking.delete(key.run_id));
      this.#waking.set(key.run_id, waking);
    }
    return waking;
  }

  /** A run that nobody executes and for which there is no code here: it can be ended, without its `finally` blocks. */
  async adoptWithoutAgent(key: RunKey): Promise<LiveRun | undefined> {
    const stored = await this.#host.store.find(key);
    if (stored === undefined || isFinal(stored.head.status) || this.#host.isClosed) return undefined;
    const { created, head } = stored;
    if (this.#registry.find(created.agent_name, created.version) !== undefined) return undefined;
    await this.#wakeParentOf(stored);
    const agent: Agent = { name: created.agent_name, options: {}, fn: () => undefined };
    const claimed = head.owner === null && head.status === "awaiting" ? head : await this.#claim(stored);
    const entries = claimed && (await this.#readAll(key, stored.position));
    if (claimed === undefined || entries === undefined || this.#host.isClosed) return undefined;
    return this.#admit(key, agent, replay(key.run_id, entries), claimed);
  }

  /** Stops a run wherever it is, if it has not ended. */
  async cancelAnywhere(key: RunKey): Promise<void> {
    const run = (await this.wake(key)) ?? (await this.adoptWithoutAgent(key));
    if (run !== undefined) {
      await run.cancel();
      return;
    }
    const stored = await this.#host.store.find(key);
    if (stored !== undefined && !isFinal(stored.head.status)) await this.requestCancel(key);
  }

  /** Asks another process to stop a run that it executes; it looks for that at least every `renewMs`. */
  async requestCancel(key: RunKey): Promise<RunState> {
    const { store, clock } = this.#host;
    for (;;) {
      const stored = await store.find(key);
      const entries = stored && (await this.#readAll(key, stored.position));
      if (stored === undefined || entries === undefined) throw lostError(key.run_id);
      const state = replay(key.run_id, entries);
      const decision = decide(state, { type: "cancel", at: clock.now() });
      if (isRefusal(decision)) throw refusalError(decision, key.run_id);
      if (decision.length === 0) return state;
      for (const entry of decision) evolve(state, entry);
      const head: RunHead = { ...stored.head, status: state.status, deadline: state.shown?.deadline ?? null };
      const conflict = await store.append(
        key,
        { epoch: head.epoch, position: stored.position },
        { entries: decision, head },
      );
      if (conflict === undefined) return state;
    }
  }

  /** Why a run that waits for an answer cannot take it here. */
  unavailable(state: RunState): CadenzaError {
    const { run_id } = state;
    const { agent_name, version } = createdEntry(state);
    const parked = this.#parked.get(run_id);
    if (parked !== undefined) return parked.error;
    if (this.#host.isClosed) return closedError();
    if (this.#registry.find(agent_name, version) !== undefined) return lostError(run_id);
    const message = `Run ${run_id} needs version ${version ?? "(none)"} of agent ${agent_name}, which is not registered here.`;
    return new CadenzaError("agent_not_found", message, { run_id, agent_name });
  }

  async #wake(key: RunKey): Promise<LiveRun | undefined> {
    const live = this.#host.find(key);
    if (live !== undefined) return live;
    const stored = await this.#host.store.find(key);
    if (stored === undefined || isFinal(stored.head.status)) return undefined;
    const agent = this.#registry.find(stored.created.agent_name, stored.created.version);
    if (agent === undefined) return undefined;
    await this.#wakeParentOf(stored);
    const { head } = stored;
    const isOwn = head.owner === this.#host.owner;
    if (isOwn || (head.owner === null && head.status === "awaiting")) return this.#revive(stored, agent, head);
    return this.#takeOver(stored, agent);
  }

  /**
   * A sub-run that waits begins to move: the run that started it is brought back first, so that it is under way before the sub-run can
   * have ended. Otherwise nobody would look for it who waits for a sub-run that has ended, if the process dies just then.
   */
  async #wakeParentOf({ key, created, head }: StoredRun): Promise<void> {
    if (created.parent === undefined || head.owner !== null || head.status !== "awaiting") return;
    await this.wakeParent({ tenant: key.tenant, run_id: created.parent.run_id });
  }

  /** Brings a run back whose sub-run moves; where there is no code here that fits, it is left to whoever has some. */
  async wakeParent(key: RunKey): Promise<void> {
    const parent = await this.wake(key);
    await parent?.stay.ready;
    await parent?.stay.parking;
    if (parent === undefined || parent.log.lost || parent.stay.divergence !== undefined) await this.#summon(key);
  }

  /** Marks a run that waits, and that nobody executes, as due: now, and until somebody has looked after its sub-run. */
  async #summon(key: RunKey): Promise<void> {
    const { store, clock } = this.#host;
    for (;;) {
      const stored = await store.find(key);
      if (stored === undefined || stored.head.status !== "awaiting" || stored.head.owner !== null) return;
      const { head, position } = stored;
      const now = clock.now();
      if (head.deadline !== null && head.deadline <= now) return;
      const write: RunWrite = { entries: [], head: { ...head, deadline: now } };
      if ((await store.append(key, { epoch: head.epoch, position }, write)) === undefined) return;
    }
  }

  /** Claims a run that nobody executes any more. Undefined: somebody does. */
  async #takeOver(stored: StoredRun, agent: Agent): Promise<LiveRun | undefined> {
    const claimed = await this.#claim(stored);
    return claimed && this.#revive(stored, agent, claimed);
  }

  async #claim({ key, head, position }: StoredRun): Promise<RunHead | undefined> {
    const { store, clock, owner } = this.#host;
    const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
    const claimed: RunHead = { ...head, owner, epoch: head.epoch + 1, takeovers };
    const conflict = await store.claim(key, { epoch: head.epoch, position }, claimed, clock.now());
    return conflict === undefined ? claimed : undefined;
  }

  async #revive({ key, position, created }: StoredRun, agent: Agent, head: RunHead): Promise<LiveRun | undefined> {
    const entries = await this.#readAll(key, position);
    if (entries === undefined || this.#host.isClosed || this.#host.find(key) !== undefined) return this.#host.find(key);
    const state = replay(key.run_id, entries);
    const run = this.#admit(key, agent, state, head);
    run.stay.subRunsBefore = subRunsBegun(entries);
    if (!created.durable) run.fail(interruptedError(key.run_id));
    else if (head.takeovers > this.#settings.maxTakeovers) run.fail(crashLoopError(key.run_id, head.takeovers - 1));
    else if (state.status === "created") {
      run.reserve(this.#host.placeOf(run));
      run.begin();
      if (run.isQueued) run.log.forgetTakeovers();
    } else run.comeBack(entries, this.#host.placeOf(run));
    return run;
  }

  #admit(key: RunKey, agent: Agent, state: RunState, head: RunHead): LiveRun {
    const run = new LiveRun(this.#host, key, agent);
    run.log.adopt(state, head);
    this.#host.add(run);
    return run;
  }

  async #readAll(key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
    const all: Entry[] = [];
    while (all.length < length) {
      const chunk = await this.#host.store.read(key, all.length, Math.min(READ_CHUNK, length - all.length));
      if (chunk === undefined || chunk.length === 0) return undefined;
      for (const entry of chunk) all.push(entry);
    }
    return all;
  }

  #sweepSoon(delayMs: number): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#host.clock.setTimeout(() => {
      this.#sweeping = this.#sweep()
        .catch((error: unknown) => this.#host.logger.error("The store failed while it was looked through.", { error }))
        .then(() => {
          if (this.#isOn) this.#sweepSoon(this.#settings.sweepMs);
        });
    }, delayMs);
  }

  async #sweep(): Promise<void> {
    const { store, clock } = this.#host;
    if (clock.now() - this.#lastRenewal >= this.#settings.renewMs) {
      await this.renew();
      await this.#lookForOthers();
    }
    const stranded = new Set<string>();
    const limit = SWEEP_LIMIT + this.#parked.size + this.#stranded.size;
    for (const { key, created } of await store.due(clock.now(), limit)) {
      if (!this.#isOn) return;
      if (this.#registry.find(created.agent_name, created.version) === undefined) stranded.add(key.run_id);
      else if (this.#host.find(key) === undefined && !this.#parked.has(key.run_id)) await this.wake(key);
    }
    this.#stranded = stranded;
  }

  /** Takes in what other processes have asked of runs that are at work here. */
  async #lookForOthers(): Promise<void> {
    for (const run of [...this.#host]) if (run.log.head !== undefined) await run.log.catchUp();
  }

  async #reassure(run: LiveRun): Promise<void> {
    const { key } = run.log;
    for (;;) {
      try {
        await this.renew();
        // Nobody can have claimed the run since then; if somebody had before, its epoch is another.
        this.#doubted.delete(run);
        await run.log.catchUp(true);
        if (this.#isLeased && !this.#doubted.has(run)) break;
      } catch (error) {
        this.#doubted.add(run);
        this.#host.logger.error("The store failed to renew the lease.", { error });
        await new Promise<void>((resolve) => this.#host.clock.setTimeout(resolve, this.#settings.sweepMs));
      }
    }
    if (run.log.lost) await new Promise(ignore);
    if (this.#host.find(key) !== run) await new Promise(ignore);
  }
}

/** A run that waits for matching code, and who waits for it. */
interface Parked {
  readonly key: RunKey;
  readonly report: ParkedRun;
  /** What callers are told. */
  readonly error: CadenzaError;
  /** The runs of which it is a sub-run. */
  readonly ancestors: readonly RunKey[];
}

/** The sub-runs that the log speaks of and holds no result of. */
function subRunsBegun(entries: readonly Entry[]): readonly string[] {
  const begun = new Map<string, string>();
  for (const entry of entries) {
    if (entry.type === "intent" && entry.run_id !== null) begun.set(entry.key, entry.run_id);
    else if (entry.type === "step") begun.delete(entry.key);
  }
  return [...begun.values()];
}

function interruptedError(runId: string): CadenzaError {
  return new CadenzaError("interrupted", "The process that executed the run ended before the run did.", {
    run_id: runId,
  });
}

function crashLoopError(runId: string, takeovers: number): CadenzaError {
  const message = `The run was taken over ${takeovers} times without getting any further.`;
  return new CadenzaError("crash_loop", message, { run_id: runId });
}
