import type { AboutRun } from "../../core/about-run.ts";
import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { Command, Emission, EndCommand } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { ResultEntry } from "../../core/log.ts";
import { overdueError } from "../../core/overdue.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { createdEntry, isFinal } from "../../core/state.ts";
import { addUsage } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Agent } from "../agent/agent.ts";
import type { AgentContext } from "../agent/agent-context.ts";
import type { Generator } from "../agent/generator.ts";
import { generatorOf, generatorOfItems, leave, nextOf, throwInto, unwind } from "../agent/generator.ts";
import type { AwaitYield } from "../agent/yields.ts";
import { meaningOf } from "../agent/yields.ts";
import type { Operation, Operations } from "../log/operations.ts";
import type { Ownership } from "../log/ownership.ts";
import { checkLogLength, checkSize } from "../log/part-size.ts";
import type { RunLog } from "../log/run-log.ts";
import type { ExecutionSettings } from "../log/shared-by-runs.ts";
import { AgentPromise } from "./agent-promise.ts";
import { noteOperation, operationBehind } from "./failed-operation.ts";
import { InterceptedAgent, runInfo } from "./intercepted-agent.ts";
import { onceInLog } from "./once-committed.ts";

/** How many failed operations are kept until the end of the run, in case the agent awaits them later. */
const MAX_FAILED = 100;

/** What is said of the error that ends a run. */
export type Failed = Pick<EndCommand, "failure" | "key" | "cause">;

/** What an execution needs from the run that it executes. */
export interface ExecutionHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly agent: Agent;
  readonly durable: boolean;
  readonly ownership: Pick<Ownership, "takenAt">;
  readonly settings: ExecutionSettings;
  /** One signal for the run, whichever of its executions asks for it. */
  readonly signal: AbortSignal;
  abortSignal(reason: () => CadenzaError): void;
  readonly principal: JsonValue;
  /** How the agent's operations get their results. */
  operationsFor(execution: Execution): Operations;
  /** The agent has yielded an await request. */
  onAwait(execution: Execution, request: AwaitYield): void;
  /** Calls back when the run has its slot, now or later. */
  withSlot(callback: () => void): void;
  /** The agent is about to be given something: it goes on. */
  onMove(): void;
  /** Now and then another turn of the event loop is due; undefined when it is not. */
  pace(at: number): undefined | Promise<void>;
  failureOf(error: unknown): Failed;
  /** Usage was reported, or the agent has caught up with what the log holds: the run may exceed its budget. */
  onUsage(): void;
  /** What the sub-runs without a result have used, if the run has a budget. Null: nothing. */
  readonly usageBelow: Usage | null;
  /** The agent was still working after the run had ended, and what it emitted was dropped. */
  onDropped(): void;
  /** The run is about to end: its sub-runs end first. */
  onEnd(): void;
  /** The agent is through, or has been left behind. `hung`: it did not stop in time. */
  onOver(hung: boolean): void;
}

/**
 * One agent at work on one run: a single loop over a generator, whatever form the agent function has. Everything that
 * the agent does becomes a command to the log; everything that happens to it comes as an entry of the log. The loop is
 * not an async function: the frame of one would be a part of what a run takes for as long as its agent waits.
 */
export class Execution {
  readonly operations: Operations;
  readonly #host: ExecutionHost;
  /** What the agent function has returned, as long as it is not used up. */
  #generator: Generator | undefined;
  /** The generators that wait while one that they gave is drained. */
  #outer: Generator[] | undefined;
  /** Made once for all values, and dropped while the agent waits for an answer. */
  #onStep: ((given: IteratorResult<unknown>) => void) | undefined;
  #onStepThrown: ((error: unknown) => void) | undefined;
  #aborted: CadenzaError | undefined;
  /** What ends the run once the agent is unwound; null: nothing went wrong. */
  #failure: unknown = null;
  #over = false;
  /** Whether the agent was called: an interceptor may have failed before it. */
  #isCalled = false;
  #emitted = 0;
  #usage: Usage | null = null;
  /** What has failed while nothing had observed its promise. */
  #failed: FailedOperation[] | undefined;
  /** Of the grace period. */
  #clearTimer: (() => void) | undefined;

  constructor(host: ExecutionHost) {
    this.#host = host;
    this.operations = host.operationsFor(this);
  }

  /** Calls the agent. Never throws: what the agent throws fails its run. */
  start(context: AgentContext): void {
    const { log, clock } = this.#host;
    if (!this.operations.isCatchingUp) log.decide({ type: "start", at: clock.now() });
    const call = (): unknown => {
      this.#isCalled = true;
      return this.#host.agent.fn(createdEntry(log.state).input, context);
    };
    const isFirst = !this.operations.isCatchingUp;
    const { run } = this.settings.interceptors;
    this.#begin(
      run === undefined ? call : () => new InterceptedAgent((next) => run(runInfo(this.#host, isFirst), next), call),
    );
    this.operations.begin();
  }

  /** Calls the agent function, and takes its values until it has ended, is stopped, or waits for an answer. */
  #begin(call: () => unknown): void {
    try {
      this.#generator = generatorOf(call());
    } catch (error) {
      this.#onThrown(error);
      return;
    }
    this.goOn(undefined);
  }

  /** Goes on. The `yield` at which the agent waits returns `sent`, such as the answer to a request that was yielded. */
  goOn(sent: unknown): void {
    try {
      this.#follow(this.#next(sent));
    } catch (error) {
      this.#onThrown(error);
    }
  }

  /** A request that was yielded gets no answer: `yield` throws the error. An agent that is stopped is unwound instead. */
  throwInto(error: unknown): void {
    if (this.isStopped || this.#generator === undefined) return;
    try {
      this.#host.onMove();
      this.#follow(throwInto(this.#generator, error));
    } catch (thrown) {
      this.#onThrown(thrown);
    }
  }

  #follow(step: undefined | MaybePromise<IteratorResult<unknown>>): void {
    if (step === undefined) return;
    this.#onStep ??= (given) => this.#goOnWith(given);
    this.#onStepThrown ??= (error) => this.#onThrown(error);
    inBackground(this.logger, Promise.resolve(step).then(this.#onStep, this.#onStepThrown));
  }

  #goOnWith(step: IteratorResult<unknown>): void {
    try {
      const taken = this.#take(step);
      if (taken === undefined) this.goOn(undefined);
      else if (taken !== "stops")
        inBackground(
          this.logger,
          taken.then(
            () => this.goOn(undefined),
            (error: unknown) => this.#onThrown(error),
          ),
        );
    } catch (error) {
      this.#onThrown(error);
    }
  }

  /** Lets the agent run to its next value. Undefined: there is none. */
  #next(sent: unknown): undefined | MaybePromise<IteratorResult<unknown>> {
    if (this.isStopped) return undefined;
    this.#host.onMove();
    if (this.#generator !== undefined) return nextOf(this.#generator, sent);
    this.#end(null, false);
    return undefined;
  }

  #take(step: IteratorResult<unknown>): Taken {
    const isLast = step.done === true;
    const hasValue = !isLast || step.value !== undefined;
    if (this.isStopped) {
      // Unwinding needs the generators that wait for this one.
      if (hasValue) inBackground(this.logger, this.#emitLast(step.value));
      return "stops";
    }
    if (isLast) this.#generator = this.#outer?.pop();
    return hasValue ? this.#handle(step.value) : undefined;
  }

  /** Only an await request is sent something back. The loop ends there: a run that waits costs no more than its log. */
  #handle(value: unknown): Taken {
    const meaning = meaningOf(value);
    switch (meaning.kind) {
      case "await":
        this.#onStep = undefined;
        this.#onStepThrown = undefined;
        this.#host.onAwait(this, meaning.request);
        return "stops";
      case "items":
        if (this.#generator !== undefined) {
          this.#outer ??= [];
          this.#outer.push(this.#generator);
        }
        this.#generator = generatorOfItems(meaning.iterable);
        return this.pace();
      default:
        return this.emit(meaning);
    }
  }

  /** The error with which the run was stopped, if it was. */
  get aborted(): CadenzaError | undefined {
    return this.#aborted;
  }

  get over(): boolean {
    return this.#over;
  }

  /** Whether the agent is not to go on: it is being stopped, or through. */
  get isStopped(): boolean {
    return this.#aborted !== undefined || this.#over;
  }

  /** Whether the active time has no limit any more: the agent is stopped, or has failed and is being unwound. */
  get isEnding(): boolean {
    return this.isStopped || this.#failure !== null;
  }

  /** Begins a recorded operation. */
  perform(work: Work): Promise<unknown> {
    const operation = new RecordedOperation(this, work);
    this.operations.perform(operation);
    return operation.given;
  }

  /** The promise of some work for the agent. Never throws. */
  given<T>(work: () => MaybePromise<T>, key?: string): Promise<T> {
    try {
      const outcome = work();
      if (!isPromise(outcome)) return Promise.resolve(outcome);
      return outcome instanceof AgentPromise ? outcome : this.#promiseOf(outcome, key);
    } catch (error) {
      return this.#promiseOf(Promise.reject(error), key);
    }
  }

  #promiseOf<T>(work: Promise<T>, key: string | undefined): Promise<T> {
    const given = new AgentPromise<T>();
    const settled = work.then(
      (value) => given.resolve(value),
      (error: unknown) => this.fail(given, error, key),
    );
    inBackground(this.logger, settled);
    return given;
  }

  /**
   * Rejects a promise of the agent. If nothing has observed it by the end of the run, the error goes to the logger: until
   * then the agent may still await it. What fails because the run was stopped or has ended is no news.
   */
  fail(given: Failing, error: unknown, key?: string): void {
    given.reject(error);
    if (given.isObserved || this.#aborted !== undefined) return;
    if (this.#over && (!isFinal(this.log.state.status) || isEnd(error))) return;
    this.#failed ??= [];
    this.#failed.push({ given, error, key: key ?? operationBehind(error) });
    if (this.#failed.length > MAX_FAILED) this.#tell(this.#failed.shift());
    // The agent may observe it in this turn.
    if (this.#over)
      inBackground(
        this.logger,
        this.clock.turn().then(() => this.#tellFailed()),
      );
  }

  /** How many values the agent has emitted. */
  get emitted(): number {
    return this.#emitted;
  }

  get log(): RunLog {
    return this.#host.log;
  }

  get clock(): Clock {
    return this.#host.clock;
  }

  /** The fields of log lines about the run. */
  get about(): AboutRun {
    return aboutRun(this.log);
  }

  get logger(): Logger {
    return this.#host.logger;
  }

  get takenAt(): number {
    return this.#host.ownership.takenAt;
  }

  /** See {@link Operations.settled}. */
  settled(): Promise<void> {
    return this.operations.settled();
  }

  /** Goes on when the run has its slot again. */
  withSlot(callback: () => void): void {
    this.operations.withSlot((take) => this.#host.withSlot(take), callback);
  }

  onExpired(): void {
    const { overdue } = this.log.state;
    if (overdue !== null) this.abort(overdueError(this.log.key.run_id, overdue));
  }

  /** Emits an item. Undefined: done. A promise: the queue to the store is full, wait for it. */
  emit(emission: Emission): undefined | Promise<void> {
    const { log, clock, settings } = this.#host;
    if (this.#over) {
      this.#host.onDropped();
      return this.pace();
    }
    checkLogLength(log.state.position, settings.maxLogEntries);
    checkSize(emission, settings.maxPartBytes);
    const at = clock.now();
    if (emission.source) {
      log.decide({ type: "emit", at, item: emission });
      return log.backlog >= settings.maxBacklog ? log.commit() : this.#host.pace(at);
    }
    this.#emitted += 1;
    return this.operations.emit(emission, at);
  }

  get settings(): ExecutionSettings {
    return this.#host.settings;
  }

  onUnfitAnswer(key: string): void {
    this.operations.onUnfitAnswer(key);
  }

  /** Books usage that the log does not have. */
  addUsage(usage: Usage): void {
    this.#usage = addUsage(this.#usage, usage);
    this.#host.onUsage();
  }

  /** What has been reported so far; null before the first report. */
  get usage(): Usage | null {
    return addUsage(this.#host.log.state.usage, this.#usage);
  }

  /** What was reported since the last entry that carried usage. */
  takeUsage(): Usage | null {
    const usage = this.#usage;
    this.#usage = null;
    return usage;
  }

  /** Stops the agent: its signal aborts, what it waits for rejects, its `finally` blocks run. What takes longer than the grace period is left behind. */
  abort(reason: CadenzaError): void {
    if (this.isStopped) return;
    this.#aborted = reason;
    // An agent that has failed is being unwound already. The others are told to stop before they learn what stops them.
    if (this.#failure === null) this.#beginUnwinding();
    this.operations.close(() => reason);
    this.#host.abortSignal(() => reason);
  }

  /** Leaves the agent where it is: nothing that it does counts any more, and nothing happens to it, not even its end. */
  fence(): void {
    if (this.#over) return;
    this.operations.drop();
    this.#over = true;
    this.#letGo();
  }

  /** What the run waits for, for the report of `close`. */
  get waitsFor(): string {
    const { open } = this.operations;
    return open.length === 0 ? "the agent" : open.join(", ");
  }

  /** The agent threw, or emitted an invalid value: all `finally` blocks run, and the run fails. */
  #onThrown(thrown: unknown): void {
    const error = thrown ?? new Error(String(thrown));
    if (this.isStopped) {
      this.logger.debug("The agent threw while it was being stopped.", { ...aboutRun(this.log), error });
      return;
    }
    this.#failure = error;
    if (this.#generator !== undefined) this.#beginUnwinding();
    else this.#end(null, false);
  }

  /** Gives other work of the process a turn of the event loop, if one is due. Undefined: it is not. */
  pace(): undefined | Promise<void> {
    return this.#host.pace(this.#host.clock.now());
  }

  #beginUnwinding(): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#host.clock.setTimeout(() => this.#end(null, true), this.#host.settings.cancelGraceMs);
    inBackground(
      this.logger,
      this.#unwind().then(() => this.#end(null, false)),
    );
  }

  /** Runs the `finally` blocks, those of the innermost generator first. What they emit is kept. */
  async #unwind(): Promise<void> {
    // A generator that is stopped by what it calls itself has to come to its next `yield` first.
    await undefined;
    for (let generator = this.#generator; generator !== undefined; generator = this.#outer?.pop()) {
      try {
        let step = await unwind(generator);
        while (step.done !== true && !this.#over) {
          await this.#emitLast(step.value);
          step = await nextOf(generator, undefined);
        }
      } catch (error) {
        this.logger.debug("The agent threw while it was being stopped.", { ...aboutRun(this.log), error });
      }
    }
  }

  /** Keeps what a `finally` block emits. Invalid values and await requests are skipped. */
  async #emitLast(value: unknown): Promise<void> {
    try {
      const meaning = meaningOf(value);
      if (meaning.kind !== "await" && meaning.kind !== "items") await this.emit(meaning);
      else await this.pace();
      if (meaning.kind !== "items") return;
      for await (const item of meaning.iterable) {
        if (this.#over) return;
        await this.#emitLast(item);
      }
    } catch (error) {
      this.logger.debug("The agent emitted an invalid value while it was being stopped.", {
        ...aboutRun(this.log),
        error,
      });
    }
  }

  #end(thrown: unknown, hung: boolean): void {
    if (this.#over) return;
    const error = thrown ?? this.#failure;
    if (this.#isCalled && !this.operations.mayEnd(error, this.#aborted)) return;
    this.#over = true;
    this.#tellFailed();
    const { log, clock, failureOf } = this.#host;
    const failed = error === null ? { failure: null } : failureOf.call(this.#host, error);
    const usage = addUsage(this.takeUsage(), this.#host.usageBelow);
    log.decide({ type: "end", at: clock.now(), ...failed, usage });
    const reason = (): CadenzaError => this.#aborted ?? endedError(log.key.run_id);
    this.operations.close(reason);
    this.#letGo();
    this.#host.abortSignal(reason);
    this.#host.onEnd();
    log.flush();
    this.#host.onOver(hung);
  }

  #tellFailed(): void {
    const failed = this.#failed;
    this.#failed = undefined;
    for (const one of failed ?? []) this.#tell(one);
  }

  #tell(failed: FailedOperation | undefined): void {
    if (failed === undefined || failed.given.isObserved) return;
    const { key, error } = failed;
    this.logger.warn("An operation failed, and nothing awaited it.", {
      ...this.about,
      ...(key !== undefined && { key }),
      error,
    });
  }

  #letGo(): void {
    this.log.activeTime?.settle(false);
    this.#clearTimer?.();
    const outermost = this.#outer?.[0] ?? this.#generator;
    outermost?.[leave]?.();
    this.#outer = undefined;
    this.#generator = undefined;
  }

  /** The agent goes on with new work. */
  onCaughtUp(): void {
    this.#host.onUsage();
  }

  /** The active time is over. The agent is stopped when the log says so, as for the deadline of a question. */
  overrun(): void {
    const { log, clock } = this.#host;
    if (this.isEnding) return;
    const decision = log.decide({ type: "overrun", at: clock.now() });
    const entry = isRefusal(decision) ? undefined : decision[0];
    if (entry === undefined) return;
    onceInLog(log, entry, (committed) => {
      if (committed !== undefined) this.onExpired();
    });
  }

  /**
   * Decides a command that makes the run fail. Returns whether the agent is stopped for it, which is at once: until the
   * commit it would use more.
   */
  stopBy(command: Command): boolean {
    const { log } = this.#host;
    const decision = log.decide(command);
    if (isRefusal(decision) || decision.length === 0) return false;
    log.flush();
    this.onExpired();
    return true;
  }
}

/** The work of an operation: see {@link Operation}. */
export interface Work extends Pick<Operation, "key" | "settle"> {
  /** Begins the work. `given` is the agent's promise. */
  start(given: Failing): void;
}

/** A promise of the agent that may fail. */
export type Failing = Pick<AgentPromise<unknown>, "isObserved" | "reject">;

/** A step or a sub-run, whose result is recorded. */
class RecordedOperation implements Operation {
  readonly given = new AgentPromise<unknown>();
  readonly #execution: Execution;
  readonly #work: Work;

  constructor(execution: Execution, work: Work) {
    this.#execution = execution;
    this.#work = work;
  }

  get key(): string {
    return this.#work.key;
  }

  start(): void {
    this.#work.start(this.given);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    return this.#work.settle(entry, live);
  }

  resolve(value: unknown): void {
    this.given.resolve(value);
  }

  reject(error: unknown): void {
    noteOperation(this.key, error);
    this.#execution.fail(this.given, error, this.key);
  }
}

/** What follows on a value. Undefined: the loop goes on. `stops`: an answer continues it, or the run is being stopped. */
type Taken = undefined | Promise<void> | "stops";

interface FailedOperation {
  readonly given: Failing;
  readonly error: unknown;
  readonly key: string | undefined;
}

function endedError(runId: string): CadenzaError {
  return new CadenzaError("run_cancelled", "The run has ended.", { run_id: runId });
}

/** Whether an operation failed with {@link endedError}, since its run has ended. */
function isEnd(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "run_cancelled";
}
