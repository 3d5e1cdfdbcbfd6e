import type { Emission } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Entry, IntentEntry, ResultEntry } from "../core/log.ts";
import { overdueError } from "../core/overdue.ts";
import type { Clock, Logger, Mismatch } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import { activeMs, createdEntry } from "../core/state.ts";
import type { Usage } from "../core/usage.ts";
import { addUsage } from "../core/usage.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { AgentFunction } from "./agent.ts";
import type { AgentContext, AskOptions, Question } from "./agent-context.ts";
import type { AskHost } from "./ask.ts";
import { AskedQuestion, checkAskOptions, questionParts, withSchema, YieldedQuestion } from "./ask.ts";
import type { Generator } from "./generator.ts";
import { generatorOf, generatorOfItems, nextOf, unwind } from "./generator.ts";
import type { History } from "./history.ts";
import { checkSize, limitError } from "./part-size.ts";
import type { OpenQuestion, QuestionsHost } from "./questions.ts";
import { Questions } from "./questions.ts";
import type { ReplayCheckHost } from "./replay-check.ts";
import { ReplayCheck } from "./replay-check.ts";
import type { Operation } from "./results.ts";
import { Results } from "./results.ts";
import type { RunLog } from "./run-log.ts";
import { jsonSchemaOf } from "./standard-schema.ts";
import type { AwaitYield } from "./yields.ts";
import { meaningOf } from "./yields.ts";

/** What an execution needs from the run that it executes. */
export interface ExecutionHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly fn: AgentFunction;
  readonly durable: boolean;
  readonly settings: ExecutionSettings;
  /** One signal for the run, whichever of its executions asks for it. */
  readonly signal: AbortSignal;
  abortSignal(reason: () => CadenzaError): void;
  readonly principal: JsonValue;
  /** Makes what the agent is called with. */
  contextFor(execution: Execution): AgentContext;
  /** Calls back when the run has its slot, now or later. */
  withSlot(callback: () => void): void;
  /** The agent is about to be given something: it goes on. */
  onMove(): void;
  /** Now and then another turn of the event loop is due; undefined when it is not. */
  pace(at: number): undefined | Promise<void>;
  failureOf(error: unknown): ProtocolError;
  /** The replay is over: the agent goes on with new work. */
  onCaughtUp(): void;
  /** What the agent does is not what the log holds. With `final` unset the agent may still come round. Undefined: it has. */
  onMismatch(mismatch: Mismatch | undefined, final: boolean): void;
  /** The agent emitted another text than its history holds. The history counts. */
  onDifference(): void;
  /** The agent was still working after the run had ended, and what it emitted was dropped. */
  onDropped(): void;
  /** The run is about to end: its sub-runs end first. */
  onEnd(): void;
  /** The agent is through, or has been left behind. `hung`: it did not stop in time. */
  onOver(hung: boolean): void;
}

/** How many items a durable agent emits before it waits a turn. */
const EMITTED_AT_ONCE = 64;
/** The limits under which an agent is executed. Durations are in milliseconds. */
export interface ExecutionSettings {
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly maxLogEntries: number;
  readonly maxPartBytes: number;
  readonly maxBacklog: number;
  /** How long an agent that is run again may take to ask for what its log holds next. */
  readonly stallMs: number;
}

/**
 * One agent at work on one run: a single loop over a generator, whatever form the agent function has. Everything that
 * the agent does becomes a command to the log; everything that happens to it comes as an entry of the log.
 */
export class Execution implements QuestionsHost, AskHost, ReplayCheckHost {
  readonly #host: ExecutionHost;
  #generator: Generator | undefined;
  /** The generators that wait while one that they gave is drained. */
  #outer: Generator[] | undefined;
  #results: Results | undefined;
  #questions: Questions | undefined;
  /** Compares the agent with what the log holds of an earlier execution. */
  readonly #replay: ReplayCheck | undefined;
  #aborted: CadenzaError | undefined;
  /** What ends the run once the agent is unwound; null: nothing went wrong. */
  #failure: unknown = null;
  #over = false;
  #emitted = 0;
  #usage: Usage | null = null;
  /** Of the time-out, and then of the grace period. */
  #clearTimer: (() => void) | undefined;

  /** With a history the agent is replayed first. */
  constructor(host: ExecutionHost, history?: History) {
    this.#host = host;
    this.#replay = history && new ReplayCheck(this, history);
  }

  /** Calls the agent. Never throws: what the agent throws fails its run. */
  start(): void {
    const { log, clock } = this.#host;
    if (this.#replay === undefined) {
      log.decide({ type: "start", at: clock.now() });
      this.#armTimeout();
    }
    this.#call();
    if (this.#replay !== undefined) this.results.advance();
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

  /** Whether the agent has had its turn with all that has happened to it. */
  get isIdle(): boolean {
    return this.#results === undefined || this.#results.isIdle;
  }

  get results(): Results {
    if (this.#results === undefined) {
      this.#results = new Results(
        this.#host.clock,
        this.#host.durable,
        () => this.#host.onMove(),
        this.#replay?.replay,
      );
      // An agent that goes on after its end is told so by whatever it asks for.
      if (this.#over) this.#results.close(() => endedError(this.#host.log.key.run_id));
    }
    return this.#results;
  }

  /** The time as a durable agent sees it: that of the last thing that happened to it. */
  get time(): number {
    return this.#results?.time ?? this.log.state.started?.at ?? 0;
  }

  /** Whether the agent is still on its way through its log. */
  get isReplaying(): boolean {
    return this.#results?.isReplaying === true || (this.#results === undefined && this.#replay !== undefined);
  }

  /** Begins a recorded operation. The promise is observed: an agent that drops it does no harm. */
  perform({ key, start, settle }: Work): Promise<unknown> {
    const promise = new Promise((resolve, reject) => {
      this.results.perform({
        key,
        start,
        settle: (entry, live) => {
          this.onAnswer(entry);
          return settle(entry, live);
        },
        resolve,
        reject,
      });
    });
    promise.catch(ignore);
    return promise;
  }

  /** The last attempt at an operation that has no result, if it was begun before. */
  intent(key: string): IntentEntry | undefined {
    return this.#replay?.intent(key);
  }

  get questions(): Questions {
    this.#questions ??= new Questions(this);
    return this.#questions;
  }

  /** See {@link Questions.onTaken}. */
  onTaken(): void {
    this.#questions?.onTaken();
  }

  get log(): RunLog {
    return this.#host.log;
  }

  get clock(): Clock {
    return this.#host.clock;
  }

  /** Resolves after a turn of the event loop, when the agent has had its turn with all that has happened to it. */
  async settled(): Promise<void> {
    await this.clock.turn();
    while (!this.isIdle && !this.#over) {
      await this.results.idle();
      await this.clock.turn();
    }
  }

  /** Hands a result to the operation that waits for it. */
  deliver(entry: Entry, live?: unknown): void {
    this.#armTimeout();
    this.results.deliver(entry, live);
  }

  /** Goes on when the run has its slot again. */
  withSlot(callback: () => void): void {
    if (!this.#host.durable) {
      this.#host.withSlot(callback);
      return;
    }
    // For a durable agent the result takes its turn in the order of the log at once, and is handed over later.
    let goOn: (() => void) | undefined = ignore;
    this.#host.withSlot(() => {
      goOn?.();
      goOn = undefined;
    });
    if (goOn !== undefined) {
      void this.results.holdUntil(
        new Promise((resolve) => {
          goOn = resolve;
        }),
      );
    }
    callback();
  }

  onExpired(): void {
    this.abort(overdueError(this.log.key.run_id, this.log.state.overdue?.await_id ?? null));
  }

  /** Emits an item. Undefined: done. A promise: the queue to the store is full, wait for it. */
  emit(emission: Emission): undefined | Promise<void> {
    const { log, clock, settings } = this.#host;
    if (this.#over) {
      this.#host.onDropped();
      return this.#host.pace(clock.now());
    }
    if (log.state.position >= settings.maxLogEntries)
      throw limitError("maxLogEntries", `The run's log has reached its limit of ${settings.maxLogEntries} entries.`);
    checkSize(emission, settings.maxPartBytes);
    const at = clock.now();
    if (emission.source) {
      log.decide({ type: "emit", at, item: emission });
      return log.backlog >= settings.maxBacklog ? log.commit() : this.#host.pace(at);
    }
    this.#emitted += 1;
    if (this.#replay?.emitAgain(emission) !== true) log.decide({ type: "emit", at, item: emission });
    if (this.#host.durable) return this.#waitAsBefore();
    return log.backlog >= settings.maxBacklog ? log.commit() : this.#host.pace(at);
  }

  /**
   * A durable agent that emits waits at the same points in each replay, whatever the time and the
   * store: what it does side by side goes on in the same order then. It is handed nothing meanwhile.
   */
  #waitAsBefore(): undefined | Promise<void> {
    const { log, clock, settings } = this.#host;
    if (this.#emitted % Math.min(EMITTED_AT_ONCE, settings.maxBacklog) !== 0) return undefined;
    const accepted = log.backlog >= settings.maxBacklog ? log.commit() : undefined;
    return this.results.holdUntil(accepted ?? clock.turn());
  }

  /** Asks the client; the promise is the answer. It is observed: an agent that drops it does no harm. */
  ask(question: Question, options: AskOptions<unknown> | undefined): Promise<unknown> {
    try {
      if (options !== undefined) checkAskOptions(options);
      const { schema, timeoutMs, default: fallback } = options ?? {};
      const key = this.results.keyFor("ask");
      const parts = withSchema(questionParts(question), schema === undefined ? undefined : jsonSchemaOf(schema), key);
      const ask = new AskedQuestion(this, key, parts, schema, timeoutMs, fallback, this.#emitted);
      this.#ask(ask);
      return ask.answer;
    } catch (error) {
      const refused = Promise.reject(error);
      refused.catch(ignore);
      return refused;
    }
  }

  /** The agent waits for an answer: its active time stands still. */
  onAsk(question: OpenQuestion): void {
    this.#clearTimer?.();
    this.questions.ask(question);
  }

  get stallMs(): number {
    return this.#host.settings.stallMs;
  }

  get awaitTimeoutMs(): number {
    return this.#host.settings.awaitTimeoutMs;
  }

  /** Something happens to the agent, as the entry says. */
  onAnswer(entry: ResultEntry): void {
    this.#replay?.passUsage(entry);
  }

  onUnfitAnswer(key: string): void {
    this.#replay?.onUnfitAnswer(key);
  }

  /** Books usage. An agent that has not caught up reports what the log has already. */
  addUsage(usage: Usage): void {
    if (this.#replay?.takeUsage(usage) === true) return;
    this.#usage = addUsage(this.#usage, usage);
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

  /** The question under this id. An agent that is run again has to ask it first. Undefined: it does not ask it. */
  question(awaitId: string): MaybePromise<OpenQuestion | undefined> {
    return this.#over ? undefined : this.questions.find(awaitId);
  }

  /** The answer to the question that is shown is committed. */
  answered(entry: Entry, value: unknown): void {
    this.questions.answered(entry, value);
  }

  /** Stops the agent: its signal aborts, what it waits for rejects, its `finally` blocks run. What takes longer than the grace period is left behind. */
  abort(reason: CadenzaError): void {
    if (this.isStopped) return;
    this.#aborted = reason;
    this.#questions?.close();
    // An agent that has failed is being unwound already. The others are told to stop before they learn what stops them.
    if (this.#failure === null) this.#beginUnwinding();
    this.results.close(() => reason);
    this.#host.abortSignal(() => reason);
  }

  /** Leaves the agent where it is: nothing that it does counts any more, and nothing happens to it, not even its end. */
  fence(): void {
    if (this.#over) return;
    this.results.drop();
    this.#over = true;
    this.#letGo();
  }

  /** What the run waits for, for the report of `close`. */
  get waitsFor(): string {
    const open = this.#results?.open ?? [];
    return open.length === 0 ? "the agent" : open.join(", ");
  }

  #call(): void {
    const { input } = createdEntry(this.log.state);
    try {
      this.#generator = generatorOf(this.#host.fn(input, this.#host.contextFor(this)));
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#drive(undefined);
  }

  /**
   * Takes one value of the agent after the other until it is through, is stopped, or waits for an answer. Not an async function:
   * its frame would be a part of what the run takes for as long as the agent waits.
   */
  #drive(sent: unknown): void {
    try {
      const step = this.#next(sent);
      if (step === undefined) return;
      Promise.resolve(step).then(
        (given) => this.#goOnWith(given),
        (error: unknown) => this.#fail(error),
      );
    } catch (error) {
      this.#fail(error);
    }
  }

  #goOnWith(step: IteratorResult<unknown>): void {
    try {
      const taken = this.#take(step);
      if (taken === undefined) this.#drive(undefined);
      else if (taken !== "stops")
        taken.then(
          () => this.#drive(undefined),
          (error: unknown) => this.#fail(error),
        );
    } catch (error) {
      this.#fail(error);
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
      if (hasValue) void this.#emitLast(step.value);
      return "stops";
    }
    if (isLast) this.#generator = this.#outer?.pop();
    return hasValue ? this.#handle(step.value) : undefined;
  }

  /** The agent threw, or emitted what means nothing: its `finally` blocks run, those of outer generators too, and the run fails. */
  #fail(thrown: unknown): void {
    const error = thrown ?? new Error(String(thrown));
    if (this.isStopped) {
      this.#host.logger.debug("The agent threw while it was being stopped.", { error });
      return;
    }
    this.#failure = error;
    if (this.#generator === undefined) this.#end(null, false);
    else this.#beginUnwinding();
  }

  #beginUnwinding(): void {
    this.#clearTimer?.();
    this.#clearTimer = this.#host.clock.setTimeout(() => this.#end(null, true), this.#host.settings.cancelGraceMs);
    void this.#unwind();
  }

  /** What is sent back is undefined, always, except to a request. The loop ends there, and the answer begins it again: a run that waits costs no more than its log. */
  #handle(value: unknown): Taken {
    const meaning = meaningOf(value);
    switch (meaning.kind) {
      case "await":
        this.#awaitMessage(meaning.request);
        return "stops";
      case "items":
        if (this.#generator !== undefined) {
          this.#outer ??= [];
          this.#outer.push(this.#generator);
        }
        this.#generator = generatorOfItems(meaning.iterable);
        return this.#host.pace(this.#host.clock.now());
      default:
        return this.emit(meaning);
    }
  }

  #awaitMessage({ message, timeoutMs, default: fallback }: AwaitYield): void {
    const key = this.results.keyFor("await");
    this.#ask(new YieldedQuestion(this, key, questionParts(message), timeoutMs, fallback, this.#emitted));
  }

  #ask(ask: YieldedQuestion | AskedQuestion): void {
    this.#replay?.askAgain(ask);
    this.results.perform(ask);
  }

  /** The answer to a request that was yielded: `yield` gives it. */
  goOn(sent: unknown): void {
    this.#drive(sent);
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
        this.#host.logger.debug("The agent threw while it was being stopped.", { error });
      }
    }
    this.#end(null, false);
  }

  /** Keeps what a `finally` block emits. What means nothing, or asks, is passed over. */
  async #emitLast(value: unknown): Promise<void> {
    try {
      const meaning = meaningOf(value);
      if (meaning.kind !== "await" && meaning.kind !== "items") await this.emit(meaning);
      else await this.#host.pace(this.#host.clock.now());
      if (meaning.kind !== "items") return;
      for await (const item of meaning.iterable) {
        if (this.#over) return;
        await this.#emitLast(item);
      }
    } catch (error) {
      this.#host.logger.debug("The agent emitted an invalid value while it was being stopped.", { error });
    }
  }

  #end(thrown: unknown, hung: boolean): void {
    if (this.#over) return;
    const error = thrown ?? this.#failure;
    if (this.#aborted === undefined && this.#replay?.endsEarly(error) === true) return;
    this.#replay?.emitEarly();
    this.#over = true;
    const { log, clock, failureOf } = this.#host;
    const failure = error === null ? null : failureOf.call(this.#host, error);
    log.decide({ type: "end", at: clock.now(), failure, usage: this.takeUsage() });
    const reason = (): CadenzaError => this.#aborted ?? endedError(log.key.run_id);
    this.#results?.close(reason);
    this.#letGo();
    this.#host.abortSignal(reason);
    this.#host.onEnd();
    log.flush();
    this.#host.onOver(hung);
  }

  #letGo(): void {
    this.#clearTimer?.();
    this.#questions?.close();
    this.#outer = undefined;
    this.#generator = undefined;
  }

  onCaughtUp(): void {
    this.#replay?.emitEarly();
    this.#questions?.onCaughtUp();
    if (this.log.state.shown === null) this.#armTimeout();
    this.#host.onCaughtUp();
  }

  onStall(mismatch: Mismatch | undefined): void {
    this.#host.onMismatch(mismatch, false);
  }

  onDifference(): void {
    this.#host.onDifference();
  }

  mismatch(mismatch: Mismatch): void {
    this.fence();
    this.#host.onMismatch(mismatch, true);
  }

  /** Active time is limited: the clock runs while the agent works, and stands while the run waits for an answer. */
  #armTimeout(): void {
    const { log, clock, settings } = this.#host;
    if (settings.timeoutMs === Number.POSITIVE_INFINITY) return;
    this.#clearTimer?.();
    this.#clearTimer = clock.setTimeout(
      () => this.#overrun(),
      Math.max(0, settings.timeoutMs - activeMs(log.state, clock.now())),
    );
  }

  #overrun(): void {
    const { log, clock } = this.#host;
    const decision = log.decide({ type: "overrun", at: clock.now() });
    if (isRefusal(decision) || decision.length === 0) return;
    log.flush();
    this.abort(overdueError(log.key.run_id, null));
  }
}

/** What becomes of the loop. Undefined: it goes on. A promise: it goes on then. `stops`: an answer begins it again, or the run is being stopped. */
type Taken = undefined | Promise<void> | "stops";

/** The work of an operation: see {@link Operation}. */
export type Work = Pick<Operation, "key" | "start" | "settle">;

function endedError(runId: string): CadenzaError {
  return new CadenzaError("run_cancelled", "The run has ended.", { run_id: runId });
}
