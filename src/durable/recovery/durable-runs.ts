import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import { cancelCommand } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { ParentRun, ReceivedEntry } from "../../core/log.ts";
import type { RunKey, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { Question, RunState } from "../../core/state.ts";
import { isFinal } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../../runtime/agent/agent.ts";
import type { Answer } from "../../runtime/agent/answer.ts";
import { measureAgain } from "../../runtime/execution/waits.ts";
import type { LogSource } from "../../runtime/log/events.ts";
import { foldLog } from "../../runtime/log/fold-log.ts";
import type { Residence } from "../../runtime/log/residence.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "../../runtime/log/retry-pause.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import type { LiveRun, LiveRuns, SubRunFound } from "../../runtime/runs/live-run.ts";
import type { AddedRun, RemoteReport, RemoteRuns } from "../../runtime/runs/remote-runs.ts";
import { blockedError } from "../replay/blocked-error.ts";
import { Ancestors } from "./ancestors.ts";
import { DetachedLogs } from "./detached-logs.ts";
import { Lease } from "./lease.ts";
import { LeasedResidence } from "./leased-residence.ts";
import { Offers } from "./offers.ts";
import type { DurabilitySettings } from "./options.ts";
import type { Owner } from "./owner.ts";
import { Recovery } from "./recovery.ts";
import { reportOf } from "./recovery-report.ts";
import { RemoteLog } from "./remote-log.ts";
import { RunLoader } from "./run-loader.ts";
import { Worker } from "./worker.ts";

/** The runs of a durable store: this process owns those that it executes, and takes over those that need work. */
export class DurableRuns implements RemoteRuns, Owner {
  readonly worker: Worker;
  readonly lease: Lease;
  readonly ancestors: Ancestors;
  readonly #logs: DetachedLogs;
  readonly #offers: Offers;
  readonly #loader: RunLoader;
  readonly #recovery: Recovery;

  constructor(runs: LiveRuns, settings: DurabilitySettings) {
    const worker = new Worker(
      runs,
      settings,
      (key) => this.#recovery.onWake(key),
      (key, head) => this.#recovery.onReleased(key, head),
      () => this.#recovery.onSlotFree(),
    );
    this.worker = worker;
    worker.clock.onSet = () => {
      for (const { execution } of runs) if (execution !== undefined) measureAgain(execution);
    };
    this.lease = new Lease(worker, () => this.#recovery.onHeartbeat());
    this.#logs = new DetachedLogs(worker.store);
    this.ancestors = new Ancestors(worker, this.#logs);
    this.#offers = new Offers(worker);
    this.#loader = new RunLoader(worker, this.lease, this.#logs);
    this.#recovery = new Recovery(worker, this.lease, this.#loader);
  }

  // The loaded runs.

  /** A plain run in a store that ends with its process cannot change its owner. */
  residenceOf(run: LiveRun): Residence | undefined {
    this.#recovery.start();
    const mayChangeOwner = this.worker.store.persistent || run.agent.options.durable === true;
    return mayChangeOwner ? new LeasedResidence(this, run) : undefined;
  }

  loadAgain(run: LiveRun): void {
    this.#loader.loadAgain(run);
  }

  reload(key: RunKey): void {
    inBackground(this.worker.logger, this.#loader.load(key), "A run could not be loaded again.", key);
  }

  onSuspectCleared(run: LiveRun): void {
    this.#recovery.onSuspectCleared(run);
  }

  onGone(run: LiveRun): void {
    this.#recovery.onGone(run);
  }

  /**
   * Another process has taken over the parent. Its new owner cancels the sub-runs that it finds when it ends the
   * parent. This sub-run may have been stored after that, so it is cancelled here. A parent that is not durable is
   * always ended by its new owner.
   */
  onParentLost(child: LiveRun, parent: LiveRun): void {
    if (this.worker.isClosed || !this.worker.store.persistent) return;
    const { key } = child.log;
    const ending = parent.durable ? this.#loader.cancelOrphan(key, parent.log.key) : this.#loader.cancelAnywhere(key);
    inBackground(this.worker.logger, ending, "A sub-run could not be cancelled with its parent.", {
      ...aboutRun(child.log),
      parent_run_id: parent.log.key.run_id,
    });
  }

  // The runs that are not loaded here.

  async create(run: AddedRun): Promise<void> {
    await this.#logs.create(run);
    this.#recovery.onAccepted(run.key);
  }

  load(key: RunKey): Promise<LiveRun | undefined> {
    return this.#loader.load(key);
  }

  async cancel(key: RunKey, by: JsonValue | undefined): Promise<RunState> {
    await this.worker.clock.ready();
    const state = await this.#logs.change(key, [cancelCommand(this.worker.clock.now(), by)]);
    this.worker.onWake(key);
    return state;
  }

  async send(key: RunKey, message: ReceivedEntry, isKeyed: boolean): Promise<boolean> {
    const isNew = await this.#logs.send(key, message, isKeyed, this.worker.runs.shared.settings);
    this.worker.onWake(key);
    return isNew;
  }

  cancelSubRun(key: RunKey, parent: RunLog): undefined | Promise<void> {
    return this.worker.store.persistent ? this.#cancelSurely(key, parent) : undefined;
  }

  /** Tries until the cancel is committed. Each failure rejects the callers that wait for the parent's end. */
  async #cancelSurely(key: RunKey, parent: RunLog): Promise<void> {
    const { clock, logger } = this.worker;
    for (let wait = FIRST_PAUSE_MS; !parent.lost; wait = nextPauseMs(wait)) {
      try {
        await this.#loader.cancelAnywhere(key);
        return;
      } catch (error) {
        const { run_id } = parent.key;
        logger.error("A run does not end yet: a sub-run could not be cancelled. The cancel is tried again.", {
          ...aboutRun(parent),
          sub_run_id: key.run_id,
          error,
        });
        const message = `Run ${run_id} does not end yet: its sub-run ${key.run_id} could not be cancelled. The cancel is tried again.`;
        parent.refuse(new CadenzaError("store_failed", message, { run_id, cause: error }));
      }
      await new Promise<void>((resolve) => clock.setTimeout(resolve, wait));
    }
  }

  async findSubRun(key: RunKey): Promise<SubRunFound> {
    const run = await this.#loader.load(key);
    if (run !== undefined) return run;
    const stored = await this.worker.store.find(key);
    if (stored === undefined) return undefined;
    const { created, head, position } = stored;
    const read = (): MaybePromise<RunState | undefined> => foldLog(this.worker.store, key, position);
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

  settleAbove(key: RunKey, parent: ParentRun, question: Question): Promise<void> {
    return this.ancestors.settle(key, parent, question);
  }

  logOf(stored: StoredRun): LogSource | Promise<void> {
    const { head, created } = stored;
    const trying = head.blocked === null ? undefined : this.#loader.tried(created.agent_name);
    return trying ?? new RemoteLog(this.worker, stored);
  }

  onRegistered(agent: Agent): void {
    this.#recovery.onRegistered(agent);
  }

  async report(): Promise<RemoteReport> {
    const { differences, store, runs } = this.worker;
    const damaged = await this.#loader.damaged.report();
    const here = { damaged, differences, heartbeatAgeMs: this.lease.ageMs };
    return reportOf(store, runs.registry, here);
  }

  stopTaking(): Promise<void> {
    return this.#recovery.stopTaking();
  }

  end(): void {
    this.worker.end();
  }

  async close(): Promise<void> {
    await this.lease.stop();
    await this.#recovery.stopWaking();
    await this.worker.store.release(this.worker.name);
  }
}
