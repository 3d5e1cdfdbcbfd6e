import { inBackground, newController } from "../../core/background.ts";
import { cancelCommand } from "../../core/commands.ts";
import type { Decision } from "../../core/decide.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import { failureOf } from "../../core/failure.ts";
import { isFree, isLeft, takenAt } from "../../core/head.ts";
import type { Entry, ParentRun, StepEntry } from "../../core/log.ts";
import { overdueError } from "../../core/overdue.ts";
import type { Ids, Mismatch, RunKey, SessionChange } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { Deferred, ignore, isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { Slot } from "../../core/slots.ts";
import type { RunState } from "../../core/state.ts";
import {
  createdEntry,
  isAtRest,
  isFinal,
  isStopped,
  isWaiting,
  latestTime,
  mayBegin,
  startTime,
} from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { Agent } from "../agent/agent.ts";
import type { StepOptions } from "../agent/agent-steps.ts";
import type { AwaitYield } from "../agent/generator.ts";
import type { NewRun } from "../agent/new-run.ts";
import type { Registry } from "../agent/registry.ts";
import { RunContext } from "../execution/context.ts";
import type { AgentRun, NewSubRun, StepBody, Stopped } from "../execution/execution.ts";
import { Execution } from "../execution/execution.ts";
import type { Residence } from "../execution/operations.ts";
import { onceCommitted, onceInLog } from "../execution/operations.ts";
import { RunFamily } from "../execution/run-family.ts";
import { sessionAtEnd } from "../execution/run-session.ts";
import { resultOfStep, Steps } from "../execution/steps.ts";
import { unlessAborted } from "../execution/unless-aborted.ts";
import { answerOffers, askByYield, measureAgain, takeMail } from "../execution/waits.ts";
import type { LogSource } from "../log/event-stream.ts";
import { QueuedTime } from "../log/queued-time.ts";
import { lostError, refusalError } from "../log/refusals.ts";
import type { LogRun } from "../log/run-log.ts";
import { RunLog } from "../log/run-log.ts";
import type { RunSlot } from "../log/run-slot.ts";
import { LocalSlot } from "../log/run-slot.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";

/** The live runs of a runtime, as each of them and the durable room see them. */
export interface LiveRuns extends Iterable<LiveRun> {
  readonly shared: SharedByRuns;
  readonly registry: Registry;
  readonly ids: Ids;
  /** How many more runs may be taken from the store. */
  readonly capacity: number;
  /** Counts so many runs as if they were here until the work is done: the store is asked for them, or they are being loaded. */
  expect<Result>(runs: number, work: () => MaybePromise<Result>): Promise<Result>;
  /** The run, if it is loaded in this process. */
  find(key: RunKey): LiveRun | undefined;
  /** Adds a run that was loaded from the store. */
  add(run: LiveRun): void;
  residenceOf(run: LiveRun): Residence | undefined;
  runAgent(parent: LiveRun, execution: Execution, request: NewSubRun): Promise<Run>;
  /** Accepts a sub-run. A promise of undefined: another process executes it. Throws `agent_not_found` or `limit_reached`. */
  acceptSubRun(request: NewRun, runId: string, parent: ParentRun): MaybePromise<LiveRun | undefined>;
  /** Finds a sub-run that may exist already. */
  findSubRun(key: RunKey): Promise<SubRunFound>;
  /** Cancels a sub-run wherever it is, with its own sub-runs. Resolves when the store has the cancel, and not before; undefined: it has. */
  cancelSubRun(key: RunKey, parent: LiveRun): undefined | Promise<void>;
  /** Cancels a run in any process. Does nothing if the run has ended or is not in the store. */
  cancelAnywhere(key: RunKey): Promise<void>;
  /** A run may have begun to wait, or to do more than that. */
  onSettled(run: LiveRun): void;
  /** The code of a durable run does not match its log. */
  onBlocked(run: LiveRun, mismatch: Mismatch): void;
  /** The run is over, and that is committed; or it has left this process. */
  onGone(run: LiveRun): void;
}

/** The result of a search for a sub-run. Undefined: it does not exist yet. */
export type SubRunFound = LiveRun | SubRunNotHere | undefined;

/** A run that is loaded in this process: its log, the agent at work on it, and the callers that wait for it. */
export class LiveRun implements LogRun, AgentRun {
  readonly log: RunLog;
  readonly agent: Agent;
  readonly runs: LiveRuns;
  readonly residence: Residence | undefined;
  #execution: Execution | undefined;
  /** Made on first use, because that takes as long as the rest of a small run. Before that: why it was aborted, if it was. */
  #signal: AbortController | Stopped | undefined;
  /** Only of a run that has begun a step. */
  #steps: Steps | undefined;
  #isMailDue = false;
  /** Only runs that have to do with others have one. */
  #family: RunFamily<LiveRun> | undefined;
  /** Undefined: the run has had nothing of it. */
  extras: Extras | undefined;
  /** The callers that wait for the run to rest. */
  #resting: RestWaiter[] | undefined;
  /** Only runs of agents have one that may not all work at once. */
  #slot: RunSlot | undefined;
  /** Only runs that have a slot, or whose steps have limits, have one. */
  queued: QueuedTime | undefined;
  /** While the run is at work, it keeps the process open. */
  #holds = false;

  constructor(runs: LiveRuns, key: RunKey, agent: Agent) {
    this.runs = runs;
    this.agent = agent;
    this.log = new RunLog(key, this);
    this.residence = runs.residenceOf(this);
  }

  /** Not a field: it would take eight bytes of each run that waits. */
  get shared(): SharedByRuns {
    return this.runs.shared;
  }

  get durable(): boolean {
    return createdEntry(this.log.state).durable === true;
  }

  get #withExtras(): Extras {
    this.extras ??= { cause: undefined, isCancelPending: false, continued: undefined, clearStart: undefined };
    return this.extras;
  }

  /** Whether other processes can go on with the run when this one closes. */
  get mayLeave(): boolean {
    return this.residence !== undefined && this.durable && this.shared.store.persistent;
  }

  get signal(): AbortSignal {
    if (this.#signal instanceof AbortController) return this.#signal.signal;
    const controller = newController(this.shared.logger);
    if (this.#signal !== undefined) controller.abort(this.#signal.reason);
    this.#signal = controller;
    return controller.signal;
  }

  /** Aborts the signal. The first reason counts. */
  abortSignal(stopped: Stopped): void {
    if (this.#signal === undefined) this.#signal = stopped;
    else if (this.#signal instanceof AbortController) this.#signal.abort(stopped.reason);
    if (this.#execution?.over === true) this.#steps?.onOver();
  }

  /** Whether no step is at work, or all steps at work have to begin in another process. */
  get areStepsHeld(): boolean {
    return this.#steps?.areHeld !== false;
  }

  isInBody(execution: Execution): boolean {
    // What a run that stops refuses, it refuses for that.
    if (this.#steps === undefined || execution.aborted !== undefined || isFinal(this.log.state.status)) return false;
    return this.#steps.bodies.isInside(execution.isPaced);
  }

  get slot(): RunSlot | undefined {
    return this.#slot;
  }

  get isNeeded(): boolean {
    return this.#family?.onProgress !== undefined || this.#slot?.needsMemory === true;
  }

  get execution(): Execution | undefined {
    return this.#execution;
  }

  /** Takes its slots, or queues for them, before the agent may {@link begin}: the next run finds them taken. */
  reserve(slots: readonly Slot[]): void {
    this.#setSlot(slots);
    // Paused runs wait in the order in which they were accepted.
    if (this.#isPaused) this.shared.pauses.hold(this, createdEntry(this.log.state), this.log.key);
    else if (this.#slot !== undefined && this.#untilStart <= 0) this.#slot.take(ignore);
  }

  /** How long it takes until the agent may begin, in milliseconds. The store may have given the run away for that time. */
  get #untilStart(): number {
    const startAt = startTime(this.log.state);
    return takenAt(this.log.head) >= startAt ? 0 : startAt - this.shared.clock.now();
  }

  /** Lets the agent begin as soon as it has a slot, or at its time. With its first commit the run may leave before. */
  begin(): void {
    const wait = this.#untilStart;
    if (wait > 0) this.#beginIn(wait);
    else if (this.#isPaused) this.#beginLater();
    else if (this.#slot === undefined) this.#startAgent();
    else this.#beginInSlot(this.#slot);
  }

  #beginInSlot(slot: RunSlot): void {
    const start = (): void => this.#startAgent();
    if (slot.isQueued) slot.take(start);
    else this.withSlot(start);
  }

  #beginIn(ms: number): void {
    const begin = (): void => (this.log.lost ? undefined : this.begin());
    this.#withExtras.clearStart = this.shared.clock.setTimeout(() => onceCommitted(this.log, begin), ms);
  }

  /** Calls back with the slot of a run that was at work before it was loaded. A run that waits takes it when it continues. */
  occupy(slots: readonly Slot[], hasSubRuns: boolean, callback: () => void): void {
    this.#setSlot(slots);
    const { state, head } = this.log;
    // No process has worked on a run that was taken from none since it has gone on: most such runs stood in line.
    if (head?.takeovers === 0 && !isWaiting(state)) this.queued?.add(takenAt(head) - latestTime(state));
    const waits = isWaiting(state) || (hasSubRuns && this.#slot?.isKept === false);
    if (this.#slot === undefined || waits || isStopped(state)) callback();
    else this.#slot.occupy(callback);
  }

  /** Whether the body of a step is at work in this process, or is about to begin, whatever the run waits for at the same time. */
  get isInStep(): boolean {
    return this.#steps?.isBusy === true;
  }

  /** Whether a step of the run, or one of its sub-runs here, is at work, whatever it waits for. They work in its slot. */
  get isAtWork(): boolean {
    if (this.isInStep || (this.#family?.beginning.size ?? 0) > 0) return true;
    for (const child of this.children) if (!child.waits || child.isAtWork) return true;
    return false;
  }

  /**
   * Whether the run only waits: for answers, time or messages, or for sub-runs that do. A run with a step at work is not
   * waiting, whatever else it waits for: it is counted, keeps its slot, and `close` waits for it.
   */
  get isWaiting(): boolean {
    return !this.isInStep && this.waits;
  }

  /** Whether the run waits for something, whatever else is at work in it: the run that has started it waits with it. */
  get waits(): boolean {
    const { head, state } = this.log;
    return isWaiting(state) || (head !== undefined && isLeft(head));
  }

  /**
   * Whether the run takes a place of `work.max`: it is loaded, catches up, or its agent or a step is at work. One that
   * waits for its slot takes none, and one that waits for sub-runs leaves its place to them.
   */
  get isExecuted(): boolean {
    if (this.#slot?.isQueued === true || this.#onlyWaitsForResume) return false;
    const phase = this.residence?.phase ?? "live";
    if (phase !== "live") return phase !== "blocked";
    // A sub-run that is being started takes no place yet.
    const leavesPlace = this.#family?.hasSubRuns === true && this.#family.beginning.size === 0;
    return this.isInStep || !(isWaiting(this.log.state) || leavesPlace);
  }

  /**
   * Whether the agent may get what has come for it. False: no process owns the run, and this one has no room. The run is due
   * in the store, and the process that takes it gives it what has come. Or the run rests, and is paused.
   */
  get mayGoOn(): boolean {
    const { store, isClosed } = this.shared;
    if (this.#isPausedAtRest) return false;
    return !isFree(this.log.nextHead) || !store.persistent || isClosed || this.runs.capacity > 0;
  }

  /** The run may be active from now on, or not any more. Most runs have no limit on that, and are not measured. */
  settleActivity(): void {
    this.runs.onSettled(this);
    this.queuedMs(this.log.state);
    const { activeTime } = this.log;
    if (activeTime === undefined) return;
    if (this.#isActive) activeTime.goOn();
    else activeTime.pause();
  }

  /** Whether it is in the queue for its slot, or only its steps are in those for their limits. */
  get #isQueued(): boolean {
    return this.#slot?.isQueued === true || this.#steps?.areLimited === true;
  }

  queuedMs(state: RunState): number {
    if (this.queued === undefined) return 0;
    const isQueued = this.#isQueued && state.started !== null && !isWaiting(state);
    const now = this.shared.clock.now();
    return this.queued.measure(now, isQueued ? now : undefined);
  }

  /**
   * Whether the agent or a step is at work: the run does not only wait, is in no queue, and its store does not fail. While the run waits for anything, its steps alone tell that it is at work. A sub-run is measured itself.
   */
  get #isActive(): boolean {
    const { log } = this;
    const execution = this.#execution;
    if (execution === undefined || execution.isEnding || execution.isCatchingUp) return false;
    if (log.isFailing || this.#isQueued || this.#onlyWaitsForResume) return false;
    return this.isInStep || !(isWaiting(log.state) || this.#family?.hasSubRuns === true);
  }

  /** Whether a pause covers the run. One that is being stopped is not paused. */
  get #isPaused(): boolean {
    const { log, shared } = this;
    return shared.pauses.cover(createdEntry(log.state), log.key.tenant) && !isStopped(log.state);
  }

  /** Whether it is paused, and nothing of it is at work: it shows a question, or any process may go on with it. */
  get #isPausedAtRest(): boolean {
    if (!this.#isPaused) return false;
    const { log, shared } = this;
    const rests = log.state.status === "awaiting" || (shared.store.persistent && isFree(log.nextHead));
    return (rests || shared.pauses.holds(this)) && !this.isAtWork;
  }

  /** Whether it waits until it is resumed. The bodies at work when a pause with `now` came still go on to their ends. */
  get #onlyWaitsForResume(): boolean {
    return this.shared.pauses.holds(this) && !this.isInStep;
  }

  get isHeld(): boolean {
    return this.shared.pauses.cover(createdEntry(this.log.state), this.log.key.tenant, "now");
  }

  hold(goOn: () => void): void {
    const { log, shared } = this;
    shared.pauses.hold(this, createdEntry(log.state), log.key, () => (isStopped(log.state) ? undefined : goOn()));
    this.settleActivity();
    this.#leaveIfHeld();
  }

  /** Gives the run back to the store, where it waits until it is resumed, as soon as no body is at work. What no process owns is there. */
  #leaveIfHeld(): void {
    const { log, shared } = this;
    const isOver = log.lost || isStopped(log.state) || this.#execution === undefined;
    if (isOver || !this.mayLeave || !this.areStepsHeld || isFree(log.nextHead)) return;
    if (this.isHeld || shared.pauses.holds(this)) this.residence?.note("paused");
  }

  /** Something comes for the run, and is decided next. If the run rests and is paused, its agent gets it when it is resumed. */
  holdIfPaused(): void {
    if (this.#isPausedAtRest) this.shared.pauses.hold(this, createdEntry(this.log.state), this.log.key);
  }

  /** A sub-run has ended. If nothing else of the run is at work and it is paused, its agent continues when it is resumed. */
  holdAfterSubRun(): void {
    if (this.#isPaused && !this.isAtWork) this.shared.pauses.hold(this, createdEntry(this.log.state), this.log.key);
  }

  /** The pauses have changed. Time may have passed, or messages may have come, for which the run went not on. */
  onPauses(): void {
    if (this.#execution === undefined || this.log.lost) return;
    this.#leaveIfHeld();
    measureAgain(this.#execution);
    this.#lookAtMail();
  }

  #beginLater(): void {
    this.#waitForResume(() => this.begin());
  }

  /** Waits until the run is resumed: in the store if any process may go on with it then, or here. */
  #waitForResume(goOn: () => void): void {
    const { log, shared } = this;
    const isNew = log.state.status === "created";
    if (isNew) this.#slot?.give();
    const mayLeave = shared.store.persistent && (this.durable || isNew) && this.areStepsHeld;
    if (this.residence !== undefined && mayLeave) this.residence.note("paused");
    else shared.pauses.hold(this, createdEntry(log.state), log.key, goOn);
    this.settleActivity();
  }

  /** Calls the agent. An earlier execution of the run has been fenced. */
  execute(): void {
    this.#execution = new Execution(this);
    this.#execution.start(new RunContext(this, this.#execution));
    this.settleHold();
  }

  /**
   * The run as soon as it rests, for a caller that waits until the signal aborts. Rejects with `run_blocked` if it is
   * blocked. The reader waits on for a run that is lost here.
   */
  rest(reader: RestReader, signal?: AbortSignal): MaybePromise<Run> {
    const { head, state, committed, key, lostReason } = this.log;
    if (head !== undefined && isAtRest(head.status) && state.position === committed) return this.log.record();
    if (this.blocked !== undefined) return Promise.reject(this.blocked);
    if (lostReason !== undefined) return unlessAborted(reader.restOfLost(key, lostReason, signal), signal);
    const waiter = new RestWaiter(reader, signal);
    if (this.#resting === undefined) this.#resting = [waiter];
    else this.#resting.push(waiter);
    this.settleHold();
    return signal === undefined ? waiter.promise : this.#restUnlessAborted(waiter, signal);
  }

  #restUnlessAborted(waiter: RestWaiter, signal: AbortSignal): Promise<Run> {
    const rested = unlessAborted(waiter.promise, signal);
    const left = rested.catch(() => {
      const others = this.#resting?.filter((other) => other !== waiter);
      this.#resting = others?.length === 0 ? undefined : others;
      this.settleHold();
    });
    inBackground(this.shared.logger, left);
    return rested;
  }

  /** The callers that wait for the run to rest, which do not wait any more. */
  #takeResting(): readonly RestWaiter[] {
    const resting = this.#resting ?? noResting;
    this.#resting = undefined;
    return resting;
  }

  /**
   * Asks the run to stop. Gives the record as it is then. A refusal waits until what it is based on is committed. `by`: who
   * asks; left out if the application names no one, and where the end of its parent ends a sub-run.
   */
  async cancel(by?: JsonValue): Promise<Run> {
    const command = cancelCommand(this.shared.clock.now(), by);
    const check = (decision: Decision): readonly Entry[] => {
      if (isRefusal(decision)) throw refusalError(decision, this.log.key.run_id);
      return decision;
    };
    if (isRefusal(decide(this.log.state, command))) await this.log.acknowledge();
    // A run that is being cancelled already has been told to stop, and so have its sub-runs.
    const isNew = check(this.log.decide(command)).length > 0;
    if (isNew) this.#withExtras.isCancelPending = true;
    const record = runRecord(this.log.state);
    const acknowledged = this.log.acknowledge();
    const follow = isNew ? () => this.#onCancelCommitted() : ignore;
    if (acknowledged === undefined) follow();
    else {
      onceCommitted(this.log, follow);
      await acknowledged;
      // Another process may have written first: then the cancel was decided again, and perhaps refused.
      check(decide(this.log.state, command));
    }
    return record;
  }

  #onCancelCommitted(): void {
    this.#withExtras.isCancelPending = false;
    if (this.log.state.status === "cancelling") this.#stop();
  }

  /** The run that has started this one, while it follows. */
  get parent(): LiveRun | undefined {
    return this.#family?.parent;
  }

  /** Has the run that has started this one told whenever an entry was committed; undefined: it does not follow any more. */
  follow(parent: LiveRun | undefined, onProgress?: () => void): void {
    this.family.parent = parent;
    this.family.onProgress = onProgress;
  }

  /** The runs that this one has to do with. */
  get family(): RunFamily<LiveRun> {
    this.#family ??= new RunFamily();
    return this.#family;
  }

  /** The sub-runs that this process executes. */
  get children(): Iterable<LiveRun> {
    return this.#family?.children ?? [];
  }

  /** The run that has started this one may do something in its turn, and its own parent hears of that, and so on. */
  #tellParent(): void {
    if (this.#family?.onProgress !== undefined) this.shared.telling.do(() => this.#family?.onProgress?.());
  }

  /** Why the run is blocked: its code does not match its log, or the code of a sub-run does not. */
  get blocked(): CadenzaError | undefined {
    return this.#family?.blocked;
  }

  /** Callers that wait for the run get the error, and so do callers that wait for the run that has started it. */
  setBlocked(error: CadenzaError | undefined): void {
    if (error === this.blocked) return;
    this.family.blocked = error;
    if (error !== undefined) for (const { reject } of this.#takeResting()) reject(error);
    this.settleHold();
    this.log.tellReaders();
    this.parent?.setBlocked(error);
  }

  /** Ends the run as failed, whatever its agent is doing. */
  fail(error: CadenzaError): void {
    this.onFailed(error);
    const usage = this.#execution?.takeUsage() ?? null;
    this.log.decide({ type: "end", at: this.shared.clock.now(), failure: failureOf(error, false), usage });
    this.#execution?.fence();
    if (this.#execution !== undefined) this.abortSignal({ reason: error });
    this.onEnd();
    this.#slot?.give();
    this.log.flush();
  }

  /** Removes the run from memory: it was evicted or released. The signal of an evicted run does not abort. */
  leave(reason: string, how: "evicted" | "released" = "released"): void {
    this.log.abandon(new CadenzaError("lost_ownership", reason, { run_id: this.log.key.run_id }));
    this.#onGone(how);
  }

  // What the log reports.

  onCommit(): void {
    const { head } = this.log;
    if (head === undefined) return;
    this.#slot?.onCommit(this.waits && !this.isAtWork);
    if (this.#resting !== undefined && isAtRest(head.status)) {
      const record = this.log.record();
      const held = isPromise(record) ? this.shared.holdFor(record) : record;
      for (const { resolve } of this.#takeResting()) resolve(held);
    }
    this.settleHold();
    this.residence?.note("committed");
    if (this.#family?.onProgress !== undefined) this.#tellParent();
    if (this.waits) this.parent?.settleSlot();
    this.settleActivity();
    this.#lookAtMail();
    this.shared.onProgress?.();
    if (!isFinal(head.status)) return;
    this.extras?.clearStart?.();
    this.runs.onGone(this);
  }

  onLost(): void {
    this.#onGone("lost");
  }

  #onGone(how: "lost" | "evicted" | "released"): void {
    const error = this.log.lostReason ?? lostError(this.log.key.run_id);
    this.settleHold();
    this.#execution?.fence();
    // A listener of the signal would take an evicted run for a stopped one.
    if (how !== "evicted" && this.#execution !== undefined) this.abortSignal({ reason: error });
    this.residence?.note("gone");
    this.extras?.clearStart?.();
    this.#slot?.give();
    for (const { resolve, reader, signal } of this.#takeResting())
      resolve(Promise.resolve().then(() => reader.restOfLost(this.log.key, error, signal)));
    for (const child of this.children) child.follow(undefined);
    this.#tellParent();
    this.runs.onGone(this);
  }

  sessionAtEnd(): SessionChange | undefined {
    return sessionAtEnd(this.log.state, this.#family?.isJoined === true);
  }

  /** Another process has written to the run. */
  onReloaded(): void {
    if (this.log.state.status === "cancelling" && this.#execution?.aborted === undefined) this.#stop();
  }

  // What the agent reports.

  onMove(): void {
    if (this.#steps !== undefined && this.durable) this.#steps.bodies.moves();
  }

  onAwait(execution: Execution, request: AwaitYield): void {
    askByYield(execution, request);
  }

  /**
   * Messages for the agent, and answers that other processes could not validate, may be in the log. They are looked at
   * a turn later: results that are being committed now come before theirs, in the log and to the agent.
   */
  #lookAtMail(): void {
    if (this.#execution === undefined || this.#isMailDue || this.log.state.mail === null) return;
    this.#isMailDue = true;
    this.holdIfPaused();
    inBackground(this.shared.logger, this.#lookAtMailLater());
  }

  async #lookAtMailLater(): Promise<void> {
    await this.shared.clock.turn();
    this.#isMailDue = false;
    if (this.shared.pauses.holds(this)) {
      this.#waitForResume(() => this.#lookAtMail());
      return;
    }
    const phase = this.residence?.phase;
    const mayTake = phase !== "catching up" && phase !== "blocked";
    if (this.log.lost || !mayTake || this.#execution?.isStopped !== false) return;
    takeMail(this.#execution);
    answerOffers(this.#execution, this.shared);
  }

  /** The agent has done again what the log holds. It is stopped if the run was. */
  goOn(): void {
    const { status, overdue } = this.log.state;
    if (status === "cancelling") this.#stop();
    else if (overdue !== null) this.#execution?.abort(overdueError(this.log.key.run_id, overdue));
    else {
      this.settleActivity();
      this.#lookAtMail();
    }
  }

  /** Cancels the sub-runs. The end of the run is written after that. */
  onEnd(): void {
    if (this.#family === undefined) return;
    this.#family.end(
      [...this.#family.children].map(({ log }) => log.key),
      (key) => this.runs.cancelSubRun(key, this),
      () => this.log.flush(),
      this.shared.logger,
    );
  }

  onFailed(error: unknown): void {
    this.#withExtras.cause = error;
  }

  onOver(): void {
    this.#slot?.give();
  }

  /** The agent has returned to begin again. Until that is committed nothing executes the run. */
  onContinued(entry: Entry): void {
    this.#steps?.onOver();
    this.#execution = undefined;
    this.#withExtras.continued = entry;
    onceInLog(this.log, entry, (committed) => {
      // Other work has a turn: an agent may begin again for ever without waiting for anything.
      if (committed === undefined) return;
      const { logger, clock, trimming } = this.shared;
      trimming.onGeneration(this.log.key, this.log.state, () => this.shared.isClosed);
      const turn = clock.turn().then(() => this.#continueAsNew());
      inBackground(logger, turn);
    });
  }

  /** A run that is being cancelled ends when that is committed. */
  #continueAsNew(): void {
    const { log } = this;
    if (log.lost) return;
    if (isStopped(log.state)) {
      // A run whose cancel came before its agent returned is stopped here.
      if (log.state.status === "cancelling") this.#stop();
      return;
    }
    if (this.#isPaused) {
      this.#waitForResume(() => this.#continueAsNew());
      return;
    }
    this.#withExtras.continued = undefined;
    this.#signal = undefined;
    this.#steps = undefined;
    // What limits a sub-run is above it.
    if (createdEntry(log.state).parent === undefined) log.activeTime = undefined;
    if (this.#family !== undefined) this.#family.spending = undefined;
    this.withSlot(() => this.execute());
  }

  get isEndHeld(): boolean {
    return this.#family?.isEndHeld === true;
  }

  /** For a durable agent the result is written to the log, and the agent receives it from the entry. */
  step(execution: Execution, name: string, body: StepBody, options: StepOptions): Promise<unknown> {
    const key = execution.keyFor(name);
    if (!this.durable) return this.#stepper.run(key, body, options, execution);
    return execution.record({
      key,
      start: (given, before) => this.#stepper.begin(key, body, options, before, given),
      settle: (entry) => resultOfStep(entry as StepEntry),
    });
  }

  get #stepper(): Steps {
    this.#steps ??= new Steps(this);
    return this.#steps;
  }

  runAgent(execution: Execution, request: NewSubRun): Promise<Run> {
    return this.runs.runAgent(this, execution, request);
  }

  #stop(): void {
    // A cancel that is not committed yet may be lost: it stops the agent when it is.
    if (this.extras?.isCancelPending === true) return;
    this.shared.pauses.letGo(this);
    // An agent that is run again is stopped where it was, not on the way there. While the run is queued it is not run again.
    const phase = this.residence?.phase;
    if (phase === "catching up" && this.#slot?.isQueued !== true && this.extras?.continued === undefined) return;
    this.onEnd();
    const reason = new CadenzaError("run_cancelled", "The run was cancelled.", { run_id: this.log.key.run_id });
    if (phase === "blocked") this.#execution?.fence();
    else if (this.#execution !== undefined) {
      this.#execution.abort(reason);
      return;
    }
    this.endWithoutAgent();
  }

  /** Ends a run that has no agent at work: it was not begun, or its code is missing or does not match its log. */
  endWithoutAgent(): void {
    if (this.log.state.position > 2) this.shared.figures.withoutFinally += 1;
    this.log.decide({ type: "end", at: this.shared.clock.now(), failure: null, usage: null });
    this.#slot?.give();
    this.log.flush();
  }

  #startAgent(): void {
    if (this.extras !== undefined) this.extras.clearStart = undefined;
    if (this.#isPaused && !this.log.lost) this.#beginLater();
    else if (this.log.lost || !mayBegin(this.log.state)) this.#slot?.give();
    else this.execute();
  }

  withSlot(callback: () => void): void {
    if (this.log.lost || isFinal(this.log.state.status)) return;
    const slot = this.#slot;
    if (this.shared.pauses.holds(this) && !isStopped(this.log.state)) this.#withSlotOnceResumed(callback);
    // What continues during a question needs no slot either.
    else if (slot === undefined || isWaiting(this.log.state)) callback();
    else this.#takeSlot(slot, callback);
  }

  #withSlotOnceResumed(callback: () => void): void {
    this.#waitForResume(() => this.withSlot(callback));
  }

  #takeSlot(slot: RunSlot, callback: () => void): void {
    slot.take(() => {
      this.settleActivity();
      callback();
    });
    this.settleActivity();
  }

  takeSlotForBody(): undefined | Promise<void> {
    const queued = isStopped(this.log.state) ? undefined : this.#slot?.takeForBody();
    if (queued === undefined) return undefined;
    this.settleActivity();
    return queued.then(() => this.settleActivity());
  }

  onLimited(): void {
    this.queued ??= new QueuedTime();
    this.settleActivity();
  }

  onStepBegun(): void {
    if (isWaiting(this.log.state)) this.settleHold();
    this.settleActivity();
  }

  onStepEnded(): void {
    this.settleActivity();
    this.residence?.note("step ended");
    if (this.isWaiting && !this.log.lost) this.settleHold();
    this.settleSlot();
    this.#leaveIfHeld();
    this.shared.onProgress?.();
  }

  /** Gives back the slots of the run and of the runs above, where a run waits and nothing is at work in it any more. */
  settleSlot(): void {
    const slot = this.#slot;
    if (slot !== undefined && !this.log.lost && this.waits && !this.isAtWork) {
      slot.onCommit(true);
      if (slot.isHeld && !slot.isKept) this.log.settleHead();
    }
    this.parent?.settleSlot();
  }

  /**
   * The process stays open while the run is at work, and while callers wait for it. One that waits for an answer or for other
   * code holds nothing.
   */
  settleHold(): void {
    const { head, lost } = this.log;
    const isActive =
      (head?.status === "in-progress" && !this.isWaiting) || (head?.status === "awaiting" && this.isInStep);
    const isMoving = (isActive || head?.status === "cancelling") && this.residence?.phase !== "blocked";
    const holds = (isMoving || this.#resting !== undefined) && !lost;
    if (holds === this.#holds) return;
    this.#holds = holds;
    if (holds) this.shared.hold();
    else this.shared.letGo();
  }

  #setSlot(slots: readonly Slot[]): void {
    if (slots.length === 0) return;
    const { tenant } = this.log.key;
    this.queued ??= new QueuedTime();
    const { priority = 0, fair = tenant } = createdEntry(this.log.state).queue ?? {};
    const per = this.agent.options.concurrency?.per;
    const { slots: pools } = this.shared;
    this.#slot = this.residence?.slot() ?? new LocalSlot(pools, slots, { tenant, priority, fair }, per);
  }
}

const noResting: readonly RestWaiter[] = [];

/** What most runs never have. */
interface Extras {
  /** What the agent threw, for callers who learn more than the client. */
  cause: unknown;
  /** A cancel has been decided, and is not committed yet. */
  isCancelPending: boolean;
  /** Where the next generation begins, until the agent is executed for it: nothing is at work that could be stopped. */
  continued: Entry | undefined;
  /** Before the time at which the run begins. */
  clearStart: (() => void) | undefined;
}

/** What reads runs for callers. */
interface RestReader {
  /** The run when it rests, after it was lost here with an error. */
  restOfLost(key: RunKey, error: CadenzaError, signal: AbortSignal | undefined): Promise<Run>;
}

/** A caller that waits for a run to rest. */
class RestWaiter extends Deferred<Run> {
  readonly reader: RestReader;
  readonly signal: AbortSignal | undefined;

  constructor(reader: RestReader, signal: AbortSignal | undefined) {
    super();
    this.reader = reader;
    this.signal = signal;
  }
}

/** A sub-run that is not loaded in this process. */
type SubRunNotHere = EndedRun | RunElsewhere;

/**
 * A run that has not ended, and that this process cannot load: another process owns it, or its code is not registered
 * here.
 */
export interface RunElsewhere {
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  /** How many entries its log holds. */
  readonly position: number;
  /** Reads its current state. Undefined: the store has deleted it. */
  readonly read: () => MaybePromise<RunState | undefined>;
  /** Tells when it has moved. Undefined: code that was just registered is tried on it. */
  readonly log: LogSource | undefined;
}

/** A run that has ended. */
export interface EndedRun {
  readonly run: Run;
  readonly state: RunState;
}
