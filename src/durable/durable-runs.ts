import { CadenzaError } from "../core/errors.ts";
import type { NewLog } from "../core/fork.ts";
import type { Entry, ReceivedEntry } from "../core/log.ts";
import type { Mismatch, RunKey, SessionChange, Store, StoredRun } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { createdEntry, isFinal } from "../core/state.ts";
import type { Agent } from "../runtime/agent.ts";
import type { Answer } from "../runtime/answer.ts";
import type { LogSource } from "../runtime/events.ts";
import { foldLog } from "../runtime/fold-log.ts";
import type { LiveRun, LiveRuns, SubRunFound } from "../runtime/live-run.ts";
import { localOwnership } from "../runtime/local-ownership.ts";
import type { Ownership } from "../runtime/ownership.ts";
import type { RemoteReport, RemoteRuns } from "../runtime/remote-runs.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "../runtime/retry-pause.ts";
import type { RunLog } from "../runtime/run-log.ts";
import { Ancestors } from "./ancestors.ts";
import { blockedError } from "./blocked-error.ts";
import { DetachedLogs } from "./detached-logs.ts";
import { Follower } from "./follower.ts";
import { LeasedOwnership } from "./leased-ownership.ts";
import { Offers } from "./offers.ts";
import type { DurabilitySettings } from "./options.ts";
import type { Owner } from "./owner.ts";
import { Recovery } from "./recovery.ts";
import { reportOf } from "./recovery-report.ts";
import { RemoteLog } from "./remote-log.ts";
import { RunLoader } from "./run-loader.ts";

/** How long a replayed agent may take for the next operation in its history, in milliseconds. */
const STALL_MS = 5_000;
/** With `alwaysReplay`: test runners give up after five seconds, and their message says nothing. */
const TEST_STALL_MS = 2_000;

/** The runs of a durable store: this process owns those that it executes, and takes over those that need work. */
export class DurableRuns implements RemoteRuns, Owner {
  readonly runs: LiveRuns;
  readonly settings: DurabilitySettings;
  readonly follower: Follower;
  readonly followed = new Set<{ end(): void }>();
  isOver = false;
  readonly #logs: DetachedLogs;
  readonly #ancestors: Ancestors;
  readonly #offers: Offers;
  readonly #loader: RunLoader;
  readonly #recovery: Recovery;
  #name: string | undefined;
  #differences = 0;

  constructor(runs: LiveRuns, settings: DurabilitySettings) {
    this.runs = runs;
    this.settings = settings;
    this.follower = new Follower(runs.shared.store, runs.shared.clock, runs.shared.logger);
    this.#logs = new DetachedLogs(runs.shared.store);
    this.#ancestors = new Ancestors(this, this.#logs);
    this.#offers = new Offers(this);
    this.#loader = new RunLoader(this, this.#logs);
    this.#recovery = new Recovery(this, this.#loader);
  }

  get store(): Store {
    return this.runs.shared.store;
  }

  /** Made when it is first needed: Workers refuse random numbers while modules load. */
  get name(): string {
    this.#name ??= this.runs.ids.token();
    return this.#name;
  }

  get evictAfterMs(): number {
    return this.store.persistent ? this.settings.evictAfterMs : Number.POSITIVE_INFINITY;
  }

  get stallMs(): number {
    return this.settings.alwaysReplay ? TEST_STALL_MS : STALL_MS;
  }

  // The loaded runs.

  /** A plain run in a store that ends with its process cannot change its owner. */
  ownershipOf(run: LiveRun): Ownership {
    const mayChangeOwner = this.store.persistent || run.agent.options.durable === true;
    return mayChangeOwner ? new LeasedOwnership(this, run) : localOwnership;
  }

  ensureOwner(run: LiveRun): undefined | Promise<void> {
    return this.#recovery.lease.ensure(run);
  }

  renewIfExpired(): undefined | Promise<void> {
    const { lease } = this.#recovery;
    return lease.isHeld ? undefined : lease.renew();
  }

  hasOtherCode({ agent, log }: LiveRun): boolean {
    const { agent_name, version } = createdEntry(log.state);
    return this.runs.registry.find(agent_name, version) !== agent;
  }

  loadAgain(run: LiveRun): void {
    this.#loader.loadAgain(run);
  }

  reload(key: RunKey): void {
    this.#loader
      .load(key)
      .catch((error: unknown) =>
        this.runs.shared.logger.error(`Run ${key.run_id} could not be loaded again.`, { run_id: key.run_id, error }),
      );
  }

  onBlocked(run: LiveRun, mismatch: Mismatch): void {
    const { run_id } = run.log.key;
    this.runs.shared.logger.warn(blockedError(run_id, run.agent.name, mismatch).message, { run_id, ...mismatch });
    this.runs.onBlocked(run, mismatch);
  }

  onDifference(): void {
    this.#differences += 1;
  }

  onWake(): void {
    this.#recovery.lookForWork();
  }

  onUnknownOutcome(): void {
    this.#recovery.onUnknownOutcome();
  }

  onSuspectCleared(run: LiveRun): void {
    this.#recovery.onSuspectCleared(run);
  }

  /**
   * Another process has taken over the parent. Its new owner cancels the sub-runs that it finds when it ends the
   * parent. This sub-run may have been stored after that, so it is cancelled here. A parent that is not durable is
   * always ended by its new owner.
   */
  onParentLost(child: LiveRun, parent: LiveRun): void {
    if (this.runs.shared.isClosed || !this.store.persistent) return;
    const { key } = child.log;
    const ending = parent.durable ? this.#loader.cancelOrphan(key, parent.log.key) : this.#loader.cancelAnywhere(key);
    ending.catch((error: unknown) =>
      this.runs.shared.logger.error(
        `Run ${key.run_id} could not be cancelled with its parent, run ${parent.log.key.run_id}.`,
        {
          ...key,
          error,
        },
      ),
    );
  }

  // The runs that are not loaded here.

  start(): void {
    this.#recovery.start();
  }

  async create(
    key: RunKey,
    log: NewLog,
    session: SessionChange | undefined,
    idempotencyKey: string | undefined,
  ): Promise<void> {
    await this.#logs.create(key, log, session, idempotencyKey);
    this.onWake();
  }

  load(key: RunKey): Promise<LiveRun | undefined> {
    return this.#loader.load(key);
  }

  async cancel(key: RunKey): Promise<RunState> {
    const state = await this.#logs.change(key, [{ type: "cancel", at: this.runs.shared.clock.now() }]);
    this.onWake();
    return state;
  }

  async send(key: RunKey, message: ReceivedEntry, isKeyed: boolean): Promise<void> {
    await this.#logs.send(key, message, isKeyed, this.runs.shared.settings.maxLogEntries);
    this.onWake();
  }

  cancelSubRun(key: RunKey, parent: RunLog): undefined | Promise<void> {
    return this.store.persistent ? this.#cancelSurely(key, parent) : undefined;
  }

  /** Tries until the cancel is committed. Each failure rejects the callers that wait for the parent's end. */
  async #cancelSurely(key: RunKey, parent: RunLog): Promise<void> {
    const { clock, logger } = this.runs.shared;
    for (let wait = FIRST_PAUSE_MS; !parent.lost; wait = nextPauseMs(wait)) {
      try {
        await this.#loader.cancelAnywhere(key);
        return;
      } catch (error) {
        const ids = { run_id: parent.key.run_id, sub_run_id: key.run_id };
        const message = `Run ${ids.run_id} does not end yet: its sub-run ${ids.sub_run_id} could not be cancelled. The cancel is tried again.`;
        logger.error(message, { ...ids, error });
        parent.refuse(new CadenzaError("store_failed", message, { run_id: ids.run_id, cause: error }));
      }
      await new Promise<void>((resolve) => clock.setTimeout(resolve, wait));
    }
  }

  async findSubRun(key: RunKey): Promise<SubRunFound> {
    const run = await this.#loader.load(key);
    if (run !== undefined) return run;
    const stored = await this.store.find(key);
    if (stored === undefined) return undefined;
    const { created, head, position } = stored;
    const read = (): MaybePromise<RunState | undefined> => foldLog(this.store, key, position);
    if (!isFinal(head.status)) {
      const blocked = head.blocked === null ? undefined : blockedError(key.run_id, created.agent_name, head.blocked);
      return { blocked, position, read };
    }
    const state = await read();
    return state && { run: runRecord(state), state };
  }

  offer(key: RunKey, answer: Answer): Promise<RunState> {
    return this.#offers.give(key, answer);
  }

  tellAncestors(run: LiveRun, entries: readonly Entry[]): void {
    this.#ancestors.tell(run, entries);
  }

  ancestorsTold(run: LiveRun): undefined | Promise<void> {
    return this.#ancestors.told(run);
  }

  trying({ head, created }: StoredRun): undefined | Promise<void> {
    return head.blocked === null ? undefined : this.#loader.tried(created.agent_name);
  }

  logOf(stored: StoredRun): LogSource {
    return new RemoteLog(this, stored);
  }

  onRegistered(agent: Agent): void {
    this.#recovery.onRegistered(agent);
  }

  report(): Promise<RemoteReport> {
    const here = { damaged: this.#loader.damaged.report, differences: this.#differences };
    return reportOf(this.store, this.runs.registry, here);
  }

  stopTaking(): Promise<void> {
    return this.#recovery.stopTaking();
  }

  end(): void {
    this.isOver = true;
    for (const log of [...this.followed]) log.end();
  }

  async close(): Promise<void> {
    await this.#recovery.lease.stop();
    await this.store.release(this.name);
  }
}
