import { CadenzaError } from "../core/errors.ts";
import type { ParentRun } from "../core/log.ts";
import type { Clock, Logger, Mismatch, RunKey, SessionChange, Store, StoredSession } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { transcript } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, initialState, isFinal } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import type { Agent } from "./agent.ts";
import type { Execution, ExecutionSettings } from "./execution.ts";
import { foldLog } from "./fold-log.ts";
import { Follower } from "./follower.ts";
import type { RunInput } from "./input.ts";
import { LiveRun } from "./live-run.ts";
import type { NewRun } from "./new-run.ts";
import { createdEntryOf, repeat } from "./new-run.ts";
import { OneByOne } from "./one-by-one.ts";
import type { Settings } from "./options.ts";
import { Pacer } from "./pacer.ts";
import type { RecoveryHost } from "./recovery.ts";
import { Recovery } from "./recovery.ts";
import { blockedError, closedError } from "./refusals.ts";
import type { Registry } from "./registry.ts";
import { RunLoader } from "./run-loader.ts";
import type { RunLog } from "./run-log.ts";
import { Slots } from "./slots.ts";
import type { StoredLog, StoredLogHost } from "./stored-log.ts";
import { SubRuns } from "./sub-runs.ts";
import { holdProcess } from "./system.ts";

/** What happened in this process beside what the logs say. */
export interface RunsReport {
  /** Runs by status that have not ended, in this process. */
  readonly live: Readonly<Record<string, number>>;
  readonly queued: number;
  /** What agents showed after their run had ended. */
  readonly dropped: number;
  /** Agents that did not stop within the grace period. */
  readonly hung: number;
  /** Runs that were cancelled without their `finally` blocks, since there was no fitting code for them. */
  readonly withoutFinally: number;
  /** Values that durable agents showed otherwise when they were run again; what was shown first counts. */
  readonly differences: number;
}

/** What is told of the runs of a process, beside what their logs tell. */
export interface RunsListener {
  /** A run has come into this process: it is new, or was in the store. */
  onCreated(run: LiveRun): void;
  /** The code of a durable run does not fit its log. */
  onBlocked(run: LiveRun, mismatch: Mismatch): void;
}

/** How long an agent that is run again may take to ask for what its log holds next, in milliseconds. */
const STALL_MS = 5_000;
/** With `alwaysReplay`: test runners give up after five seconds, and their message says nothing. */
const TEST_STALL_MS = 2_000;

/** The live runs of a runtime: creates, finds and ends them. */
export class Runs implements RecoveryHost, StoredLogHost {
  readonly settings: ExecutionSettings;
  readonly slots = new Slots();
  readonly telling = new OneByOne();
  readonly recovery: Recovery;
  readonly loader: RunLoader;
  readonly followed = new Set<StoredLog>();
  readonly follower: Follower;
  readonly #options: Settings;
  readonly #registry: Registry;
  readonly #listener: RunsListener;
  readonly #live = new Map<string, LiveRun>();
  /** Those that were in the store before they were loaded here. */
  readonly #taken = new Set<LiveRun>();
  /** Sessions that somebody is joining just now. */
  readonly #joining = new Map<string, Promise<SessionEntry>>();
  readonly #pacer: Pacer;
  readonly #subRuns: SubRuns;
  #dirty: { flush(): void }[] = [];
  #dropped = 0;
  #hung = 0;
  #differences = 0;
  #withoutFinally = 0;
  #ended = 0;
  #clearPrune: (() => void) | undefined;
  #owner: string | undefined;
  #closed = false;
  #over = false;
  /** Called after every commit while the runtime is being closed. */
  #onProgress: (() => void) | undefined;

  constructor(options: Settings, registry: Registry, listener: RunsListener) {
    this.#options = options;
    this.#registry = registry;
    this.#listener = listener;
    this.#pacer = new Pacer(options.clock);
    this.follower = new Follower(options.store, options.clock, options.logger);
    this.loader = new RunLoader(this, registry, options.durability.maxTakeovers);
    this.recovery = new Recovery(this, registry, this.loader, options.durability);
    const { timeoutMs, awaitTimeoutMs, cancelGraceMs, limits } = options;
    const { maxLogEntries, maxPartBytes, maxBacklog } = limits;
    const stallMs = options.alwaysReplay ? TEST_STALL_MS : STALL_MS;
    this.#subRuns = new SubRuns(this, limits.maxDepth);
    this.settings = { timeoutMs, awaitTimeoutMs, cancelGraceMs, maxLogEntries, maxPartBytes, maxBacklog, stallMs };
  }

  /** The name of this process among those that share the store. Made when it is first needed: Workers refuse chance while modules load. */
  get owner(): string {
    this.#owner ??= this.#options.ids.token();
    return this.#owner;
  }

  get store(): Store {
    return this.#options.store;
  }

  get clock(): Clock {
    return this.#options.clock;
  }

  get logger(): Logger {
    return this.#options.logger;
  }

  get evictAfterMs(): number {
    return this.store.persistent ? this.#options.durability.evictAfterMs : Number.POSITIVE_INFINITY;
  }

  get alwaysReplay(): boolean {
    return this.#options.alwaysReplay;
  }

  get exposeErrors(): boolean {
    return this.#options.exposeErrors;
  }

  /** Keeps the process from ending until the answer is called. */
  hold(): () => void {
    const { clock } = this;
    return clock.hold === undefined ? holdProcess() : clock.hold();
  }

  /** The run, if this process executes it. */
  find({ tenant, run_id }: RunKey): LiveRun | undefined {
    const run = this.#live.get(run_id);
    return run?.log.key.tenant === tenant ? run : undefined;
  }

  [Symbol.iterator](): Iterator<LiveRun> {
    return this.#live.values();
  }

  /** Resolves when what has been decided so far of the runs of a tenant is in the store, as far as the store takes it. */
  async settled(tenant: string): Promise<void> {
    const waiting: Promise<void>[] = [];
    for (const { log } of this.#live.values()) {
      const isDue = log.key.tenant === tenant && log.backlog > 0 && !log.isRetrying;
      const committed = isDue ? log.commit(true) : undefined;
      if (committed !== undefined) waiting.push(committed.catch(ignore));
    }
    if (waiting.length > 0) await Promise.all(waiting);
  }

  get report(): RunsReport {
    const live: Record<string, number> = {};
    for (const { log } of this.#live.values()) live[log.state.status] = (live[log.state.status] ?? 0) + 1;
    return {
      live,
      queued: this.slots.queued,
      dropped: this.#dropped,
      hung: this.#hung,
      differences: this.#differences,
      withoutFinally: this.#withoutFinally,
    };
  }

  /**
   * Accepts a run; the caller lets it begin. `repeated`: the run that its idempotency key has made before.
   * Most runs need nothing from the store to be accepted, and are accepted at once.
   */
  create(request: NewRun): MaybePromise<{ readonly run: LiveRun } | { readonly repeated: RunKey }> {
    const agent = this.#registry.get(request.agent_name);
    this.#admit();
    if (request.session_id === undefined && request.idempotencyKey === undefined && request.session === undefined) {
      return { run: this.#accept(agent, request, this.newRunId(), 0, undefined) };
    }
    return this.#createWithCare(agent, request);
  }

  /** Accepts a sub-run. */
  acceptSubRun(request: NewRun, runId: string, parent: ParentRun): LiveRun {
    const agent = this.#registry.get(request.agent_name);
    this.#checkLiveRuns();
    return this.#accept(agent, request, runId, 0, undefined, parent);
  }

  newRunId(): string {
    return this.#options.ids.uuid();
  }

  /** Takes a run in that was in the store. It keeps no new run out. */
  add(run: LiveRun): void {
    this.#live.set(run.log.key.run_id, run);
    this.#taken.add(run);
    this.#listener.onCreated(run);
  }

  /** Under which slot a run works; undefined: it needs none. */
  slotKeyOf({ agent: { name, options }, log }: LiveRun): string | undefined {
    const { parent, session_id } = createdEntry(log.state);
    if (options.concurrency === undefined || parent !== undefined) return undefined;
    return slotKey(name, options.concurrency.per, log.key.tenant, session_id);
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  get isOver(): boolean {
    return this.#over;
  }

  /** No run is here any more, and the store is not asked any more: readers that wait are told so. */
  end(): void {
    this.#over = true;
    for (const log of [...this.followed]) log.end();
  }

  get capacity(): number {
    return Math.max(0, this.#options.limits.maxLiveRuns - this.#live.size);
  }

  ensureOwner(run: LiveRun): undefined | Promise<void> {
    return this.recovery.lease.ensure(run);
  }

  hasOtherCode({ agent, log }: LiveRun): boolean {
    const { agent_name, version } = createdEntry(log.state);
    return this.#registry.find(agent_name, version) !== agent;
  }

  loadAgain(run: LiveRun): void {
    this.loader.loadAgain(run);
  }

  onBlocked(run: LiveRun, mismatch: Mismatch): void {
    const { run_id } = run.log.key;
    const error = blockedError(run_id, run.agent.name, mismatch);
    this.logger.warn(error.message, { run_id, ...mismatch });
    this.#listener.onBlocked(run, mismatch);
  }

  onWake(): void {
    this.recovery.lookForWork();
  }

  onUnknownOutcome(): void {
    this.recovery.onUnknownOutcome();
  }

  reload(key: RunKey): void {
    this.loader
      .load(key)
      .catch((error: unknown) =>
        this.logger.error(`Run ${key.run_id} could not be loaded again.`, { run_id: key.run_id, error }),
      );
  }

  onSuspectCleared(run: LiveRun): void {
    this.recovery.onSuspectCleared(run);
  }

  onAgentMissing(): void {
    this.#withoutFinally += 1;
  }

  onDifference(): void {
    this.#differences += 1;
  }

  pace(at: number): undefined | Promise<void> {
    return this.#pacer.count(at);
  }

  commitSoon(log: { flush(): void }): void {
    if (this.#dirty.push(log) > 1) return;
    void this.clock.turn().then(() => {
      const dirty = this.#dirty;
      this.#dirty = [];
      for (const each of dirty) each.flush();
    });
  }

  onDropped(): void {
    this.#dropped += 1;
  }

  onHung(run: LiveRun): void {
    this.#hung += 1;
    this.logger.warn(`Agent ${run.agent.name} did not stop in time, and was left behind.`, {
      run_id: run.log.key.run_id,
    });
  }

  onCommit(): void {
    this.#onProgress?.();
  }

  onGone(run: LiveRun): void {
    const { run_id } = run.log.key;
    // A run that was let go of may have come back by the time it learns that it is gone.
    if (this.#live.get(run_id) !== run) return;
    this.#live.delete(run_id);
    this.#taken.delete(run);
    this.recovery.onSuspectCleared(run);
    this.#ended += 1;
    if (this.#ended > this.#options.retention.maxRuns / 16) this.#prune();
    else this.#pruneLater();
    this.#onProgress?.();
  }

  runAgent(parent: LiveRun, execution: Execution, agentName: string, input: RunInput): Promise<Run> {
    return this.#subRuns.run(parent, execution, agentName, input);
  }

  onParentLost(child: LiveRun, parent: LiveRun): void {
    if (!this.#closed && this.store.persistent) this.#subRuns.onParentLost(child, parent);
  }

  cancelSubRun(key: RunKey, parent: RunLog): undefined | Promise<void> {
    return this.#subRuns.cancel(key, parent);
  }

  /** No new runs from now on. Resolves when none is at work any more, or after `drainMs`. */
  async drain(drainMs: number): Promise<readonly LiveRun[]> {
    this.#closed = true;
    await this.recovery.stopTaking();
    this.#clearPrune?.();
    if (drainMs > 0 && this.#isWorking) {
      await new Promise<void>((resolve) => {
        const finish = (): void => {
          clear();
          resolve();
        };
        const clear = drainMs === Number.POSITIVE_INFINITY ? ignore : this.clock.setTimeout(finish, drainMs);
        this.#onProgress = () => {
          if (!this.#isWorking) finish();
        };
      });
    }
    return [...this.#live.values()];
  }

  /** Whether a run does more than to wait. The oldest ones, which are looked at first, are often the last to end. */
  get #isWorking(): boolean {
    for (const { log } of this.#live.values()) if (log.state.status !== "awaiting") return true;
    return false;
  }

  #admit(): void {
    if (this.#closed) throw closedError();
    this.#checkLiveRuns();
  }

  #checkLiveRuns(): void {
    const { maxLiveRuns } = this.#options.limits;
    if (this.#live.size - this.#taken.size >= maxLiveRuns) {
      throw new CadenzaError(
        "limit_reached",
        `There are ${maxLiveRuns} live runs already, as many as limits.maxLiveRuns allows.`,
        { limit: "maxLiveRuns" },
      );
    }
  }

  #accept(
    agent: Agent,
    request: NewRun,
    runId: string,
    historyLength: number,
    session: SessionChange | undefined,
    parent?: ParentRun,
  ): LiveRun {
    this.recovery.start();
    const run = new LiveRun(this, { tenant: request.tenant, run_id: runId }, agent);
    const entry = createdEntryOf(agent, request, runId, this.clock.now(), historyLength, parent);
    if (parent === undefined) this.#checkSlots(agent, request.tenant, entry.session_id);
    this.#live.set(runId, run);
    run.log.create({ type: "create", entry }, request.idempotencyKey ?? null, session);
    run.reserve(this.slotKeyOf(run));
    this.#listener.onCreated(run);
    return run;
  }

  #checkSlots({ name, options: { concurrency } }: Agent, tenant: string, sessionId: string): void {
    if (
      concurrency === undefined ||
      this.slots.isFree(slotKey(name, concurrency.per, tenant, sessionId), concurrency.max)
    )
      return;
    if (concurrency.whenFull === "reject") {
      throw new CadenzaError("limit_reached", `Agent ${name} has as many runs at work as its concurrency allows.`, {
        agent_name: name,
        limit: "concurrency",
      });
    }
    const { maxQueuedRuns } = this.#options.limits;
    if (this.slots.queued >= maxQueuedRuns) {
      throw new CadenzaError(
        "limit_reached",
        `${maxQueuedRuns} runs wait for a slot already, as many as limits.maxQueuedRuns allows.`,
        { limit: "maxQueuedRuns" },
      );
    }
  }

  async #createWithCare(
    agent: Agent,
    request: NewRun,
  ): Promise<{ readonly run: LiveRun } | { readonly repeated: RunKey }> {
    const { tenant, idempotencyKey } = request;
    if (idempotencyKey !== undefined) {
      const known = await this.store.findByIdempotencyKey(tenant, idempotencyKey);
      if (known !== undefined) return repeat(known, request);
    }
    const runId = this.newRunId();
    const session =
      request.session !== undefined
        ? await this.#replaceSession(tenant, request.session_id ?? runId, request.session)
        : request.session_id === undefined
          ? undefined
          : await this.#enterSession(tenant, request.session_id);
    this.#admit();
    const run = this.#accept(agent, request, runId, session?.length ?? 0, session?.change);
    if (idempotencyKey === undefined) return { run };
    try {
      await run.log.commit(true);
      return { run };
    } catch (error) {
      // Somebody else used the key between the look and the write.
      const known = await this.store.findByIdempotencyKey(tenant, idempotencyKey);
      if (known === undefined) throw error;
      return repeat(known, request);
    }
  }

  /** Joins a session. Those who join the same one do it one after the other: the first one may have to make it. */
  async #enterSession(tenant: string, sessionId: string): Promise<SessionEntry> {
    const name = `${sessionId}/${tenant}`;
    const before = this.#joining.get(name);
    const joining =
      before === undefined
        ? this.#joinSession(tenant, sessionId)
        : before.catch(ignore).then(() => this.#joinSession(tenant, sessionId));
    this.#joining.set(name, joining);
    try {
      return await joining;
    } finally {
      if (this.#joining.get(name) === joining) this.#joining.delete(name);
    }
  }

  /** How many messages a session holds, and the change that makes it if there is none. */
  async #joinSession(tenant: string, sessionId: string): Promise<SessionEntry> {
    const at = this.clock.now();
    const owner = this.find({ tenant, run_id: sessionId });
    if (owner !== undefined) {
      owner.join();
      // It may have said its last word on its session already.
      if (isFinal(owner.log.state.status)) await owner.log.commit(true)?.catch(ignore);
    }
    const change: SessionChange = { session_id: sessionId, create: true, at };
    const session = await this.store.session({ tenant, session_id: sessionId });
    if (session !== undefined) return { length: session.history.length, change };
    const first = await this.#completedRun({ tenant, run_id: sessionId });
    if (first === undefined) return { length: 0, change };
    // The session of a run that named none is made when another run joins it, with what that run has said.
    const key = { tenant, session_id: sessionId };
    const history = transcript(first);
    if (await this.store.makeSession(key, { history, state: null }, at)) return { length: history.length, change };
    // Another process has made it meanwhile.
    const made = await this.store.session(key);
    return { length: made?.history.length ?? 0, change };
  }

  /** As {@link #enterSession}, for a session whose contents the caller brings along. */
  async #replaceSession(tenant: string, sessionId: string, session: StoredSession): Promise<SessionEntry> {
    const at = this.clock.now();
    await this.store.putSession({ tenant, session_id: sessionId }, session, at);
    return { length: session.history.length, change: { session_id: sessionId, create: true, at } };
  }

  /** The run, if it has completed in a session of its own. */
  async #completedRun(key: RunKey): Promise<RunState | undefined> {
    const found = await this.store.find(key);
    if (found === undefined || found.head.status !== "completed" || found.created.session_id !== key.run_id)
      return undefined;
    return foldLog(this.store, key, initialState(key.run_id), found.position);
  }

  #pruneLater(): void {
    if (this.#clearPrune !== undefined || this.#closed) return;
    const { maxAgeMs, maxIdleSessionMs } = this.#options.retention;
    const wait = Math.min(maxAgeMs, maxIdleSessionMs) / 10;
    if (wait === Number.POSITIVE_INFINITY) return;
    this.#clearPrune = this.clock.setTimeout(() => this.#prune(), Math.max(wait, 1_000));
  }

  #prune(): void {
    this.#clearPrune?.();
    this.#clearPrune = undefined;
    this.#ended = 0;
    const { maxRuns, maxAgeMs, maxIdleSessionMs } = this.#options.retention;
    const now = this.clock.now();
    try {
      const pruned = this.store.prune({ maxRuns, endedBefore: now - maxAgeMs, sessionsBefore: now - maxIdleSessionMs });
      if (isPromise(pruned)) pruned.then(undefined, (error: unknown) => this.#pruneFailed(error));
    } catch (error) {
      this.#pruneFailed(error);
    }
    this.#pruneLater();
  }

  #pruneFailed(error: unknown): void {
    this.logger.error("The store failed to forget what it may.", { error });
  }
}

/** What a new run finds in its session, and does to it. */
interface SessionEntry {
  /** How many messages there are. */
  readonly length: number;
  /** Makes the session if there is none. */
  readonly change: SessionChange;
}

function slotKey(agentName: string, per: "agent" | "session" | undefined, tenant: string, sessionId: string): string {
  return per === "session" ? `${agentName}/${sessionId}/${tenant}` : agentName;
}
