import { inBackground } from "../../core/background.ts";
import { noSession } from "../../core/errors.ts";
import type { NewLog } from "../../core/fork.ts";
import { isFree, takenAt } from "../../core/head.ts";
import type { CreatedEntry, ParentRun } from "../../core/log.ts";
import type { Clock, Ids, Mismatch, RunKey, SessionChange, SessionKey } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { RunMap } from "../../core/run-map.ts";
import { isStopped, startTime } from "../../core/state.ts";
import { isOwn } from "../../core/tenants.ts";
import type { Run } from "../../protocol/run.ts";
import type { Agent } from "../agent/agent.ts";
import { checkInput } from "../agent/agent-schemas.ts";
import type { NewRun, NewRunParts, RunElsewhere } from "../agent/new-run.ts";
import { createdEntryOf, repeat } from "../agent/new-run.ts";
import type { Registry } from "../agent/registry.ts";
import type { Execution, NewSubRun } from "../execution/execution.ts";
import type { Residence } from "../execution/operations.ts";
import { onceTaken } from "../execution/operations.ts";
import { closedError, notLoadedError } from "../log/refusals.ts";
import type { ExecutionSettings, RunsReport } from "../log/shared-by-runs.ts";
import { OneByOne, SharedByRuns } from "../log/shared-by-runs.ts";
import { Admission, isCountedByStore, slotsOf } from "./admission.ts";
import type { Announcer } from "./announcer.ts";
import { deleteRun, deleteSession, Pruning } from "./deleting.ts";
import type { LiveRuns, SubRunFound } from "./live-run.ts";
import { LiveRun } from "./live-run.ts";
import type { Settings } from "./options.ts";
import type { AddedRun, Engine, RemoteRuns } from "./remote-runs.ts";
import { cancelAnywhere, cancelSurely, findElsewhere } from "./remote-runs.ts";
import { SessionEntries } from "./session-entry.ts";
import { runSubRun } from "./sub-run.ts";

/** How many runs are tried to be evicted for one that is loaded. Some cannot be, such as those that are being written. */
const EVICTIONS = 8;

/** The live runs of a runtime: creates, finds and ends them. */
export class Runs implements LiveRuns {
  readonly shared: SharedByRuns;
  /** Undefined: only this process executes runs of the store. */
  readonly remote: RemoteRuns | undefined;
  readonly registry: Registry;
  readonly ids: Ids;
  readonly #options: Settings;
  readonly #announcer: Announcer;
  readonly #live = new RunMap<LiveRun>();
  /** Those that keep no new run out: the store has given them to this process, they are idle, or the runtime's own. */
  readonly #apart = new RunMap<true>();
  /** Those that are not executed: they only wait. Empty if the store ends with the process. */
  readonly #waiting = new Set<LiveRun>();
  /** The waiting runs that can be evicted, the one that waits longest first. */
  readonly #idle = new Set<LiveRun>();
  /** How many more may be here soon. */
  #expected = 0;
  readonly sessions: SessionEntries;
  readonly #pruning: Pruning;
  readonly #admission: Admission;
  readonly #cancelling = new OneByOne();
  #over = false;

  constructor(options: Settings, engine: Engine | undefined, registry: Registry, announcer: Announcer) {
    const { store, clock, logger } = options;
    this.#options = options;
    this.registry = registry;
    this.ids = options.ids;
    this.#announcer = announcer;
    const shared = new SharedByRuns(store, clock, logger, executionSettings(options));
    this.shared = shared;
    this.sessions = new SessionEntries(store, clock, (key) => this.find(key));
    this.#pruning = new Pruning(options);
    this.#admission = new Admission(options, shared.slots);
    shared.pauses.onChange.push(() => {
      for (const run of [...this]) run.onPauses();
    });
    this.remote = engine?.(this);
    this.#pruning.start();
  }

  residenceOf(run: LiveRun): Residence | undefined {
    return this.remote?.residenceOf(run);
  }

  /** The run, if this process executes it. */
  find(key: RunKey): LiveRun | undefined {
    return this.#live.get(key);
  }

  [Symbol.iterator](): Iterator<LiveRun> {
    return this.#live.values();
  }

  /** Resolves when what has been decided so far of the runs of a tenant is in the store, as far as the store takes it. */
  async settled(tenant: string): Promise<void> {
    const waiting: Promise<void>[] = [];
    for (const { log } of this.#live.valuesOf(tenant)) {
      const isDue = log.backlog > 0 && !log.isRetrying;
      const committed = isDue ? log.acknowledge() : undefined;
      if (committed !== undefined) waiting.push(committed.catch(ignore));
    }
    if (waiting.length > 0) await Promise.all(waiting);
  }

  /** As `deleteRun`. */
  async delete(key: RunKey): Promise<CreatedEntry | null> {
    await this.settled(key.tenant);
    return deleteRun(this.#options.store, key);
  }

  async deleteSession(key: SessionKey): Promise<void> {
    await this.settled(key.tenant);
    return deleteSession(this.#options.store, key);
  }

  get report(): RunsReport {
    const live: Record<string, number> = {};
    let queued = 0;
    for (const { log, slot } of this.#live.values()) {
      if (isOwn(log.key.tenant)) continue;
      live[log.state.status] = (live[log.state.status] ?? 0) + 1;
      if (slot?.isQueued === true) queued += 1;
    }
    return {
      live,
      queued,
      ...this.shared.figures,
    };
  }

  /**
   * Accepts a run; the caller lets it begin. `elsewhere`: a run that is in the store, because its idempotency key has
   * made it before, or because it does not begin here. Most runs need nothing from the store to be accepted,
   * and are accepted at once. `agent`: by default the one for new runs of that name. Throws `agent_not_found`.
   */
  create(
    request: NewRun,
    agent = this.registry.get(request.agent_name),
  ): MaybePromise<{ readonly run: LiveRun } | RunElsewhere> {
    const ready = this.shared.clock.ready() ?? this.shared.pauses.ready();
    if (ready !== undefined) return ready.then(() => this.create(request, agent));
    const checked = checkInput(agent, request.input, this.shared);
    return checked === undefined ? this.#create(agent, request) : checked.then(() => this.#create(agent, request));
  }

  #create(agent: Agent, request: NewRun): MaybePromise<{ readonly run: LiveRun } | RunElsewhere> {
    this.#admit(agent, request.tenant);
    const { session_id, idempotencyKey, session } = request;
    const isPlain = session_id === undefined && idempotencyKey === undefined && session === undefined;
    if (isPlain && this.begins(agent, request.tenant))
      return { run: this.#accept({ agent, request, runId: this.ids.uuid() }) };
    return this.#createWithCare(agent, request);
  }

  acceptSubRun(request: NewRun, runId: string, parent: ParentRun): MaybePromise<LiveRun | undefined> {
    const agent = this.registry.get(request.agent_name);
    if (!this.registry.executes(agent) || this.#isLeft(agent, request.tenant))
      return this.#handOver({ agent, request, runId, parent });
    this.#checkLiveRuns(request.tenant);
    return this.#accept({ agent, request, runId, parent });
  }

  /** Accepts a fork, which begins with these entries; the caller lets it begin. */
  acceptFork(
    agent: Agent,
    key: RunKey,
    log: NewLog,
    idempotencyKey: string | undefined,
    session: SessionChange,
  ): LiveRun {
    this.#admit(agent, key.tenant);
    return this.#begin(agent, key, log, idempotencyKey, session);
  }

  /** Whether runs can be executed again from their logs. */
  get isDurable(): boolean {
    return this.remote !== undefined;
  }

  /** Takes a run in that was in the store. */
  add(run: LiveRun): void {
    const { key, head } = run.log;
    this.#live.set(key, run);
    if (takenAt(head) > 0) this.#apart.set(key, true);
    this.#makeRoom();
    this.#announcer.onCreated(run);
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** No run is here any more, and the store is not asked any more: readers that wait get their end. */
  end(): void {
    this.#over = true;
    this.#options.feed.end();
  }

  get capacity(): number {
    const { limits, work = 0 } = this.#options;
    const loaded = this.#live.size + this.#expected;
    return Math.max(0, Math.min(limits.maxLiveRuns - loaded + this.#idle.size, work - loaded + this.#waiting.size));
  }

  async expect<Result>(runs: number, work: () => MaybePromise<Result>): Promise<Result> {
    this.#expected += runs;
    try {
      return await work();
    } finally {
      this.#expected -= runs;
    }
  }

  onSettled(run: LiveRun): void {
    const { key, head } = run.log;
    if (!this.shared.store.persistent || this.#live.get(key) !== run) return;
    const { isExecuted } = run;
    if (isExecuted) this.#waiting.delete(run);
    else this.#waiting.add(run);
    const isIdle = !isExecuted && run.isWaiting && run.mayLeave && isFree(head);
    if (isIdle) this.#idle.add(run);
    else this.#idle.delete(run);
    if (isIdle || takenAt(head) > 0 || isOwn(key.tenant)) this.#apart.set(key, true);
    else this.#apart.delete(key);
  }

  /** Evicts runs that only wait, as long as more runs are loaded than the limit allows. */
  #makeRoom(): void {
    for (let tries = EVICTIONS; tries > 0 && this.#live.size > this.#options.limits.maxLiveRuns; tries--) {
      const [longest] = this.#idle;
      if (longest === undefined) return;
      this.#idle.delete(longest);
      this.#idle.add(longest);
      longest.residence?.note("crowded");
    }
  }

  onBlocked(run: LiveRun, mismatch: Mismatch): void {
    this.#announcer.onBlocked(run, mismatch);
  }

  onGone(run: LiveRun): void {
    const { key } = run.log;
    // A run that has left memory may be loaded again by the time that it learns of it.
    if (this.#live.get(key) !== run) return;
    this.#live.delete(key);
    this.#apart.delete(key);
    this.#waiting.delete(run);
    this.#idle.delete(run);
    this.shared.pauses.forget(run);
    this.#pruning.onEnded(key.tenant);
    this.shared.onProgress?.();
  }

  /** Runs another agent under a run, to its end. */
  runAgent(parent: LiveRun, execution: Execution, asked: NewSubRun): Promise<Run> {
    return runSubRun(parent, execution, asked);
  }

  async findSubRun(key: RunKey): Promise<SubRunFound> {
    // Another process may have written to a run that is loaded here, and may have ended it.
    const checked = this.find(key)?.residence?.sync("if left");
    if (checked !== undefined) await checked;
    const { remote, shared } = this;
    return this.find(key) ?? (remote && findElsewhere(remote, shared.store, key));
  }

  /** The sub-run then cancels its own sub-runs. */
  cancelSubRun(key: RunKey, parent: LiveRun): undefined | Promise<void> {
    const live = this.find(key);
    if (live !== undefined) this.#cancelling.do(() => inBackground(this.shared.logger, live.cancel().catch(ignore)));
    const { remote, shared } = this;
    return remote && shared.store.persistent ? cancelSurely(remote, key, parent) : undefined;
  }

  async cancelAnywhere(key: RunKey): Promise<void> {
    if (this.remote !== undefined) await cancelAnywhere(this.remote, key);
  }

  /** No new runs from now on. Resolves when none is at work here any more, or after `drainMs`. See {@link Draining}. */
  async drain(drainMs: number, handOn: (run: LiveRun) => void): Promise<void> {
    this.shared.stage = "draining";
    await this.remote?.stop("taking");
    this.#pruning.stop();
    await new Draining(this, this.shared, handOn).wait(drainMs);
  }

  #admit(agent: Agent, tenant: string): void {
    if (this.shared.isClosed) throw closedError();
    if (this.begins(agent, tenant)) this.#checkLiveRuns(tenant);
  }

  /**
   * Runs that the store has given to this process, idle ones and the runtime's own do not count. Those that were answered here
   * do.
   */
  #checkLiveRuns(tenant: string): void {
    if (isOwn(tenant)) return;
    const ofTenant = this.#live.sizeOf(tenant) - this.#apart.sizeOf(tenant);
    this.#admission.checkLiveRuns(tenant, ofTenant, this.#live.size - this.#apart.size);
  }

  /**
   * Whether new runs of an agent begin in this process as soon as they are accepted. Those that need a slot of the store
   * are taken from it, by this process or another one, in the order in which they were accepted. So are paused ones.
   */
  begins(agent: Agent, tenant: string): boolean {
    const sharesSlots = this.remote !== undefined && this.shared.store.persistent;
    if (!this.registry.executes(agent) || this.#isLeft(agent, tenant)) return false;
    return !(sharesSlots && isCountedByStore(agent.options));
  }

  /** Whether new runs of an agent are paused, and left to the store until they are resumed. */
  #isLeft({ name, options }: Agent, tenant: string): boolean {
    const { store, pauses } = this.shared;
    if (pauses.known.length === 0 || this.remote === undefined || !store.persistent) return false;
    return pauses.cover({ agent_name: name, version: options.version }, tenant);
  }

  #accept(parts: NewRunParts): LiveRun {
    const { agent, request, runId, session } = parts;
    const key = { tenant: request.tenant, run_id: runId };
    return this.#begin(agent, key, [this.#created(key, parts)], request.idempotencyKey, session?.change);
  }

  /** Accepts a run that does not begin here. */
  async #handOver(parts: NewRunParts): Promise<undefined> {
    const { agent, request, runId, session } = parts;
    const { tenant, idempotencyKey } = request;
    const key = { tenant, run_id: runId };
    const log: NewLog = [this.#created(key, parts)];
    await this.addElsewhere({ key, log, session: session?.change, idempotencyKey, agent });
  }

  /** Adds a run that does not begin here. Only a durable store has such runs. */
  async addElsewhere(run: AddedRun): Promise<void> {
    if (this.remote === undefined) throw notLoadedError(run.key.run_id);
    await this.remote.create(run);
  }

  #created(key: RunKey, parts: NewRunParts): CreatedEntry {
    return this.shared.withCarrier(key, createdEntryOf(parts, this.shared.clock.now()));
  }

  /** Accepts a run whose log begins with these entries. */
  #begin(
    agent: Agent,
    key: RunKey,
    log: NewLog,
    idempotencyKey: string | undefined,
    session: SessionChange | undefined,
  ): LiveRun {
    const [entry] = log;
    const slots = slotsOf(agent, key.tenant, entry);
    this.#admission.checkSlots(agent, slots, key.tenant, entry.start_at);
    const run = new LiveRun(this, key, agent);
    this.#live.set(key, run);
    if (isOwn(key.tenant)) this.#apart.set(key, true);
    this.#makeRoom();
    run.log.create(log, idempotencyKey ?? null, session);
    run.reserve(slots);
    this.#announcer.onCreated(run);
    return run;
  }

  async #createWithCare(agent: Agent, request: NewRun): Promise<{ readonly run: LiveRun } | RunElsewhere> {
    const { tenant, idempotencyKey, session_id, onlyOf } = request;
    if (idempotencyKey !== undefined) {
      const known = await this.#options.store.findByIdempotencyKey(tenant, idempotencyKey);
      if (known !== undefined) return repeat(known, request);
    }
    if (
      onlyOf !== undefined &&
      session_id !== undefined &&
      !(await this.sessions.mayJoin({ tenant, session_id }, onlyOf))
    )
      throw noSession(session_id);
    const runId = this.ids.uuid();
    const session =
      request.session !== undefined
        ? this.sessions.replace(request, session_id ?? runId, runId, request.session)
        : session_id === undefined
          ? undefined
          : await this.sessions.join(request, session_id, runId);
    this.#admit(agent, tenant);
    const parts: NewRunParts = { agent, request, runId, session };
    try {
      if (!this.begins(agent, tenant)) {
        await this.#handOver(parts);
        const of = { agent_name: agent.name, session_id: request.session_id ?? runId };
        return { elsewhere: { tenant, run_id: runId }, of };
      }
      const run = this.#accept(parts);
      // The store may refuse the run: its key was used, or another user has made its session.
      const mayBeRefused = idempotencyKey !== undefined || session?.change.onlyOf !== undefined;
      if (mayBeRefused) await onceTaken(run.log, () => run.begin());
      return { run };
    } catch (error) {
      if (idempotencyKey === undefined) throw error;
      // Another caller used the key between the look and the write.
      const known = await this.#options.store.findByIdempotencyKey(tenant, idempotencyKey);
      if (known === undefined) throw error;
      return repeat(known, request);
    }
  }
}

/** What agents are executed under. */
export function executionSettings(options: Settings): ExecutionSettings {
  const { timeoutMs, awaitTimeoutMs, cancelGraceMs, exposeErrors, interceptors, limits, stepLimits } = options;
  const { keepGenerations } = options.retention;
  const times = { timeoutMs, awaitTimeoutMs, cancelGraceMs };
  return { ...limits, ...times, exposeErrors, interceptors, stepLimits, keepGenerations };
}

/**
 * The time that the runs of a runtime have while it is closed. In its first half they may end or come to rest. In the
 * second half, a run that other processes can go on with begins no more steps here, and is handed on as soon as none of
 * them is at work: a step that takes less than half of the time is not interrupted.
 */
class Draining {
  readonly #runs: Iterable<LiveRun>;
  readonly #shared: SharedByRuns;
  readonly #handOn: (run: LiveRun) => void;
  readonly #handedOn = new Set<LiveRun>();

  /** `handOn`: called once for each run that may go on elsewhere. */
  constructor(runs: Iterable<LiveRun>, shared: SharedByRuns, handOn: (run: LiveRun) => void) {
    this.#runs = runs;
    this.#shared = shared;
    this.#handOn = handOn;
  }

  /** Resolves when no run is at work here any more, or after `drainMs` milliseconds. */
  async wait(drainMs: number): Promise<void> {
    const shared = this.#shared;
    const first = drainMs / 2;
    await this.#until(() => !this.#isWorking, first);
    shared.stage = "handing on";
    shared.settings.stepLimits.handOn();
    await this.#until(() => {
      this.#handOnIdle();
      return !this.#isWorking;
    }, drainMs - first);
    shared.onProgress = undefined;
  }

  /** Resolves when a condition holds, which is looked at after each commit, or after a time in milliseconds. */
  async #until(condition: () => boolean, ms: number): Promise<void> {
    const shared = this.#shared;
    if (!(ms > 0) || condition()) return;
    await new Promise<void>((resolve) => {
      const clear = setUnlessEndless(shared.clock, resolve, ms);
      shared.onProgress = () => {
        if (!condition()) return;
        clear();
        resolve();
      };
    });
  }

  #handOnIdle(): void {
    for (const run of [...this.#runs]) {
      const isAtWork = !run.areStepsHeld || isStopped(run.log.state);
      if (isAtWork || !run.mayLeave || this.#handedOn.has(run)) continue;
      this.#handedOn.add(run);
      this.#handOn(run);
    }
  }

  /** Whether a run does more than to wait. The oldest ones, which are looked at first, are often the last to end. */
  get #isWorking(): boolean {
    const now = this.#shared.clock.now();
    for (const run of this.#runs) if (!run.isWaiting && startTime(run.log.state) <= now) return true;
    return false;
  }
}

function setUnlessEndless(clock: Clock, callback: () => void, ms: number): () => void {
  return ms === Number.POSITIVE_INFINITY ? ignore : clock.setTimeout(callback, ms);
}
