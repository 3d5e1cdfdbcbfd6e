import type { Command, Refusal, ResumeCommand } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import { overdueError } from "../core/overdue.ts";
import type { Clock, Logger, RunKey, SessionChange } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { runRecord, transcript } from "../core/record.ts";
import { createdEntry, isAtRest, isFinal } from "../core/state.ts";
import type { Usage } from "../core/usage.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Run, RunMode } from "../protocol/run.ts";
import type { Agent, AgentFunction } from "./agent.ts";
import type { LogHost, LogRun } from "./commit.ts";
import { lostError, RunLog } from "./commit.ts";
import type { ContextHost } from "./context.ts";
import { RunContext } from "./context.ts";
import type { ExecutionSettings } from "./execution.ts";
import { Execution } from "./execution.ts";
import { failureOf, messageOf } from "./failure.ts";
import type { RunInput } from "./input.ts";
import type { OneByOne } from "./one-by-one.ts";
import type { Places } from "./places.ts";
import { Recording } from "./recording.ts";
import type { Divergence } from "./rerun.ts";
import { Seat } from "./seat.ts";
import type { Validated } from "./standard-schema.ts";
import type { StayHost, StaySettings } from "./stay.ts";
import { Stay } from "./stay.ts";
import { Steps } from "./steps.ts";

/** What the live runs of one runtime share. */
export interface LiveRunHost extends LogHost, StaySettings {
  readonly settings: ExecutionSettings;
  readonly exposeErrors: boolean;
  readonly places: Places;
  pace(at: number): undefined | Promise<void>;
  onDropped(run: LiveRun): void;
  onHung(run: LiveRun): void;
  onCommit(): void;
  onDifference(): void;
  /** The run was cancelled without its `finally` blocks, since there was no code for them. */
  onAgentMissing(run: LiveRun): void;
  /** The code does not match the history, or matches it after all. */
  onDivergence(run: LiveRun, divergence: Divergence | undefined): void;
  /** Why the run cannot get on here: it is blocked, or waits for a sub-run that is. */
  blockedError(key: RunKey): CadenzaError | undefined;
  /** The run that started this one does not watch it: it may sleep. */
  wakeParent(run: LiveRun): void;
  /** Tells runs what those that they have started have done. */
  readonly telling: OneByOne;
  /** Cancels sub-runs of this process, and what they have started themselves. */
  cancelSubRuns(runs: Iterable<LiveRun>): void;
  /** Stops a sub-run that may be anywhere, or have ended. */
  cancelSubRun(key: RunKey): void;
  /** Resolves when it is certain that this process still owns its runs; undefined: it is. */
  ensureOwner(run: LiveRun): undefined | Promise<void>;
  /** The run is over, and that is committed; or it belongs to another process. */
  onGone(run: LiveRun): void;
  runAgent(parent: LiveRun, execution: Execution, agentName: string, input: RunInput): Promise<Run>;
}

/** An answer to what a run asks. */
export interface Answer extends Omit<ResumeCommand, "type" | "at"> {
  /**
   * How whoever gives it wants to have the run: as it is then (`async`), when it rests (`sync`: then the answer is stored with what
   * the agent makes of it, in one write), or not at all.
   */
  readonly mode?: RunMode;
}

const noMessages: readonly Message[] = [];

/** A run that has not ended, in the process that executes it: its log, the agent at work on it, and whoever waits for it. */
export class LiveRun implements LogRun, ContextHost, StayHost {
  readonly log: RunLog;
  readonly agent: Agent;
  /** What the agent threw, for those who are told more than the client. */
  cause: unknown;
  readonly host: LiveRunHost;
  /** Makes the signal; until somebody asks for it, why it is aborted, if it is. */
  #abort: AbortController | (() => CadenzaError) | undefined;
  #execution: Execution | undefined;
  /** Only runs that are durable, or came out of the store, have one. */
  #stay: Stay | undefined;
  /** Only runs that have to do with others have one. */
  #relations: Relations | undefined;
  #openSteps: Steps | undefined;
  #resting: RestWaiter[] | undefined;
  /** Only runs of agents have one that may not all work at once. */
  #seat: Seat | undefined;
  /** While the run is at work: lets the process end. */
  #letGo: (() => void) | undefined;

  constructor(host: LiveRunHost, key: RunKey, agent: Agent) {
    this.host = host;
    this.agent = agent;
    this.log = new RunLog(key, this);
  }

  get clock(): Clock {
    return this.host.clock;
  }

  get logger(): Logger {
    return this.host.logger;
  }

  get fn(): AgentFunction {
    return this.agent.fn;
  }

  get principal(): JsonValue {
    return createdEntry(this.log.state).principal ?? null;
  }

  get durable(): boolean {
    return createdEntry(this.log.state).durable === true;
  }

  get settings(): ExecutionSettings {
    const { settings } = this.host;
    const timeoutMs = createdEntry(this.log.state).timeout_ms ?? this.agent.options.timeoutMs ?? settings.timeoutMs;
    return timeoutMs === settings.timeoutMs ? settings : { ...settings, timeoutMs };
  }

  get isInStep(): boolean {
    return this.#openSteps?.isBusy === true;
  }

  /** Whether the run waits for a place. */
  get isQueued(): boolean {
    return this.#seat?.isQueued === true;
  }

  unqueued(): undefined | Promise<void> {
    return this.#seat?.unqueued();
  }

  get isNeeded(): boolean {
    return this.#relations?.onProgress !== undefined || (this.#seat !== undefined && this.#keepsSeat);
  }

  /** While the run waits for an answer, the others of its session wait for it. */
  get #keepsSeat(): boolean {
    return this.agent.options.concurrency?.per === "session";
  }

  /** What only a durable run has. */
  get stay(): Stay {
    this.#stay ??= new Stay(this);
    return this.#stay;
  }

  get execution(): Execution | undefined {
    return this.#execution;
  }

  get steps(): Steps {
    this.#openSteps ??= new Steps(this);
    return this.#openSteps;
  }

  /** One signal for the run, made when somebody asks for it: making one costs as much as the rest of a small run. */
  get signal(): AbortSignal {
    if (this.#abort instanceof AbortController) return this.#abort.signal;
    const reason = this.#abort;
    this.#abort = new AbortController();
    if (reason !== undefined) this.#abort.abort(reason());
    return this.#abort.signal;
  }

  abortSignal(reason: () => CadenzaError): void {
    if (this.#abort instanceof AbortController) {
      if (!this.#abort.signal.aborted) this.#abort.abort(reason());
    } else this.#abort ??= reason;
  }

  ensureOwner(): undefined | Promise<void> {
    return this.host.ensureOwner(this);
  }

  hold(): () => void {
    return this.host.hold();
  }

  /** Takes a place, or queues up for one, before the agent may begin: whoever comes next finds it taken. `place` is what the run needs one under; undefined: none. */
  reserve(place: string | undefined): void {
    this.#setPlace(place);
    this.#seat?.take(() => this.#startAgent());
  }

  /** Lets the agent begin as soon as it has a place. */
  begin(): void {
    if (this.#seat !== undefined) this.#seat.mayBegin = true;
    if (this.#seat?.isQueued !== true) this.withPlace(() => this.#startAgent());
  }

  /** Takes over a run of a durable agent that is in the store, and runs it again. */
  comeBack(entries: Iterable<Entry>, place: string | undefined): void {
    this.#setPlace(place);
    if (this.log.state.status !== "awaiting") this.#seat?.occupy();
    this.replay(entries);
  }

  /** Runs a durable agent again, up to where its log ends. */
  replay(entries: Iterable<Entry>): void {
    this.#execution?.fence();
    this.stay.begin();
    const recording = new Recording(entries);
    if (recording.startedAt === undefined && recording.isStopped) {
      this.#endWithoutAgent();
      return;
    }
    this.#execution = new Execution(this, recording);
    this.#execution.start();
    this.#settleHold();
  }

  /** The run as soon as it rests. Rejects with `run_parked` if it is blocked. */
  rest(): MaybePromise<Run> {
    const { head, state, committed } = this.log;
    if (head !== undefined && isAtRest(head.status) && state.position === committed) return this.log.record();
    const blocked = this.host.blockedError(this.log.key);
    if (blocked !== undefined) return Promise.reject(blocked);
    return new Promise((resolve, reject) => {
      this.#resting ??= [];
      this.#resting.push({ resolve, reject });
    });
  }

  /** Asks the run to stop. The record shows it as it is then; what follows comes later. A refusal is told when what it rests on is committed. */
  async cancel(): Promise<Run> {
    const command = { type: "cancel", at: this.clock.now() } as const;
    if (isRefusal(this.log.preview(command))) await this.log.commit(true);
    const decision = this.log.decide(command);
    if (isRefusal(decision)) throw refusalError(decision, this.log.key.run_id);
    const record = runRecord(this.log.state);
    // A run that is being cancelled already has been told to stop, and so have its sub-runs.
    const acknowledged = this.#whenCommitted(decision.length === 0 ? ignore : () => this.#stop());
    if (acknowledged !== undefined) {
      await acknowledged;
      this.#confirm(command);
    }
    return record;
  }

  /** Somebody else may have written first: then what was asked was decided again, and perhaps otherwise. */
  #confirm(command: Command): void {
    const decision = this.log.preview(command);
    if (isRefusal(decision)) throw refusalError(decision, this.log.key.run_id);
  }

  /** Gives the run an answer. The record, of an `async` answer only, shows it as it is then, before its agent goes on; now, unless something has to be waited for. */
  answer(answer: Answer): MaybePromise<Run | undefined> {
    const ready = this.#stay?.ready;
    if (ready === undefined) return this.#answerNow(answer);
    // By then the agent may be run once more. One that does not catch up leaves the same promise behind.
    return ready.then(() => (this.#stay?.ready === ready ? this.#answerNow(answer) : this.answer(answer)));
  }

  #answerNow(answer: Answer): MaybePromise<Run | undefined> {
    const { log } = this;
    const { tryingAgain, divergence } = this.#stay ?? {};
    if (tryingAgain !== undefined) {
      return tryingAgain.then(() => {
        throw lostError(log.key.run_id);
      });
    }
    if (divergence !== undefined) throw blockedError(log.key.run_id, this.agent.name, divergence);
    const command = resumeCommand(answer, answer.await_id, this.clock.now());
    const first = log.preview(command);
    if (isRefusal(first)) {
      // Nobody is told of what is not committed, not by a refusal either.
      const committed = log.commit(true);
      if (committed !== undefined) return committed.then(() => this.#answerNow(answer));
      throw refusalError(first, log.key.run_id, answer.await_id);
    }
    const awaitId = log.state.shown?.await_id;
    if (first.length === 0 || awaitId === undefined) return this.#answeredBefore(command);
    const validated = this.#execution?.validate(answer.answer);
    if (isPromise(validated)) return validated.then((later) => this.#resume(answer, awaitId, later));
    return this.#resume(answer, awaitId, validated);
  }

  async #answeredBefore(command: Command): Promise<Run> {
    await this.log.commit(true);
    this.#confirm(command);
    return this.log.record();
  }

  /** Has somebody told whenever something was committed: the run that has started this one. */
  follow(onProgress: (() => void) | undefined): void {
    this.#related.onProgress = onProgress;
  }

  /** Another run has joined the session that was made for this one: then the session stays. */
  join(): void {
    this.#related.isJoined = true;
  }

  get #related(): Relations {
    this.#relations ??= { children: new Set(), onProgress: undefined, isJoined: false };
    return this.#relations;
  }

  /** The run that has started this one may do something in its turn, which the one above it is told of, and so on. */
  #tellParent(): void {
    if (this.#relations?.onProgress !== undefined) this.host.telling.do(() => this.#relations?.onProgress?.());
  }

  /** Adds a run that this one has started, and that ends with it. */
  adopt(child: LiveRun): void {
    this.#related.children.add(child);
  }

  release(child: LiveRun): void {
    this.#relations?.children.delete(child);
  }

  /** What the run waits for, in words. */
  get waitsFor(): string {
    const { status, shown } = this.log.state;
    if (status === "created") return "a place";
    if (shown !== null) return `the answer to ${shown.await_id}`;
    return this.#execution?.waitsFor ?? "nothing";
  }

  /** Ends the run as failed, whatever its agent is doing. */
  fail(error: CadenzaError): void {
    this.cause = error;
    const usage = this.#execution?.takeUsage() ?? null;
    this.log.decide({ type: "end", at: this.clock.now(), failure: failureOf(error, false), usage });
    this.#execution?.fence();
    this.abortSignal(() => error);
    this.#endChildren();
    this.#seat?.give();
    this.log.flush();
  }

  /** Gives the run back: its agent is left where it is, what was decided is committed, and anybody may take it over. */
  async handBack(): Promise<void> {
    this.#execution?.fence();
    await this.log.release();
    this.leave("The runtime was closed.");
  }

  /** Lets go of the run: to sleep, to other processes, or until the next start. */
  leave(reason: string): void {
    const error = new CadenzaError("lost_ownership", reason, { run_id: this.log.key.run_id });
    this.log.abandon(error);
    this.onLost();
  }

  // What the log reports.

  onCommit(): void {
    const { head } = this.log;
    if (head === undefined) return;
    this.#settleHold();
    if (head.status === "awaiting" && !this.#keepsSeat) this.#seat?.give();
    if (isAtRest(head.status)) this.#tellRest();
    if (this.durable) this.stay.onCommit(head.status);
    if (this.#relations?.onProgress !== undefined) this.#tellParent();
    else if (head.status !== "awaiting") this.host.wakeParent(this);
    this.host.onCommit();
    if (isFinal(head.status)) this.host.onGone(this);
  }

  onLost(): void {
    const error = this.log.lostReason ?? lostError(this.log.key.run_id);
    this.#settleHold();
    this.#execution?.fence();
    this.#stay?.end();
    // Whoever listens to the signal of a run that sleeps would take it for stopped.
    if (this.#stay?.isAsleep !== true) this.abortSignal(() => error);
    this.#seat?.give();
    this.#refuseRest(error);
    for (const child of this.#relations?.children ?? []) child.#leaveAlone();
    this.#tellParent();
    this.host.onGone(this);
  }

  /** The run is blocked, or waits for a sub-run that is: it does not come to rest for those that wait for it. */
  tellBlocked(error: CadenzaError): void {
    this.#refuseRest(error);
    this.log.tellReaders();
  }

  #refuseRest(error: CadenzaError): void {
    const resting = this.#resting;
    this.#resting = undefined;
    for (const { reject } of resting ?? []) reject(error);
  }

  sessionAtEnd(): SessionChange | undefined {
    const { state, key } = this.log;
    if (state.status !== "completed") return undefined;
    const { session_id } = createdEntry(state);
    return {
      session_id,
      create: session_id !== key.run_id || this.#relations?.isJoined === true,
      messages: () => transcript(state),
      at: state.ended?.at ?? 0,
    };
  }

  /** A run that cannot be run again elsewhere keeps its owner, also while it waits. */
  keepsOwner(): boolean {
    return !this.durable || this.stay.keepsOwner;
  }

  seekSubRun(key: string): void {
    if (this.durable) this.stay.seekSubRun(key);
  }

  setSubRun(key: string, isAtWork: boolean): void {
    if (this.durable) this.stay.setSubRun(key, isAtWork);
  }

  settleOwner(): void {
    if (this.durable) this.stay.settleOwner();
  }

  /** Somebody else wrote to the run. */
  onReloaded(): void {
    const { status } = this.log.state;
    if (status === "cancelling" && this.#execution?.aborted === undefined) this.#stop();
  }

  // What the execution asks for.

  contextFor(execution: Execution): RunContext {
    return new RunContext(this, execution);
  }

  pace(at: number): undefined | Promise<void> {
    return this.host.pace(at);
  }

  failureOf(error: unknown): ProtocolError {
    this.cause = error;
    this.logger.warn(`Run ${this.log.key.run_id} of ${this.agent.name} failed: ${messageOf(error)}`, {
      run_id: this.log.key.run_id,
      error,
    });
    return failureOf(error, this.host.exposeErrors);
  }

  onCaughtUp(): void {
    const { status, overdue } = this.log.state;
    this.#stay?.caughtUp();
    if (status === "cancelling") this.#stop();
    else if (overdue !== null) this.#execution?.abort(overdueError(this.log.key.run_id, overdue.await_id));
    else this.settleOwner();
  }

  onDivergence(divergence: Divergence | undefined, final: boolean): void {
    this.stay.divergence = divergence;
    this.#settleHold();
    if (divergence !== undefined && this.log.state.status === "cancelling") {
      this.#execution?.fence();
      this.#endWithoutAgent();
      return;
    }
    this.host.onDivergence(this, divergence);
    if (divergence !== undefined) {
      this.log.forgetTakeovers();
      this.stay.tellReady();
    }
    if (final) void this.park();
  }

  /** See {@link Stay.park}. */
  park(again = false): Promise<void> {
    return this.stay.park(again);
  }

  onDifference(): void {
    this.host.onDifference();
  }

  onDropped(): void {
    this.host.onDropped(this);
  }

  onOver(hung: boolean): void {
    if (hung) this.host.onHung(this);
    this.#endChildren();
    this.#seat?.give();
  }

  // What the context asks for.

  history(): MaybePromise<readonly Message[]> {
    const { session_id, history_length = 0 } = createdEntry(this.log.state);
    if (history_length === 0) return noMessages;
    const session = this.host.store.session({ tenant: this.log.key.tenant, session_id });
    if (!isPromise(session)) return session?.history.slice(0, history_length) ?? noMessages;
    return session.then((later) => later?.history.slice(0, history_length) ?? noMessages);
  }

  getState(): MaybePromise<JsonValue> {
    const { session_id } = createdEntry(this.log.state);
    const committed = this.log.commit();
    const readNow = (): MaybePromise<JsonValue> => {
      const session = this.host.store.session({ tenant: this.log.key.tenant, session_id });
      return isPromise(session) ? session.then((later) => later?.state ?? null) : (session?.state ?? null);
    };
    return isPromise(committed) ? committed.then(readNow) : readNow();
  }

  setState(state: JsonValue): MaybePromise<void> {
    const { session_id } = createdEntry(this.log.state);
    this.log.changeSession({ session_id, create: true, state: { value: state }, at: this.clock.now() });
    return this.log.commit();
  }

  runAgent(execution: Execution, agentName: string, input: RunInput): Promise<Run> {
    return this.host.runAgent(this, execution, agentName, input);
  }

  get usage(): Usage | null {
    return this.log.state.usage;
  }

  #resume(answer: Answer, awaitId: string, validated: Validated | undefined): MaybePromise<Run | undefined> {
    const { log } = this;
    if (validated !== undefined && "issues" in validated)
      throw rejectedError(log.key.run_id, awaitId, validated.issues);
    // The run may have gone to another process while the answer was read: it is given to the run there.
    if (log.lost) throw lostError(log.key.run_id);
    const command = resumeCommand(answer, awaitId, this.clock.now());
    const decision = log.decide(command);
    if (isRefusal(decision)) throw refusalError(decision, log.key.run_id, awaitId);
    const [entry] = decision;
    if (entry === undefined) return this.#answeredBefore(command);
    const record = answer.mode === "async" ? runRecord(log.state) : undefined;
    const value = validated?.value;
    // What else the agent waits for may have its result in the log before this one, and not be committed yet.
    const acknowledged =
      answer.mode === "sync" && this.durable && this.#execution?.waitsOnlyFor(awaitId) === true
        ? this.#goOnBeforeCommit(entry, value)
        : this.#whenCommitted(() => this.#goOn(entry, value));
    if (acknowledged === undefined) return record;
    return acknowledged.then(() => {
      this.#confirm(command);
      return record;
    });
  }

  #goOn(entry: Entry, value: unknown): void {
    const execution = this.#execution;
    execution?.withPlace(() => execution.answered(entry, value));
  }

  /** Nobody is told of the answer before its commit; only the agent goes on, and what it does before that is stored with it. */
  #goOnBeforeCommit(entry: Entry, value: unknown): undefined | Promise<void> {
    const committed = this.log.commitAlong();
    this.#goOn(entry, value);
    return committed;
  }

  /** Does what follows from a decision once it is committed. The promise is for the caller, who is told if the store fails. */
  #whenCommitted(follow: () => void): undefined | Promise<void> {
    const acknowledged = this.log.commit(true);
    if (acknowledged === undefined) {
      follow();
      return undefined;
    }
    void this.log.commit()?.then(follow);
    return acknowledged;
  }

  #stop(): void {
    // An agent that is run again is stopped where it was, not on the way there. While the run is queued it is not run again.
    const { ready, divergence } = this.#stay ?? {};
    if (ready !== undefined && divergence === undefined && !this.isQueued) return;
    this.#endChildren();
    const reason = new CadenzaError("run_cancelled", "The run was cancelled.", { run_id: this.log.key.run_id });
    if (divergence !== undefined) this.#execution?.fence();
    else if (this.#execution !== undefined) {
      this.#execution.abort(reason);
      return;
    }
    this.#endWithoutAgent();
  }

  /** Ends a run that has no agent at work: it was not begun, or its code is missing or does not fit. */
  #endWithoutAgent(): void {
    if (this.log.state.position > 2) this.host.onAgentMissing(this);
    this.log.decide({ type: "end", at: this.clock.now(), failure: null, usage: null });
    this.#seat?.give();
    this.log.flush();
  }

  #startAgent(): void {
    if (this.#seat?.mayBegin === false) return;
    if (this.log.lost || this.log.state.status !== "created") {
      this.#seat?.give();
      return;
    }
    this.#execution = new Execution(this);
    this.#execution.start();
  }

  #endChildren(): void {
    const children = this.#relations?.children;
    if (children !== undefined && children.size > 0) this.host.cancelSubRuns(children);
    const stay = this.#stay;
    if (stay === undefined) return;
    for (const run_id of stay.subRunsBefore) this.host.cancelSubRun({ tenant: this.log.key.tenant, run_id });
    stay.subRunsBefore = [];
  }

  withPlace(callback: () => void): void {
    // A run that is over needs no place, and would not give it back.
    if (this.log.lost || isFinal(this.log.state.status)) return;
    if (this.#seat === undefined) callback();
    else this.#seat.take(callback);
  }

  /** The process stays open while the run is at work. One that waits for an answer or for other code holds nothing. */
  #settleHold(): void {
    const { head, lost } = this.log;
    const hasAgent = head?.status === "in-progress" || head?.status === "cancelling";
    if (hasAgent && !lost && this.#stay?.divergence === undefined) this.#letGo ??= this.host.hold();
    else {
      this.#letGo?.();
      this.#letGo = undefined;
    }
  }

  #setPlace(place: string | undefined): void {
    const { concurrency } = this.agent.options;
    if (place !== undefined && concurrency !== undefined)
      this.#seat = new Seat(this.host.places, place, concurrency.max);
  }

  /** The run that has started this one is not there any more. */
  #leaveAlone(): void {
    this.follow(undefined);
    if (this.durable) this.stay.leaveAlone();
  }

  #tellRest(): void {
    const resting = this.#resting;
    if (resting === undefined) return;
    this.#resting = undefined;
    const record = this.log.record();
    for (const { resolve } of resting) resolve(record);
  }
}

/** What ties a run to others. */
interface Relations {
  /** The runs that it has started and follows. */
  readonly children: Set<LiveRun>;
  /** Called whenever something was committed, if another run has started this one. */
  onProgress: (() => void) | undefined;
  isJoined: boolean;
}

/** Somebody who waits for the run to rest. */
interface RestWaiter {
  readonly resolve: (run: MaybePromise<Run>) => void;
  readonly reject: (error: CadenzaError) => void;
}

function resumeCommand({ answer, idempotency_key }: Answer, await_id: string | null, at: number): ResumeCommand {
  return { type: "resume", at, await_id, answer, idempotency_key };
}

/** What a caller is told whose command the rules refuse. */
export function refusalError({ refused }: Refusal, runId: string, awaitId: string | null = null): CadenzaError {
  return new CadenzaError(refused, `Run ${runId} ${refusals[refused]}`, {
    run_id: runId,
    ...(awaitId !== null && { await_id: awaitId }),
  });
}

const refusals: Readonly<Record<Refusal["refused"], string>> = {
  not_awaiting: "does not wait for this answer.",
  run_cancelling: "is being cancelled.",
  run_finished: "has ended already.",
  answer_conflict: "has another answer to this question already.",
  idempotency_conflict: "has another answer under this idempotency key already.",
};

/** What a caller is told whose run waits for matching code. */
export function blockedError(runId: string, agent_name: string, divergence: Divergence): CadenzaError {
  const { expected, asked, position } = divergence;
  const message =
    `Run ${runId} is blocked: the registered code of ${JSON.stringify(agent_name)} does not match its history ` +
    `at entry ${position + 1} (history: ${expected}; code: ${asked}). Register matching code, or cancel the run.`;
  return new CadenzaError("run_parked", message, { run_id: runId, agent_name });
}

function rejectedError(runId: string, awaitId: string, issues: CadenzaError["issues"] = []): CadenzaError {
  const what = issues
    .map(({ path, message }) => (path.length === 0 ? message : `${path.join(".")}: ${message}`))
    .join("; ");
  return new CadenzaError("answer_rejected", `The answer does not fit the question: ${what}`, {
    run_id: runId,
    await_id: awaitId,
    issues,
  });
}
