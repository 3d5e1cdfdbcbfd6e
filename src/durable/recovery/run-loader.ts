import { aboutRun, aboutStored } from "../../core/about-run.ts";
import { endOf, inBackground } from "../../core/background.ts";
import { decide, decideArrived, hasCancel, isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import { evolve, foldEntries } from "../../core/evolve.ts";
import { failureOf } from "../../core/failure.ts";
import { newerPart } from "../../core/format.ts";
import { isFree } from "../../core/head.ts";
import type { CreatedEntry, Entry } from "../../core/log.ts";
import { ASIDE_MS } from "../../core/pauses.ts";
import type { FoundRun, RunHead, RunKey, RunWrite, StoredRun } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import { isSameRun, RunMap } from "../../core/run-map.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, initialState, isFinal } from "../../core/state.ts";
import { countRun } from "../../core/statistics.ts";
import type { Agent } from "../../runtime/agent/agent.ts";
import { lastGeneration } from "../../runtime/log/fold-log.ts";
import { isLogSizeError } from "../../runtime/log/part-size.ts";
import type { Pauses } from "../../runtime/log/pauses.ts";
import { fed } from "../../runtime/log/run-write.ts";
import { isCountedByStore, slotsOf } from "../../runtime/runs/admission.ts";
import { allRuns } from "../../runtime/runs/deleting.ts";
import { LiveRun } from "../../runtime/runs/live-run.ts";
import { History, subRunsBegun } from "../replay/history.ts";
import { DamagedRuns } from "./damaged-runs.ts";
import type { Lease } from "./lease.ts";
import { leased } from "./leased-residence.ts";
import type { RemotePosts } from "./remote-posts.ts";
import type { Worker } from "./worker.ts";

/** After so many take-overs without progress, a run is suspected to crash its process. */
export const SUSPECT_TAKEOVERS = 2;
/** How many blocked runs are read at once. */
const PAGE = 32;

/** The blocked runs of an agent that are tried with the code that was registered, each once and the oldest first. */
interface Untried {
  /** The last run to which its turn has come. */
  after: RunKey | undefined;
  /** The runs that were tried, and those that this code has blocked. */
  readonly tried: RunMap<true>;
  /** The store has failed, or nothing may be taken. The next heartbeat tries its runs again. */
  isPutOff: boolean;
}

function newUntried(): Untried {
  return { after: undefined, tried: new RunMap(), isPutOff: false };
}

/**
 * Loads runs from the store: those that this process has taken, those that are answered or cancelled here, and blocked
 * ones when code is registered.
 */
export class RunLoader {
  readonly damaged: DamagedRuns;
  /** The loaded runs that may crash this process. */
  readonly suspects = new Set<LiveRun>();
  readonly #worker: Worker;
  readonly #lease: Lease;
  readonly #logs: RemotePosts;
  readonly #loading = new RunMap<Promise<LiveRun | undefined>>();
  /** The runs that this process owns since a moment ago, and that are not loaded yet. */
  readonly #beginning = new Map<FoundRun, Promise<void>>();
  /** The agents that have blocked runs to try. */
  readonly #untried = new Map<Agent, Untried>();
  /** The agents of which paused blocked runs were passed over. */
  readonly #passed = new Set<Agent>();
  /** The blocked runs that leave this process, to be tried with other code. */
  readonly #leaving = new RunMap<Promise<void>>();
  /** The place of the run that was set aside last. */
  #lastAside = 0;

  constructor(worker: Worker, lease: Lease, logs: RemotePosts) {
    this.#worker = worker;
    this.#lease = lease;
    this.#logs = logs;
    this.damaged = new DamagedRuns(worker);
  }

  /** Whether a run is loaded here, or is being loaded. */
  isKnown(key: RunKey): boolean {
    const isLoading = this.#worker.runs.find(key) !== undefined || this.#loading.has(key);
    return isLoading || [...this.#beginning.keys()].some((found) => isSameRun(found.key, key));
  }

  /** The runs on which work begins: see {@link begin}. */
  get beginning(): readonly FoundRun[] {
    return [...this.#beginning.keys()];
  }

  /**
   * The run, loaded in this process. Undefined: it has ended, it is blocked, another process owns it, its agent or
   * version is not registered here, or this runtime is closed.
   */
  async load(key: RunKey): Promise<LiveRun | undefined> {
    if (this.#worker.isClosed) return this.#worker.runs.find(key);
    // Its waits are measured by the store's clock.
    await this.#worker.clock.ready();
    const run = await this.#once(key, () => this.#load(key));
    return run !== undefined && isSameRun(run.log.key, key) ? run : undefined;
  }

  /**
   * Begins work on a run that this process owns since a moment ago. One that cannot be loaded is released. `with inbox`: what
   * has arrived for it is looked at, too. It may be what this process cannot read.
   */
  begin(found: FoundRun, how?: "with inbox"): Promise<void> {
    const beginning = this.#worker.runs
      .expect(1, () => this.#begin(found, how))
      .catch((error: unknown) => this.damaged.put(found, error))
      .finally(() => this.#beginning.delete(found));
    this.#beginning.set(found, beginning);
    return beginning;
  }

  /** Resolves when work has begun on the runs that this process owns. */
  async begun(): Promise<void> {
    await Promise.all(this.#beginning.values());
  }

  async #begin(found: FoundRun, how: "with inbox" | undefined): Promise<void> {
    if (found.created === null) throw found.error;
    const { key, created, head } = found;
    if (isPaused(found, this.#worker.runs.shared.pauses)) {
      await this.#setAside(found);
      return;
    }
    if (how !== undefined) await this.#worker.store.find(key, how);
    // A load that is under way may have read the run before this process became its owner.
    await this.#loading.get(key)?.catch(ignore);
    const live = this.#worker.runs.find(key);
    if (live !== undefined) {
      await leased(live)?.onTaken(head, found.position);
      // Another process has owned the run meanwhile. The loaded run is of an earlier epoch.
      if (!live.log.lost) return;
    }
    await this.#revive(found, this.#agentOf(created), head);
  }

  /**
   * Gives back a run that was taken although it is paused. One that a pause of its tenant covers is set aside, so that `take`
   * meets it once. These stay in the order in which they were taken.
   */
  async #setAside({ key, created, position, head }: StoredRun): Promise<void> {
    const { store, runs, clock, name: owner } = this.#worker;
    const live = runs.find(key);
    if (live !== undefined && isFree(live.log.nextHead)) live.leave("The run is paused.", "evicted");
    const isAside = runs.shared.pauses.setAside(created, key.tenant);
    if (isAside) this.#lastAside = Math.max(head.due_at ?? clock.now(), this.#lastAside + 1);
    const due_at = isAside ? ASIDE_MS + this.#lastAside : (head.due_at ?? clock.now());
    const left: RunHead = { ...head, owner: null, epoch: head.epoch + 1, due_at, holds_slot: false };
    let write: RunWrite = { entries: [], head: left };
    for (let wakes = 0; ; ) {
      const conflict = await store.append(key, { epoch: head.epoch, position, owner, wakes }, write);
      // The process that takes the run when it is resumed checks everything.
      if (conflict?.conflict === "woken") ({ wakes } = conflict);
      // It may be a cancel: the run stays due, and is looked at again.
      else if (conflict?.conflict === "arrived")
        write = { ...write, head: { ...left, due_at: head.due_at ?? clock.now() }, takes: "all" };
      else break;
    }
    // The store is not asked for runs of paused agents.
    if (write.takes !== undefined && (await store.find(key))?.head.status === "cancelling") this.reload(key);
    // The next in line has the permit, and may be paused as well.
    if (head.holds_slot) this.#worker.onSlotFree();
  }

  /** The blocked runs of an agent are to be tried with the code that was just registered. */
  onRegistered(agent: Agent): void {
    const { registry } = this.#worker.runs;
    for (const other of this.#untried.keys())
      if (registry.find(other.name, other.options.version) !== other) this.#untried.delete(other);
    this.#untried.set(agent, newUntried());
    for (const run of this.#worker.runs) {
      const isMeant = this.#agentOf(createdEntry(run.log.state)) === agent;
      if (isMeant && run.residence?.phase === "blocked") this.#leave(run);
    }
  }

  /** A blocked run that is loaded leaves. It is tried in its turn, or when a caller needs it. */
  #leave(run: LiveRun): void {
    const { key } = run.log;
    run.setBlocked(undefined);
    const left = endOf(this.#worker.logger, leased(run)?.residency.leaveForOtherCode("blocked") ?? Promise.resolve());
    const leaving = left.then(() => {
      this.#leaving.delete(key);
    });
    this.#leaving.set(key, leaving);
  }

  /** The pauses have changed. Blocked runs that were passed over may be tried. */
  onPauses(): void {
    for (const agent of this.#passed) if (!this.#untried.has(agent)) this.#untried.set(agent, newUntried());
    this.#passed.clear();
    this.retry();
  }

  /** Whether blocked runs are to be tried as soon as there is room. */
  get hasUntried(): boolean {
    return [...this.#untried.values()].some(({ isPutOff }) => !isPutOff);
  }

  /** No blocked run is tried before the next heartbeat. */
  putOff(): void {
    for (const untried of this.#untried.values()) untried.isPutOff = true;
  }

  /** Tries the blocked runs that were put off again, as soon as there is room. */
  retry(): void {
    for (const untried of this.#untried.values()) untried.isPutOff = false;
    if (this.hasUntried) this.#worker.onRoom();
  }

  /** The code that is registered has blocked a run. It is not tried again with this code. */
  onBlocked({ agent, log }: LiveRun): void {
    this.#untried.get(agent)?.tried.set(log.key, true);
  }

  #agentOf({ agent_name, version }: CreatedEntry): Agent | undefined {
    return this.#worker.runs.registry.find(agent_name, version);
  }

  /** Resolves when a blocked run has been tried with the code that is registered. Undefined: it has been. */
  tried({ key, created }: StoredRun): undefined | Promise<void> {
    const agent = this.#agentOf(created);
    const untried = agent && this.#untried.get(agent);
    const isUntried = untried?.isPutOff === false && !untried.tried.has(key);
    if (!isUntried && !this.#loading.has(key)) return undefined;
    return this.load(key).then(ignore, () => {
      if (untried !== undefined) untried.isPutOff = true;
    });
  }

  /** Tries blocked runs as long as there is room. */
  async tryBlocked(room: () => number): Promise<void> {
    for (const [agent, untried] of this.#untried) {
      if (untried.isPutOff) continue;
      if (this.#worker.runs.shared.pauses.cover({ agent_name: agent.name, version: agent.options.version })) {
        untried.isPutOff = true;
        continue;
      }
      try {
        if (await this.#tryInTurn(agent, untried, room)) this.#untried.delete(agent);
      } catch (error) {
        untried.isPutOff = true;
        this.#worker.logger.error(
          "The store failed while the blocked runs of an agent were tried. The next heartbeat tries them again.",
          { agent_name: agent.name, error },
        );
      }
    }
  }

  /** Whether all blocked runs of the agent have been tried. */
  async #tryInTurn(agent: Agent, untried: Untried, room: () => number): Promise<boolean> {
    const { name, options } = agent;
    const { store } = this.#worker;
    const agents = [{ agent_name: name, version: options.version ?? null }];
    while (room() > 0 && !this.#worker.isClosed) {
      const limit = Math.min(PAGE, room());
      const page = await store.blocked({ agents, limit, after: untried.after });
      for (const found of page) {
        if (room() <= 0 || this.#worker.isClosed) return false;
        if (found.created !== null && isPaused(found, this.#worker.runs.shared.pauses)) this.#passed.add(agent);
        else if (found.created !== null && !untried.tried.has(found.key)) await this.#tryOnce(found);
        untried.after = found.key;
      }
      if (page.length < limit) return true;
    }
    return false;
  }

  /** A caller may be trying the run. */
  async #tryOnce(found: StoredRun): Promise<void> {
    const { key } = found;
    await this.#leaving.get(key);
    await this.#once(key, () => this.#tryAgain(found));
  }

  /** Loads a run, unless it is being loaded. */
  #once(key: RunKey, load: () => Promise<LiveRun | undefined>): Promise<LiveRun | undefined> {
    let loading = this.#loading.get(key);
    if (loading === undefined) {
      loading = this.#worker.runs.expect(1, load).finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return loading;
  }

  /** Releases a run whose code does not match its history, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void {
    const { key } = run.log;
    run.setBlocked(undefined);
    const loading = this.#loadAgain(run, key).finally(() => {
      if (this.#loading.get(key) === loading) this.#loading.delete(key);
    });
    this.#loading.set(key, loading);
    inBackground(
      this.#worker.logger,
      loading,
      "A run could not be loaded with the code that was registered.",
      aboutRun(run.log),
    );
  }

  /** Loads a run again that was given up. */
  reload(key: RunKey): void {
    inBackground(this.#worker.logger, this.load(key), "A run could not be loaded again.", key);
  }

  /**
   * Another process has taken over the parent. Its new owner cancels the sub-runs that it finds when it ends the
   * parent. This sub-run may have been stored after that, so it is cancelled here. A parent that is not durable is
   * always ended by its new owner.
   */
  onParentLost(child: LiveRun, parent: LiveRun): void {
    const { logger, store, isClosed } = this.#worker;
    if (isClosed || !store.persistent) return;
    inBackground(logger, this.#cancelOrphan(child, parent), "A sub-run could not be cancelled with its parent.", {
      ...aboutRun(child.log),
      parent_run_id: parent.log.key.run_id,
    });
  }

  async #cancelOrphan(child: LiveRun, parent: LiveRun): Promise<void> {
    if (parent.durable && !(await this.#logs.isOver(parent.log.key))) return;
    await this.#worker.runs.cancelAnywhere(child.log.key);
  }

  async #loadAgain(run: LiveRun, key: RunKey): Promise<LiveRun | undefined> {
    await leased(run)?.residency.leaveForOtherCode();
    const stored = await this.#worker.store.find(key);
    return stored === undefined || stored.head.blocked === null ? this.#load(key) : this.#tryAgain(stored);
  }

  async #load(key: RunKey): Promise<LiveRun | undefined> {
    await this.#leaving.get(key);
    const live = this.#worker.runs.find(key);
    if (live !== undefined) return live;
    const stored = await this.#worker.store.find(key);
    if (stored === undefined || isFinal(stored.head.status)) return undefined;
    const { pauses } = this.#worker.runs.shared;
    // A run that shows a question is loaded all the same: this process validates the answer.
    if (isPaused(stored, pauses) && (stored.head.status !== "awaiting" || stored.head.blocked !== null))
      return undefined;
    if (stored.head.blocked?.newer === true) return this.#tryAgain(stored);
    const agent = this.#agentOf(stored.created);
    if (stored.head.blocked !== null) {
      const untried = agent && this.#untried.get(agent);
      return untried?.tried.has(key) === false ? this.#tryAgain(stored) : this.#worker.runs.find(key);
    }
    if (agent === undefined) return undefined;
    const { head } = stored;
    // A run that begins later is not loaded before that.
    if (head.status === "created" && head.owner === null && head.due_at !== null) return undefined;
    // A waiting run is loaded without a claim. It belongs to the first process that writes to it.
    const isOurs = head.owner === this.#worker.name;
    const claimed = isOurs || isIdle(head, this.#worker.clock.now()) ? head : await this.claim(stored);
    try {
      // This process may have given the run up because of what has arrived for it. A claim would put that into the log.
      if (isOurs) await this.#worker.store.find(key, "with inbox");
      return claimed && (await this.#revive(stored, agent, claimed));
    } catch (error) {
      if (claimed?.owner === this.#worker.name && newerPart(error) !== undefined)
        this.damaged.put({ ...stored, head: claimed }, error);
      throw error;
    }
  }

  /**
   * Claims a run that has no owner, or whose owner's lease has expired. Undefined: another process owns it, or may renew
   * its lease after an outage.
   */
  async claim({ key, head, position, created }: StoredRun): Promise<RunHead | undefined> {
    const { store, name: owner } = this.#worker;
    await this.#lease.renewBeforeTaking();
    if (head.owner !== null && this.#lease.waitMs > 0) return undefined;
    const takeovers = head.takeovers + (head.owner === null ? 0 : 1);
    const holds_slot = head.holds_slot || this.#needsSlot(created, head);
    const claimed: RunHead = {
      ...head,
      owner,
      epoch: head.epoch + 1,
      due_at: null,
      takeovers,
      blocked: null,
      holds_slot,
    };
    const conflict = await store.claim(key, { epoch: head.epoch, position }, claimed);
    // The run becomes due, and is taken when a slot is free. The epoch refuses the process that has blocked it: that one may
    // still have it loaded, and would block it again with its next write.
    if (conflict?.conflict === "full" && head.blocked !== null) {
      const due = { ...head, owner: null, epoch: head.epoch + 1, blocked: null };
      await store.append(
        key,
        { epoch: head.epoch, position, owner: head.owner },
        { entries: [], head: due, wake: key, takes: "all" },
      );
    }
    return conflict === undefined ? claimed : undefined;
  }

  /** Whether a run needs a slot of the store to go on. One that waits, or is being cancelled, needs none so far. */
  #needsSlot({ agent_name, version, parent, durable }: CreatedEntry, { status, owner }: RunHead): boolean {
    if (parent !== undefined || (status !== "created" && status !== "in-progress")) return false;
    // It was interrupted, and is only ended.
    if (durable !== true && owner !== null) return false;
    const agent = this.#worker.runs.registry.find(agent_name, version);
    return agent !== undefined && isCountedByStore(agent.options);
  }

  /**
   * Loads a run, and lets it go on. No agent: this process does not have the code, and ends the run. It is not durable, or it
   * is cancelled, and no process had the code for the time of a lease. Its `finally` blocks do not run.
   */
  async #revive(stored: StoredRun, agent: Agent | undefined, head: RunHead): Promise<LiveRun | undefined> {
    const { key, position, created } = stored;
    const failure = this.#failureAtLoad(key, created, head, agent);
    const isOwned = head.owner === this.#worker.name;
    if (isOwned && failure?.code === "crash_loop") return this.#failUnread({ ...stored, head }, failure);
    const state = initialState(key.run_id);
    const history = new History();
    let size: number | undefined;
    try {
      size = await this.#logs.each(key, position, (entry) => {
        evolve(state, entry);
        history.add(entry);
      });
    } catch (error) {
      if (!isOwned || !isLogSizeError(error)) throw error;
      return this.#failUnread({ ...stored, head }, error);
    }
    const ends = failure !== undefined || agent === undefined;
    if (ends && size !== undefined)
      for (const subRun of subRunsBegun(key, history)) await this.#worker.runs.cancelAnywhere(subRun);
    const { parent } = created;
    const isOrphan = parent !== undefined && (await this.#logs.isOver({ ...key, run_id: parent.run_id }));
    const live = this.#worker.runs.find(key);
    if (live === undefined && this.#worker.isClosed) await this.#giveBack({ ...stored, head });
    if (size === undefined || this.#worker.isClosed || live !== undefined) return live;
    const run = this.#admit(key, agent ?? withoutCode(created), state, size, head);
    this.damaged.forget(key);
    if (failure !== undefined) run.fail(failure);
    else if (agent === undefined) {
      run.onEnd();
      run.endWithoutAgent();
    } else {
      this.#execute(run, history, head);
      // An orphan is cancelled rather than failed, so that its `finally` blocks run.
      if (isOrphan) inBackground(this.#worker.logger, run.cancel().catch(ignore));
    }
    return run;
  }

  /**
   * Ends a run that this process owns as failed, without its log: that is too large, or may be what ends the processes that
   * read it. Its open questions are settled by its end alone.
   */
  async #failUnread(run: StoredRun, error: CadenzaError): Promise<undefined> {
    const { store, clock, logger, name } = this.#worker;
    const { key, created } = run;
    if (this.#worker.isClosed) {
      await this.#giveBack(run);
      return;
    }
    await this.#cancelStoredSubRuns(key);
    const continued = isLogSizeError(error) ? await lastGeneration(store, key, run.position) : undefined;
    // What has arrived meanwhile makes the store refuse the end, if a cancel is among it.
    const next = () => store.find(key, "with inbox");
    for (let found: StoredRun | undefined = run; found?.head.owner === name; found = await next()) {
      const { head, position, inbox = [] } = found;
      if (isFinal(head.status) || head.epoch !== run.head.epoch) return;
      const state = foldEntries(key.run_id, continued === undefined ? [created] : [created, continued]);
      const at = clock.now();
      const cancels = inbox.filter((arrived) => hasCancel(arrived.entries));
      const entries: Entry[] = [];
      const add = (decided: readonly Entry[]): void => {
        for (const entry of decided) evolve(state, entry);
        entries.push(...decided);
      };
      for (const cancel of cancels) for (const entry of cancel.entries) add(decideArrived(state, entry));
      const decision = decide(state, { type: "end", at, failure: failureOf(error, false), usage: null });
      if (!isRefusal(decision)) add(decision);
      const takes = cancels.length === 0 ? undefined : cancels.map(({ id }) => id);
      const left = { owner: null, epoch: head.epoch + 1, due_at: null, blocked: null, holds_slot: false };
      const ended: RunHead = { ...head, ...left, status: state.status, finished_at: at };
      const wake = created.parent && { ...key, run_id: created.parent.run_id };
      const write = { entries, head: ended, counters: countRun(state), wake, takes };
      const expected = { epoch: head.epoch, position, owner: name };
      if ((await store.append(key, expected, fed(store, write, state, position, head, 0))) !== undefined) continue;
      logger.error("A run has failed without its log being read.", { ...aboutStored(run), error });
      this.damaged.forget(key);
      this.#worker.onReleased(key, ended);
      if (head.holds_slot) this.#worker.onSlotFree();
      const parent = wake && this.#worker.runs.find(wake);
      if (parent !== undefined) leased(parent)?.onWoken();
      else if (wake !== undefined) this.#worker.onWake(wake);
      return;
    }
  }

  /**
   * Cancels the sub-runs of a run whose log is not read before its end is written, because no process would cancel them later.
   * The store lists them.
   */
  async #cancelStoredSubRuns({ tenant, run_id }: RunKey): Promise<void> {
    const subRuns = await allRuns(this.#worker.store, { tenant, parents: [run_id] }, ({ key, head }) => ({
      key,
      hasEnded: isFinal(head.status),
    }));
    for (const { key, hasEnded } of subRuns) if (!hasEnded) await this.#worker.runs.cancelAnywhere(key);
  }

  /**
   * This process closes, and begins no run that the store has just given to it. Another process continues them at once. A run
   * that is not durable keeps its owner until the lease is released: so any process ends it, also without its code.
   */
  async #giveBack({ key, position, head, created }: StoredRun): Promise<void> {
    const { store, name: owner } = this.#worker;
    if (head.owner !== owner || (created.durable !== true && !isNew(head))) return;
    const released: RunHead = { ...head, owner: null, epoch: head.epoch + 1, due_at: null };
    // A refusal says that the run has changed meanwhile. It is taken over when the lease of this process has ended.
    const write = { entries: [], head: released, wake: key, takes: "all" } as const;
    await store.append(key, { epoch: head.epoch, position, owner }, write);
  }

  /** The error with which a loaded run fails. Undefined: it continues, or is cancelled without its code. */
  #failureAtLoad(
    { run_id }: RunKey,
    { durable }: CreatedEntry,
    head: RunHead,
    agent: Agent | undefined,
  ): CadenzaError | undefined {
    const { status, takeovers } = head;
    if (isNew(head) || (agent === undefined && status === "cancelling")) return undefined;
    if (durable !== true) return interruptedError(run_id);
    return takeovers > this.#worker.settings.maxTakeovers ? crashLoopError(run_id, takeovers - 1) : undefined;
  }

  #execute(run: LiveRun, history: History, { takeovers, owner }: RunHead): void {
    const owned = leased(run);
    if (owned === undefined) return;
    if (owner === this.#worker.name) owned.residency.onGiven();
    if (takeovers >= SUSPECT_TAKEOVERS) {
      owned.residency.isSuspect = true;
      this.suspects.add(run);
    }
    const slots = slotsOf(run.agent, run.log.key.tenant, createdEntry(run.log.state));
    if (run.log.state.status !== "created") {
      run.occupy(slots, history.subRuns.size > 0, () => owned.residency.replay(history));
      if (run.slot?.isQueued === true) owned.residency.prepare(history);
      return;
    }
    // The run was accepted by another process, and its agent was never called.
    run.reserve(slots);
    run.begin();
    if (run.slot?.isQueued === true) owned.residency.forgetTakeovers();
  }

  #admit(key: RunKey, agent: Agent, state: RunState, size: number, head: RunHead): LiveRun {
    const { runs } = this.#worker;
    const run = new LiveRun(runs, key, agent);
    run.log.adopt(state, head, size);
    const owned = leased(run);
    if (owned !== undefined) owned.residency.head.isTakenOver = true;
    runs.add(run);
    this.#worker.follower.onLoaded(key);
    return run;
  }

  /** Whether this version of the library can read a run that a newer one has written to. Claims nothing. */
  async #isReadable({ key, head }: StoredRun): Promise<boolean> {
    try {
      await this.#worker.store.read(key, head.blocked?.position ?? 0, 1);
      return true;
    } catch (error) {
      if (newerPart(error) !== undefined) return false;
      throw error;
    }
  }

  async #tryAgain(stored: StoredRun): Promise<LiveRun | undefined> {
    const agent = this.#agentOf(stored.created);
    if (agent === undefined || (stored.head.blocked?.newer === true && !(await this.#isReadable(stored))))
      return undefined;
    const claimed = await this.#claimBlocked(stored);
    this.#untried.get(agent)?.tried.set(stored.key, true);
    if (claimed === undefined) return undefined;
    try {
      return await this.#revive(claimed, agent, claimed.head);
    } catch (error) {
      this.damaged.put(claimed, error);
      return undefined;
    }
  }

  /** Claims a blocked run, whatever is posted to it meanwhile. Undefined: another process has claimed it, or no slot is free. */
  async #claimBlocked(stored: StoredRun): Promise<StoredRun | undefined> {
    let found: StoredRun | undefined = stored;
    while (found !== undefined && found.head.blocked !== null) {
      const { head, position }: StoredRun = found;
      const claimed = await this.claim(found);
      if (claimed !== undefined) return { ...found, head: claimed };
      found = await this.#worker.store.find(stored.key);
      if (found?.head.epoch === head.epoch && found.position === position) return undefined;
    }
    return undefined;
  }
}

/**
 * Whether a pause covers a run. One that is being cancelled, or is only taken to end it, is not paused: it stays as it is
 * otherwise, until it is resumed.
 */
export function isPaused({ key, created, head }: StoredRun, pauses: Pauses): boolean {
  if (head.status === "cancelling" || !pauses.cover(created, key.tenant)) return false;
  return created.durable === true || isNew(head);
}

/** A run that was to begin later, or in another process than the one that accepted it, has begun in no process. */
function isNew({ status, takeovers }: RunHead): boolean {
  return status === "created" && takeovers === 0;
}

/** What takes the place of an agent that this process does not have, so that it can end the run. */
function withoutCode({ agent_name }: CreatedEntry): Agent {
  return { name: agent_name, options: {}, fn: () => undefined };
}

/** Whether a run only waits: it has no owner, and a time from which it needs work is not reached. */
function isIdle({ owner, status, due_at }: RunHead, now: number): boolean {
  return owner === null && (status === "awaiting" || (status === "in-progress" && (due_at === null || due_at > now)));
}

function interruptedError(runId: string): CadenzaError {
  return new CadenzaError(
    "interrupted",
    `Run ${runId} is not durable, and the process that executed it has ended or lost its lease.`,
    {
      run_id: runId,
    },
  );
}

function crashLoopError(runId: string, takeovers: number): CadenzaError {
  const message = `Run ${runId} was taken over ${takeovers} times without progress. It probably crashes its process.`;
  return new CadenzaError("crash_loop", message, { run_id: runId });
}
