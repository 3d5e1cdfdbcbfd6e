import type { Command } from "../core/decide.ts";
import { decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import { evolve, replay } from "../core/evolve.ts";
import type { CreatedEntry, Entry } from "../core/log.ts";
import type { AgentVersion, FoundRun, RunHead, RunKey, StoredRun } from "../core/ports.ts";
import { ignore } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, isFinal } from "../core/state.ts";
import type { Agent } from "./agent.ts";
import type { DamagedRun } from "./damaged-runs.ts";
import { DamagedRuns } from "./damaged-runs.ts";
import { subRunsBegun } from "./history.ts";
import { Lease } from "./lease.ts";
import type { LiveRunHost } from "./live-run.ts";
import { LiveRun } from "./live-run.ts";
import { LostAnswers } from "./lost-answers.ts";
import type { DurabilitySettings } from "./options.ts";
import { blockedError, closedError, isLost, lostError, refusalError } from "./refusals.ts";
import type { Registry } from "./registry.ts";

/** What recovery needs from the runs of the process. */
export interface RecoveryHost extends LiveRunHost {
  /** How many more runs this process may take. */
  readonly capacity: number;
  find(key: RunKey): LiveRun | undefined;
  /** The live runs of this process. */
  [Symbol.iterator](): Iterator<LiveRun>;
  /** Takes a run in that was in the store. */
  add(run: LiveRun): void;
  /** Under which slot the run works. */
  slotKeyOf(run: LiveRun): string | undefined;
}

/** A run whose code does not match its history: no entry is written until matching code comes. */
export interface BlockedRun {
  readonly run_id: string;
  readonly agent_name: string;
  readonly version: string | null;
  /** At which entry of the log: how many match. */
  readonly position: number;
  /** What the history holds next. */
  readonly expected: string;
  /** What the code did instead. */
  readonly asked: string;
}

/** What keeps runs of the store from getting on. */
export interface RecoveryReport {
  /** Durable runs whose code does not match their history, the oldest 1,000 of them, in any process. */
  readonly blocked: readonly BlockedRun[];
  /** Runs without an owner whose agent or version is not registered here, whether they need work now or wait. */
  readonly unregistered: number;
  /** Runs that this process took and could not read. Each is tried again from time to time. */
  readonly damaged: readonly DamagedRun[];
}

const MAX_REPORTED = 1_000;
/** How many runs are taken in one transaction, and how many positions are compared at once: the event loop stands still meanwhile. */
const PAGE = 32;
/** From so many take-overs without a result on, a run is suspected to bring its process down. */
const SUSPECT_TAKEOVERS = 2;
/** How many runs that may bring their process down are executed at a time. */
const SUSPECTS_AT_ONCE = 1;
const READ_CHUNK = 1_000;

/**
 * Looks after the runs of the store that are not loaded here: takes those that need work, loads those that are answered or cancelled, and
 * posts to those that another process executes.
 */
export class Recovery {
  readonly lease: Lease;
  readonly damaged: DamagedRuns;
  readonly #host: RecoveryHost;
  readonly #registry: Registry;
  readonly #settings: DurabilitySettings;
  readonly #loading = new Map<string, Promise<LiveRun | undefined>>();
  /** The agents whose blocked runs are being tried. */
  readonly #trying = new Map<string, Promise<void>>();
  /** The runs at work here that may bring this process down. */
  readonly #suspects = new Set<LiveRun>();
  /** The runs that were taken and are not loaded yet. */
  readonly #beginning = new Set<FoundRun>();
  readonly #lostAnswers: LostAnswers;
  #clearTimer: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  #scanning: Promise<void> | undefined;
  #isOn = false;

  constructor(host: RecoveryHost, registry: Registry, settings: DurabilitySettings) {
    this.#host = host;
    this.#registry = registry;
    this.#settings = settings;
    this.lease = new Lease(host, settings, () => this.#onHeartbeat());
    this.damaged = new DamagedRuns(host);
    this.#lostAnswers = new LostAnswers(host, settings.leaseMs, {
      isKnown: (key) => host.find(key) !== undefined || this.#loading.has(key.run_id),
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
  async report(): Promise<RecoveryReport> {
    const { store } = this.#host;
    const blocked = await store.blocked({ limit: MAX_REPORTED });
    const backlog = await store.backlog();
    const isMissing = ({ agent_name, version }: AgentVersion): boolean =>
      this.#registry.find(agent_name, version ?? undefined) === undefined;
    return {
      blocked: blocked.flatMap((found) => blockedRun(found) ?? []),
      unregistered: backlog.filter(isMissing).reduce((sum, { due, waiting }) => sum + due + waiting, 0),
      damaged: this.damaged.report,
    };
  }

  /** An agent was registered: its blocked runs are tried once, and those that need work are looked for at once. */
  onRegistered({ name, options: { version } }: Agent): void {
    this.start();
    if (!this.#isOn) return;
    this.lookForWork();
    for (const run of this.#host) if (run.agent.name === name && run.isBlockedItself) this.loadAgain(run);
    const trying = this.#tryBlocked({ agent_name: name, version: version ?? null })
      .catch((error: unknown) =>
        this.#host.logger.error(`The store failed while the blocked runs of ${name} were looked for.`, { error }),
      )
      .finally(() => {
        if (this.#trying.get(name) === trying) this.#trying.delete(name);
      });
    this.#trying.set(name, trying);
  }

  /** Resolves when the blocked runs of an agent have been tried with the code that was registered last. Undefined: they have. */
  tried(agentName: string): undefined | Promise<void> {
    return this.#trying.get(agentName);
  }

  /** Lets go of a run whose code does not match its history, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void {
    const { key } = run.log;
    run.setBlocked(undefined);
    const loading = this.#loadAgain(run, key).finally(() => {
      if (this.#loading.get(key.run_id) === loading) this.#loading.delete(key.run_id);
    });
    this.#loading.set(key.run_id, loading);
    loading.catch((error: unknown) =>
      this.#host.logger.error(`Run ${key.run_id} could not be loaded again.`, { run_id: key.run_id, error }),
    );
  }

  /** A run may need work: it is looked for at once. */
  lookForWork(): void {
    if (this.#isOn) this.#scanSoon(0);
  }

  /** A suspect has come further, waits, or is gone: the next one may be tried. */
  onSuspectCleared(run: LiveRun): void {
    if (this.#suspects.delete(run)) this.lookForWork();
  }

  /** The store failed in a way that may have left runs with this process that it does not know. */
  onUnknownOutcome(): void {
    this.#lostAnswers.note();
  }

  /**
   * The run, loaded in this process. Undefined: it has ended, it is blocked, another process executes it, there is no code for it here, or this
   * runtime has been closed.
   */
  async load(key: RunKey): Promise<LiveRun | undefined> {
    if (this.#host.isClosed) return this.#host.find(key);
    let loading = this.#loading.get(key.run_id);
    if (loading === undefined) {
      loading = this.#load(key).finally(() => this.#loading.delete(key.run_id));
      this.#loading.set(key.run_id, loading);
    }
    return loading;
  }

  /** Stops a run that is not loaded here, wherever it is. Gives its state as the cancel leaves it. */
  async cancel(key: RunKey): Promise<RunState> {
    const { store, clock } = this.#host;
    for (;;) {
      const state = await this.#fold(key);
      const command: Command = { type: "cancel", at: clock.now() };
      const decision = decide(state, command);
      if (isRefusal(decision)) throw refusalError(decision, key.run_id);
      if (decision.length === 0) return state;
      // The process with the code takes it first, if there is one: only there the `finally` blocks run.
      const post = { entries: decision, status: "cancelling", unblocks: true, due: "look" } as const;
      if ((await store.post(key, post)) !== undefined) continue;
      for (const entry of decision) evolve(state, entry);
      this.lookForWork();
      return state;
    }
  }

  /** Stops a run, and is content if it has ended. */
  async cancelAnywhere(key: RunKey): Promise<void> {
    try {
      const run = await this.load(key);
      const isCancelled = run !== undefined && (await isStillHere(run.cancel()));
      if (!isCancelled) await this.cancel(key);
    } catch (error) {
      const isOver = CadenzaError.is(error) && (error.code === "run_finished" || error.code === "run_not_found");
      if (!isOver) throw error;
    }
  }

  /** Stops a sub-run if the run that has started it has ended, or is forgotten. */
  async cancelOrphan(key: RunKey, parent: RunKey): Promise<void> {
    if (await this.#isOver(parent)) await this.cancelAnywhere(key);
  }

  async #isOver(key: RunKey): Promise<boolean> {
    const stored = await this.#host.store.find(key);
    return stored === undefined || isFinal(stored.head.status);
  }

  /** Why a run that waits for an answer cannot take it here. */
  unavailable(state: RunState, { blocked }: RunHead): CadenzaError {
    const { run_id } = state;
    const { agent_name, version } = createdEntry(state);
    if (blocked !== null) return blockedError(run_id, agent_name, blocked);
    if (this.#host.isClosed) return closedError();
    if (this.#registry.find(agent_name, version) !== undefined) return lostError(run_id);
    const message = `Run ${run_id} needs version ${version ?? "(none)"} of agent ${agent_name}, which is not registered here.`;
    return new CadenzaError("agent_not_found", message, { run_id, agent_name });
  }

  async #loadAgain(run: LiveRun, key: RunKey): Promise<LiveRun | undefined> {
    await run.residency.leaveForOtherCode();
    const stored = await this.#host.store.find(key);
    return stored === undefined || stored.head.blocked === null ? this.#load(key) : this.#tryAgain(stored);
  }

  async #load(key: RunKey): Promise<LiveRun | undefined> {
    const live = this.#host.find(key);
    if (live !== undefined) return live;
    const stored = await this.#host.store.find(key);
    if (stored === undefined || isFinal(stored.head.status)) return undefined;
    if (stored.head.blocked !== null) {
      await this.tried(stored.created.agent_name);
      return this.#host.find(key);
    }
    const agent = this.#registry.find(stored.created.agent_name, stored.created.version);
    if (agent === undefined) return undefined;
    const { head } = stored;
    // A run that only waits is loaded without a claim: it belongs to the first process that writes to it.
    const isFree = head.owner === this.#host.owner || (head.owner === null && head.status === "awaiting");
    const claimed = isFree ? head : await this.#claim(stored);
    return claimed && this.#revive(stored, agent, claimed);
  }

  /** Claims a run that has no owner, or a dead one. Undefined: another process has it. */
  async #claim({ key, head, position }: StoredRun): Promise<RunHead | undefined> {
    const { store, owner } = this.#host;
    const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
    const claimed: RunHead = { ...head, owner, epoch: head.epoch + 1, due_at: null, takeovers, blocked: null };
    const conflict = await store.claim(key, { epoch: head.epoch, position }, claimed);
    return conflict === undefined ? claimed : undefined;
  }

  async #revive({ key, position, created }: StoredRun, agent: Agent, head: RunHead): Promise<LiveRun | undefined> {
    const entries = await this.#readAll(key, position);
    const failure = this.#failureAtOnce(key, created, head);
    if (failure !== undefined && entries !== undefined) await this.#cancelSubRuns(key, entries);
    if (entries === undefined || this.#host.isClosed || this.#host.find(key) !== undefined) return this.#host.find(key);
    const state = replay(key.run_id, entries);
    const { parent } = created;
    const isOrphan = parent !== undefined && (await this.#isOver({ ...key, run_id: parent.run_id }));
    if (this.#host.isClosed || this.#host.find(key) !== undefined) return this.#host.find(key);
    const run = this.#admit(key, agent, state, head);
    this.damaged.forget(key.run_id);
    if (failure !== undefined) run.fail(failure);
    else {
      if (head.takeovers >= SUSPECT_TAKEOVERS) {
        run.residency.isSuspect = true;
        this.#suspects.add(run);
      }
      if (state.status === "created") run.loadUnbegun(this.#host.slotKeyOf(run));
      else run.load(entries, this.#host.slotKeyOf(run));
      // It has a turn to come to an end itself, as one that is being cancelled already does.
      if (isOrphan) void run.cancel().catch(ignore);
    }
    return run;
  }

  /** Why a run that was taken ends instead of going on. */
  #failureAtOnce({ run_id }: RunKey, { durable }: CreatedEntry, { takeovers }: RunHead): CadenzaError | undefined {
    if (durable !== true) return interruptedError(run_id);
    return takeovers > this.#settings.maxTakeovers ? crashLoopError(run_id, takeovers - 1) : undefined;
  }

  /** Stops what a run has started that is about to end: first them, since no process looks after them when it has ended. */
  async #cancelSubRuns({ tenant }: RunKey, entries: readonly Entry[]): Promise<void> {
    for (const run_id of subRunsBegun(entries)) await this.cancelAnywhere({ tenant, run_id });
  }

  #admit(key: RunKey, agent: Agent, state: RunState, head: RunHead): LiveRun {
    const run = new LiveRun(this.#host, key, agent);
    run.log.adopt(state, head);
    this.#host.add(run);
    return run;
  }

  async #fold(key: RunKey): Promise<RunState> {
    const stored = await this.#host.store.find(key);
    const entries = stored && (await this.#readAll(key, stored.position));
    if (entries === undefined) {
      const { run_id } = key;
      throw new CadenzaError("run_not_found", `Run ${run_id} is not in the store any more.`, { run_id });
    }
    return replay(key.run_id, entries);
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
        limit: Math.max(0, SUSPECTS_AT_ONCE - this.#suspects.size - this.#suspectsBeginning),
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
      await this.#begin(found);
    } catch (error) {
      this.damaged.put(found, error);
    } finally {
      this.#beginning.delete(found);
    }
  }

  /** Begins work on a run that this process has just become the owner of. */
  async #begin(found: FoundRun): Promise<void> {
    if (found.created === null) throw found.error;
    const { key, created, head } = found;
    // A load that is under way may have read the run before this process became its owner.
    await this.#loading.get(key.run_id)?.catch(ignore);
    const live = this.#host.find(key);
    if (live !== undefined) {
      await live.onTaken(head, found.position);
      // The run was taken from this process meanwhile, and has come back: what is loaded is of an earlier epoch.
      if (!live.log.lost) return;
    }
    const agent = this.#registry.find(created.agent_name, created.version);
    if (agent !== undefined) await this.#revive(found, agent, head);
    else await this.#endWithoutCode(found);
  }

  /** No process had the code of a cancelled run for a whole lease: it ends without its `finally` blocks. */
  async #endWithoutCode({ key, created, head, position }: StoredRun): Promise<void> {
    const entries = await this.#readAll(key, position);
    if (entries !== undefined) await this.#cancelSubRuns(key, entries);
    if (entries === undefined || this.#host.isClosed) return;
    const agent: Agent = { name: created.agent_name, options: {}, fn: () => undefined };
    const run = this.#admit(key, agent, replay(key.run_id, entries), head);
    run.endWithoutCode();
  }

  /** Claims the blocked runs of an agent once: the code that was registered may match their history. */
  async #tryBlocked(version: AgentVersion): Promise<void> {
    const { store } = this.#host;
    let after: RunKey | undefined;
    for (;;) {
      const page = await store.blocked({ agents: [version], limit: PAGE, after });
      for (const found of page) {
        if (this.#host.isClosed) return;
        if (found.created !== null) await this.#tryAgain(found);
      }
      after = page.at(-1)?.key;
      if (page.length < PAGE) return;
    }
  }

  async #tryAgain(stored: StoredRun): Promise<LiveRun | undefined> {
    const agent = this.#registry.find(stored.created.agent_name, stored.created.version);
    const claimed = agent && (await this.#claim(stored));
    if (agent === undefined || claimed === undefined) return undefined;
    try {
      return await this.#revive(stored, agent, claimed);
    } catch (error) {
      this.damaged.put(stored, error);
      return undefined;
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

function blockedRun({ key, created, head: { blocked } }: FoundRun): BlockedRun | undefined {
  if (created === null || blocked === null) return undefined;
  const { agent_name, version = null } = created;
  return { run_id: key.run_id, agent_name, version, ...blocked };
}

/** False: the run has gone to another process meanwhile. */
async function isStillHere(act: Promise<unknown>): Promise<boolean> {
  try {
    await act;
    return true;
  } catch (error) {
    if (isLost(error)) return false;
    throw error;
  }
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
