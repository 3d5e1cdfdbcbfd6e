import type { AboutRun } from "../../core/about-run.ts";
import { aboutRun } from "../../core/about-run.ts";
import type { Contained } from "../../core/background.ts";
import { contained, inBackground, whenSettled } from "../../core/background.ts";
import type { Command, ContinueCommand, Emission, EndCommand } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import type { PartSource } from "../../core/emission-source.ts";
import { CadenzaError } from "../../core/errors.ts";
import { causeOf, failureOf } from "../../core/failure.ts";
import { copyJson } from "../../core/json.ts";
import type { AttemptEntry, Entry, ResultEntry } from "../../core/log.ts";
import { overdueError } from "../../core/overdue.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, generationLength, generationNumber, isFinal, isOfAnother } from "../../core/state.ts";
import { isOwn } from "../../core/tenants.ts";
import { addUsage, usageWith } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Run } from "../../protocol/run.ts";
import type { Agent } from "../agent/agent.ts";
import type { AgentContext } from "../agent/agent-context.ts";
import { readCarry } from "../agent/agent-schemas.ts";
import type { StepOptions, StepScope } from "../agent/agent-steps.ts";
import type { AwaitYield, Generator } from "../agent/generator.ts";
import {
  ContinueAsNew,
  generatorOfItems,
  isGenerator,
  lastStep,
  leave,
  meaningOf,
  nextOf,
  throwInto,
  unwind,
} from "../agent/generator.ts";
import type { RunInput } from "../agent/input.ts";
import type { Interceptors } from "../agent/interceptors.ts";
import { ActiveTime } from "../log/active-time.ts";
import { checkLogLength, checkSize } from "../log/part-size.ts";
import type { RunLog } from "../log/run-log.ts";
import type { ExecutionSettings, SharedByRuns } from "../log/shared-by-runs.ts";
import { AgentPromise, isOfOperation, noteOperation, operationBehind } from "./agent-promise.ts";
import { InterceptedAgent, runInfo } from "./intercepted-agent.ts";
import type { Committed, Delivery, Journal, Operation, Residence, Unfit } from "./operations.ts";
import { Operations, onceInLog, standingOf, unfit as unfitCarry } from "./operations.ts";
import type { SpendingRun } from "./run-family.ts";
import { checkSpending, Spending, tokensLeft } from "./run-family.ts";

/** How many failed operations are kept until the end of the run, in case the agent awaits them later. */
const MAX_FAILED = 100;
/** How many items a durable agent emits before it waits a turn. */
const EMITTED_AT_ONCE = 64;

/** What is said of the error that ends a run. */
type Failed = Pick<EndCommand, "failure" | "key" | "cause">;

/** What is stopped, or has ended. The error is made when it is asked for: most runs end without one. */
export interface Stopped {
  readonly reason: CadenzaError;
}

/** The body of a step. */
export type StepBody = (step: StepScope) => MaybePromise<unknown>;

/** A request for a sub-run, validated but for its input. */
export interface NewSubRun {
  readonly agentName: string;
  readonly input: RunInput;
  /** Whether the parent shows what it emits. */
  readonly show: boolean;
  /** How many tokens it may use with the runs below it. Undefined: what its agent says. */
  readonly totalTokens: number | undefined;
}

/** The run of an agent, and what its agent reports to it. */
export interface AgentRun extends SpendingRun {
  readonly shared: SharedByRuns;
  readonly agent: Agent;
  readonly durable: boolean;
  readonly residence: Residence | undefined;
  /** Whether other processes can go on with the run when this one closes. */
  readonly mayLeave: boolean;
  readonly execution: Execution | undefined;
  /** One signal for the run, whichever of its executions asks for it. */
  readonly signal: AbortSignal;
  abortSignal(stopped: Stopped): void;
  /** Whether the body of a step is at work in this process, or is about to begin. */
  readonly isInStep: boolean;
  /** Whether an operation that begins now comes from inside the body of a step. */
  isInBody(execution: Execution): boolean;
  /** Whether the agent may get what has come for it. False: it gets that when its run is taken. */
  readonly mayGoOn: boolean;
  /** Whether a pause with `now` covers the run: nothing of a durable agent begins. */
  readonly isHeld: boolean;
  /** Calls back when the run is resumed, if it has not left by then and is not being stopped. */
  hold(goOn: () => void): void;
  /** Calls back when the run has its slot, now or later. */
  withSlot(callback: () => void): void;
  /** Takes the run's slot for a step body. Undefined: it has the slot, or needs none. */
  takeSlotForBody(): undefined | Promise<void>;
  /** A step has begun or ceased to wait for a limit of the runtime. */
  onLimited(): void;
  /** A step has begun, perhaps while the run waits for something. */
  onStepBegun(): void;
  /** A step has ended: the run may only wait from now on. */
  onStepEnded(): void;
  /** The agent is about to be given something, and continues. */
  onMove(): void;
  /** The agent has yielded an await request. */
  onAwait(execution: Execution, request: AwaitYield): void;
  /** Runs the body of a step, and gives the agent its result. */
  step(execution: Execution, name: string, body: StepBody, options: StepOptions): Promise<unknown>;
  runAgent(execution: Execution, request: NewSubRun): Promise<Run>;
  /** The agent has thrown what ends the run. */
  onFailed(error: unknown): void;
  /** The agent has ended, or has been left behind. */
  onOver(): void;
  /** The agent begins again from the top, once this entry is committed. */
  onContinued(entry: Entry): void;
}

/**
 * One agent at work on one run: a single loop over a generator, whatever form the agent function has. Everything that
 * the agent does becomes a command to the log; everything that happens to it comes as an entry of the log. The loop is
 * not an async function: the frame of one would be a part of what a run takes for as long as its agent waits.
 */
export class Execution extends Operations {
  readonly run: AgentRun;
  readonly journal: Journal | undefined;
  /** What the agent function has returned, if that is a generator, as long as it is not used up. */
  #generator: Generator | undefined;
  /** If it is not: what it returns, while it is awaited. */
  #pending: Promise<IteratorResult<unknown>> | undefined;
  /** The generators that wait while one that they gave is drained. */
  #outer: Generator[] | undefined;
  /** Made once for all values, and dropped while the agent waits for an answer. */
  #onStep: Contained<IteratorResult<unknown>> | undefined;
  /** An interceptor may fail before the agent is called. */
  #stage: "begun" | "called" | "over" | "continued" = "begun";
  /** Once the agent is being stopped, or has failed. */
  #unwinding: Unwinding | undefined;
  #emitted = 0;
  #usage: Usage | null = null;
  /** What has failed while nothing had observed its promise. */
  #failed: FailedOperation[] | undefined;
  #carry: unknown;
  /** What the agent has made to return it. */
  #continuing: ContinueAsNew | undefined;

  /** Made once for all executions, as {@link contained} wants them. */
  static readonly #goOnWithOf = (one: Execution, given: IteratorResult<unknown>): void => one.#goOnWith(given);
  static readonly #goOnOf = (one: Execution): void => one.goOn(undefined);
  static readonly #onThrownOf = (one: Execution, error: unknown): void => one.#onThrown(error);

  constructor(run: AgentRun) {
    super();
    const { log } = run;
    const { budget } = createdEntry(log.state);
    this.run = run;
    if (budget !== undefined) run.family.spending ??= new Spending(budget);
    log.activeTime ??= activeTimeOf(run);
    this.journal = run.residence?.journal(this);
  }

  override handOver(delivery: Delivery): undefined | Promise<Unfit | undefined> {
    if (this.journal !== undefined) this.#spending?.receive(this, usageWith(delivery.entry, this.log.state));
    return super.handOver(delivery);
  }

  /** Calls the agent. Never throws: what the agent throws fails its run. */
  start(context: AgentContext): void {
    const { log, clock } = this;
    if (!this.isCatchingUp) log.decide({ type: "start", at: clock.now() });
    const unfit = this.#unfitCarry();
    if (unfit === undefined) this.#call(context);
    // Other code may accept it.
    else if (this.journal !== undefined) {
      this.journal.end(unfitCarry);
      return;
    } else this.#onThrown(unfit);
    this.journal?.begin();
  }

  /** Why the agent cannot be called: its schema does not accept what an earlier generation has given it. */
  #unfitCarry(): unknown {
    const { generation } = this.log.state;
    if (generation?.carry === undefined) return undefined;
    try {
      this.#carry = readCarry(this.run.agent, copyJson(generation.carry), this);
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Calls the agent function, and takes its values until it has ended, is stopped, or waits for an answer. */
  #call(context: AgentContext): void {
    try {
      const { run } = this.settings.interceptors;
      const isPlain = run === undefined || isOwn(this.log.key.tenant);
      const returned = isPlain ? this.#callAgent(context) : this.#intercept(run, context);
      if (isGenerator(returned)) this.#generator = returned;
      else this.#await(returned);
    } catch (error) {
      this.#onThrown(error);
      return;
    }
    if (this.#generator !== undefined) this.goOn(undefined);
  }

  #await(returned: unknown): void {
    this.#pending = Promise.resolve(lastStep(returned));
    if (this.isStopped) {
      this.#pending.catch(ignore);
      return;
    }
    this.run.onMove();
    this.#follow(this.#pending);
  }

  #callAgent(context: AgentContext): unknown {
    this.#stage = "called";
    return this.run.agent.fn(createdEntry(this.log.state).input, context);
  }

  #intercept(wrap: NonNullable<Interceptors["run"]>, context: AgentContext): Generator {
    const isFirst = !this.isCatchingUp && this.generation === 1;
    return new InterceptedAgent(
      (next) => wrap({ ...runInfo(this.run), isFirst }, next),
      () => this.#callAgent(context),
    );
  }

  /** Continues the agent. The `yield` at which it waits returns `sent`, such as the answer to a request that was yielded. */
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
      this.run.onMove();
      this.#follow(throwInto(this.#generator, error));
    } catch (thrown) {
      this.#onThrown(thrown);
    }
  }

  /** Takes the value, and all values after it, in a later microtask. */
  #follow(step: undefined | MaybePromise<IteratorResult<unknown>>): void {
    if (step === undefined) return;
    this.#onStep ??= contained(this, Execution.#goOnWithOf, Execution.#onThrownOf);
    whenSettled(Promise.resolve(step), this.#onStep);
  }

  /** Takes the value, and all after it that the agent gives without a promise. */
  #goOnWith(given: IteratorResult<unknown>): void {
    try {
      let step = given;
      for (;;) {
        const taken = this.#take(step);
        if (taken === "stops") return;
        if (taken !== undefined) {
          this.#goOnAfter(taken);
          return;
        }
        const next = this.#next(undefined);
        if (next === undefined || isPromise(next)) {
          this.#follow(next);
          return;
        }
        step = next;
      }
    } catch (error) {
      this.#onThrown(error);
    }
  }

  #goOnAfter(turn: Promise<void>): void {
    whenSettled(turn, contained(this, Execution.#goOnOf, Execution.#onThrownOf));
  }

  /** Lets the agent run to its next value. Undefined: it gives no value any more. */
  #next(sent: unknown): undefined | MaybePromise<IteratorResult<unknown>> {
    if (this.isStopped) return undefined;
    this.run.onMove();
    if (this.#generator !== undefined) return nextOf(this.#generator, sent);
    this.#end(null);
    return undefined;
  }

  #take(step: IteratorResult<unknown>): Taken {
    const isLast = step.done === true;
    if (isLast && step.value instanceof ContinueAsNew && !this.isStopped && this.#isOutermost) {
      this.#generator = undefined;
      this.#end(null, step.value);
      return "stops";
    }
    const hasValue = !isLast || step.value !== undefined;
    if (this.isStopped) {
      // Unwinding needs the generators that wait for this one.
      if (hasValue) inBackground(this.logger, this.#emitLast(step.value));
      return "stops";
    }
    if (isLast) {
      this.#pending = undefined;
      this.#generator = this.#outer?.pop();
    }
    return hasValue ? this.#handle(step.value) : undefined;
  }

  /** Whether what is drained is the agent itself, and no list that it gave. */
  get #isOutermost(): boolean {
    return this.#outer === undefined || this.#outer.length === 0;
  }

  /** What an earlier generation has given the agent, as a copy of its own: it may change it. Undefined in the first one. */
  get carry(): unknown {
    return this.#carry;
  }

  /** What the agent returns to begin again. Throws `invalid_argument` for what its schema does not accept. */
  continueAsNew(carry: JsonValue | undefined): ContinueAsNew {
    readCarry(this.run.agent, carry, this);
    this.#continuing = new ContinueAsNew(carry);
    return this.#continuing;
  }

  /** Only an await request is sent something back. The loop ends there: a run that waits costs no more than its log. */
  #handle(value: unknown): Taken {
    const meaning = meaningOf(value);
    switch (meaning.kind) {
      case "await":
        this.#onStep = undefined;
        this.run.onAwait(this, meaning.request);
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
    return this.#unwinding?.aborted;
  }

  get over(): boolean {
    return this.#stage === "over" || this.#stage === "continued";
  }

  /** Throws `run_cancelled` once the run has ended. */
  throwIfOver(): void {
    if (this.over) throw this.reason;
  }

  /** Why what the agent waits for fails: it is being stopped, or its run or its generation has ended. */
  get reason(): CadenzaError {
    return this.aborted ?? endedError(this.log.key.run_id, this.#stage === "continued" ? "generation" : "run");
  }

  /** Whether the agent is not to go on: it is being stopped, or through. */
  get isStopped(): boolean {
    return this.over || this.aborted !== undefined;
  }

  /** Whether the active time has no limit any more: the agent is stopped, or has failed and is being unwound. */
  get isEnding(): boolean {
    return this.over || this.#unwinding !== undefined;
  }

  /** Begins an operation whose result is recorded. */
  record(work: Work): Promise<unknown> {
    const operation = new RecordedOperation(this, work);
    this.begin(operation);
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
    if (given.isObserved || this.aborted !== undefined) return;
    if (this.over && (!isFinal(this.log.state.status) || isEnd(error))) return;
    this.#failed ??= [];
    this.#failed.push({ given, error, key: key ?? operationBehind(error) });
    if (this.#failed.length > MAX_FAILED) this.#tell(this.#failed.shift());
    // The agent may observe it in this turn.
    if (this.over)
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
    return this.run.log;
  }

  /** Of the generation that is executed: an execution does not outlive it. */
  get generation(): number {
    return generationNumber(this.log.state);
  }

  get clock(): Clock {
    return this.run.shared.clock;
  }

  /** The fields of log lines about the run. */
  get about(): AboutRun {
    return aboutRun(this.log);
  }

  get logger(): Logger {
    return this.run.shared.logger;
  }

  /**
   * Calls back when the run has its slot again. With a journal it calls back at once, so that a result takes its turn in the
   * order of the log, and the journal hands nothing over before the run has its slot.
   */
  withSlot(callback: () => void): void {
    const { journal, run } = this;
    if (journal === undefined) {
      run.withSlot(callback);
      return;
    }
    let goOn: (() => void) | undefined = ignore;
    run.withSlot(() => {
      goOn?.();
      goOn = undefined;
    });
    if (goOn !== undefined) {
      const held = journal.hold(
        new Promise((resolve) => {
          goOn = resolve;
        }),
      );
      inBackground(this.logger, held);
    }
    callback();
  }

  /** Hands over a result when the run has its slot. */
  deliverWithSlot(entry: Committed, live?: unknown): void {
    this.withSlot(() => this.deliver(entry, live));
  }

  /** The same of a decided entry, when the log has it. An entry that the log does not get is dropped. */
  deliverOnceLogged(entry: Entry, live: unknown): void {
    const committed = this.log.commit();
    if (committed === undefined) this.#deliverLogged(entry, live);
    else this.log.handOverAfter(committed, () => this.#deliverLogged(entry, live));
  }

  #deliverLogged(entry: Entry, live: unknown): void {
    const logged = standingOf(this.log, entry);
    if (logged !== undefined) this.deliverWithSlot(logged, live);
  }

  onExpired(): void {
    const { overdue } = this.log.state;
    if (overdue !== null) this.abort(overdueError(this.log.key.run_id, overdue));
  }

  /** Emits an item. Undefined: done. A promise: the queue to the store is full, wait for it. */
  emit(emission: Emission): undefined | Promise<void> {
    const { log, clock, settings } = this;
    if (this.over || isLeft(log.state, emission.source)) {
      // The agent works on after its run has ended, or a step after its generation.
      this.run.shared.figures.dropped += 1;
      return this.pace();
    }
    checkLogLength(generationLength(log.state), settings.maxLogEntries);
    checkSize(emission, settings.maxPartBytes);
    const at = clock.now();
    if (!emission.source) {
      this.#emitted += 1;
      if (this.journal !== undefined) return this.#emitWithJournal(this.journal, emission, at);
    }
    log.decide({ type: "emit", at, item: emission });
    return log.backlog >= settings.maxBacklog ? log.commit() : this.pace(at);
  }

  /**
   * A durable agent waits at the same points in each execution, whatever the time and the store, so that its branches continue
   * in the same order. It receives nothing meanwhile.
   */
  #emitWithJournal(journal: Journal, emission: Emission, at: number): undefined | Promise<void> {
    const { log, settings } = this;
    if (journal.recall(emission) === "new") log.decide({ type: "emit", at, item: emission });
    if (this.#emitted % Math.min(EMITTED_AT_ONCE, settings.maxBacklog) !== 0) return undefined;
    return journal.hold(log.backlog >= settings.maxBacklog ? log.commit() : undefined);
  }

  get settings(): ExecutionSettings {
    return this.run.shared.settings;
  }

  /**
   * The agent reports usage. The body of a step continues when its execution is replaced: what it uses counts for the
   * next execution, and is new. An agent that has not caught up reports what the log has already.
   */
  report(usage: Usage): void {
    const { execution } = this.run;
    if (execution !== undefined && execution !== this && this.run.isInStep) execution.addUsage(usage);
    else if (this.journal?.recall(usage) !== "held") this.addUsage(usage);
  }

  /** Books usage that the log does not have. */
  addUsage(usage: Usage): void {
    this.#usage = addUsage(this.#usage, usage);
    this.#onUsage();
  }

  /** Usage was reported, or the agent has caught up with what the log holds: the run may exceed its budget. */
  #onUsage(): void {
    if (this.#spending !== undefined) checkSpending(this.run);
  }

  /** Of a run with a budget. The others may have no family. */
  get #spending(): Spending | undefined {
    return createdEntry(this.log.state).budget === undefined ? undefined : this.run.family.spending;
  }

  /**
   * How many tokens of the run's budget are left: now, or for a durable agent by the results that it has received. Infinity:
   * it has none.
   */
  get tokensLeft(): number {
    const spending = this.#spending;
    if (spending === undefined) return Number.POSITIVE_INFINITY;
    return this.journal === undefined ? tokensLeft(this.run) : spending.leftFor(this, this.log.state);
  }

  /** What has been reported so far; null before the first report. */
  get usage(): Usage | null {
    return addUsage(this.log.state.usage, this.#usage);
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
    // An agent that has failed is being unwound already. The others stop before they learn what stops them.
    if (this.#unwinding === undefined) this.#unwindFor({ aborted: reason, failure: null });
    else this.#unwinding.aborted = reason;
    this.close();
    this.run.abortSignal(this);
  }

  /** Leaves the agent where it is: nothing that it does counts any more, and nothing happens to it, not even its end. */
  fence(): void {
    if (this.over) return;
    this.drop();
    this.#stage = "over";
    this.#letGo();
  }

  /** What the run waits for, for the report of `close`. */
  get waitsFor(): string {
    const { open } = this;
    return open.length === 0 ? "the agent" : open.join(", ");
  }

  /** The agent threw, or emitted an invalid value: all `finally` blocks run, and the run fails. */
  #onThrown(thrown: unknown): void {
    const error = thrown ?? new Error(String(thrown));
    if (this.isStopped) {
      this.logger.debug("The agent threw while it was being stopped.", { ...this.about, error });
      return;
    }
    const unwinding: Unwinding = { aborted: undefined, failure: error };
    if (this.#generator !== undefined) this.#unwindFor(unwinding);
    else {
      this.#unwinding = unwinding;
      this.#end(null);
    }
  }

  /** Gives other work of the process a turn of the event loop, if one is due. Undefined: it is not. */
  pace(at = this.clock.now()): undefined | Promise<void> {
    return this.run.shared.pacer.count(at);
  }

  #unwindFor(unwinding: Unwinding): void {
    this.#unwinding?.clearTimer?.();
    this.#unwinding = unwinding;
    unwinding.clearTimer = this.clock.setTimeout(() => this.#end(null, "hung"), this.settings.cancelGraceMs);
    inBackground(
      this.logger,
      this.#unwind().then(() => this.#end(null)),
    );
  }

  /** Runs the `finally` blocks, the blocks of the innermost generator first. What they emit is kept. */
  async #unwind(): Promise<void> {
    // A generator that is stopped by what it calls itself has to come to its next `yield` first.
    await undefined;
    if (this.#pending !== undefined) await this.#pending.then(ignore, ignore);
    for (let generator = this.#generator; generator !== undefined; generator = this.#outer?.pop()) {
      try {
        let step = await unwind(generator);
        while (step.done !== true && !this.over) {
          await this.#emitLast(step.value);
          step = await nextOf(generator, undefined);
        }
      } catch (error) {
        this.logger.debug("The agent threw while it was being stopped.", { ...this.about, error });
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
        if (this.over) return;
        await this.#emitLast(item);
      }
    } catch (error) {
      this.logger.debug("The agent emitted an invalid value while it was being stopped.", {
        ...this.about,
        error,
      });
    }
  }

  /** `how`: the agent has hung, or it begins again. */
  #end(thrown: unknown, how?: "hung" | ContinueAsNew): void {
    if (this.over) return;
    const isLost = how === undefined && this.#unwinding === undefined && this.#continuing !== undefined;
    const error = thrown ?? this.#unwinding?.failure ?? (isLost ? notReturned() : null);
    const left = how instanceof ContinueAsNew ? this.left : undefined;
    if (this.#stage === "called") this.journal?.end(error);
    // The journal has left an agent that ends before it has done what the log holds.
    if (this.over) return;
    this.#stage = "over";
    this.#tellFailed();
    const { log, clock, run } = this;
    const failed = error === null ? undefined : this.#whatFailed(error);
    const usage = addUsage(this.takeUsage(), this.#spending?.below ?? null);
    const next = how instanceof ContinueAsNew ? this.#decideContinue(how, usage, left) : undefined;
    if (next === undefined) log.decide({ type: "end", at: clock.now(), failure: null, ...failed, usage });
    else this.#stage = "continued";
    this.close();
    this.#letGo();
    run.abortSignal(this);
    run.onEnd();
    log.flush();
    if (how === "hung") {
      run.shared.figures.hung += 1;
      this.logger.warn("An agent did not stop in time, and was left behind.", this.about);
    }
    if (next === undefined) run.onOver();
    else run.onContinued(next);
  }

  /** The entry with which the next generation begins. Undefined: the run is being stopped. */
  #decideContinue({ carry }: ContinueAsNew, usage: Usage | null, left: ContinueCommand["left"]): Entry | undefined {
    const decision = this.log.decide({ type: "continue", at: this.clock.now(), carry, usage, left });
    return isRefusal(decision) ? undefined : decision.at(-1);
  }

  /** What is said of the error that ends the run. */
  #whatFailed(error: unknown): Failed {
    const { run } = this;
    run.onFailed(error);
    this.logger.warn("A run failed.", { ...this.about, error });
    const failure = failureOf(error, this.settings.exposeErrors);
    const key = run.durable ? operationBehind(error) : undefined;
    const cause = key !== undefined && isOfOperation(error) ? undefined : causeOf(error);
    return { failure, ...(key !== undefined && { key }), ...(cause !== undefined && { cause }) };
  }

  #tellFailed(): void {
    const failed = this.#failed;
    if (failed === undefined) return;
    this.#failed = undefined;
    for (const one of failed) this.#tell(one);
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
    this.log.activeTime?.pause();
    this.#unwinding?.clearTimer?.();
    const outermost = this.#outer?.[0] ?? this.#generator;
    outermost?.[leave]?.();
    this.#outer = undefined;
    this.#generator = undefined;
    this.#pending = undefined;
  }

  /** The agent continues with new work. */
  onCaughtUp(): void {
    this.#onUsage();
  }

  /** The active time is over. The agent is stopped when the log says so, as for the deadline of a question. */
  overrun(): void {
    const { log, clock } = this;
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
    const { log } = this;
    const decision = log.decide(command);
    if (isRefusal(decision) || decision.length === 0) return false;
    log.flush();
    this.onExpired();
    return true;
  }
}

/** Why the `finally` blocks of an agent run. */
interface Unwinding {
  /** The error with which the run was stopped, if it was. */
  aborted: CadenzaError | undefined;
  /** What the agent threw, which ends the run once it is unwound; null: nothing. */
  readonly failure: unknown;
  /** Of the grace period. */
  clearTimer?: () => void;
}

/** The work of an operation: see {@link Operation}. */
export interface Work extends Pick<Operation, "key" | "settle"> {
  /** Begins the work. `given` is the agent's promise. `before`: see {@link Operation.start}. */
  start(given: Failing, before: AttemptEntry | undefined): void;
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

  start(before: AttemptEntry | undefined): void {
    this.#work.start(this.given, before);
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

/** What follows on a value. Undefined: the next value is taken. `stops`: an answer continues it, or the run is being stopped. */
type Taken = undefined | Promise<void> | "stops";

interface FailedOperation {
  readonly given: Failing;
  readonly error: unknown;
  readonly key: string | undefined;
}

/** Whether a step of an earlier generation emits: it was left, and is still at work. */
function isLeft(state: RunState, source: PartSource | undefined): boolean {
  return source !== undefined && state.generation !== null && isOfAnother(state, source.key);
}

function endedError(run_id: string, what: "run" | "generation"): CadenzaError {
  return new CadenzaError("run_cancelled", `The ${what} has ended.`, { run_id });
}

function notReturned(): CadenzaError {
  return new CadenzaError("invalid_yield", "The agent has called continueAsNew, and has not returned what it gives.");
}

/** Whether an operation failed with {@link endedError}, since its run has ended. */
function isEnd(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "run_cancelled";
}

/** Measures how long a run is active, if that has a limit. A sub-run may be active for no longer than was left above it. */
function activeTimeOf(run: AgentRun): ActiveTime | undefined {
  const { log, agent, shared } = run;
  const { timeout_ms, parent } = createdEntry(log.state);
  const own = agent.options.timeoutMs ?? shared.settings.timeoutMs;
  const given = timeout_ms === undefined ? own : (timeout_ms ?? Number.POSITIVE_INFINITY);
  const limitMs = parent === undefined ? given : Math.min(given, own);
  return limitMs === Number.POSITIVE_INFINITY ? undefined : measured(run, limitMs);
}

function measured(run: AgentRun, limitMs: number): ActiveTime {
  const { log, shared } = run;
  return new ActiveTime({
    clock: shared.clock,
    logger: shared.logger,
    limitMs,
    recordedMs: log.state.active_ms,
    writing: () => log.writing,
    onOver: () => run.execution?.overrun(),
  });
}
