import type { Emission } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import { sameJson } from "../core/json.ts";
import type { EmittedEntry, Entry, IntentEntry, ResultEntry } from "../core/log.ts";
import type { Clock, Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import { activeMs, createdEntry } from "../core/state.ts";
import type { Usage } from "../core/usage.ts";
import { addUsage } from "../core/usage.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { MessagePart } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { AgentFunction } from "./agent.ts";
import type { AgentContext, AskOptions, Question } from "./agent-context.ts";
import type { RunLog } from "./commit.ts";
import { messageOf } from "./failure.ts";
import type { Generator } from "./generator.ts";
import { generatorOf, generatorOfItems } from "./generator.ts";
import { readMessage, textPart } from "./input.ts";
import type { OpenQuestion, QuestionsHost } from "./questions.ts";
import { expiredError, Questions, validatorOf } from "./questions.ts";
import type { Recording } from "./recording.ts";
import { isPassedOn } from "./recording.ts";
import type { Operation, Replay } from "./results.ts";
import { Results } from "./results.ts";
import type { Validated } from "./standard-schema.ts";
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
  /** Calls back when the run has its place, now or later. */
  withPlace(callback: () => void): void;
  /** Now and then another turn of the event loop is due; undefined when it is not. */
  pace(at: number): undefined | Promise<void>;
  failureOf(error: unknown): ProtocolError;
  /** Everything that was recorded has happened again: the agent goes on where it was. */
  onCaughtUp(): void;
  /** What the agent does is not what the log holds. With `final` unset the agent may still come round. Undefined: it has. */
  onDivergence(divergence: Divergence | undefined, final: boolean): void;
  /** The agent showed another text than the last time; the log wins. */
  onDifference(): void;
  /** The agent was still working after the run had ended, and what it showed was dropped. */
  onDropped(): void;
  /** The agent is through, or has been left behind. `hung`: it did not stop in time. */
  onOver(hung: boolean): void;
}

/** How the code of a durable agent differs from its log. */
export interface Divergence {
  /** What the log holds next. */
  readonly expected: string;
  /** What the agent did instead. */
  readonly asked: string;
  /** At which entry of the log: how many fit. */
  readonly position: number;
}

/** How much a durable agent shows before it waits a turn. */
const SHOWN_AT_ONCE = 64;
/** How much of a text is quoted. */
const MAX_QUOTE = 40;

/** The limits under which an agent is executed. Durations are in milliseconds. */
export interface ExecutionSettings {
  readonly timeoutMs: number;
  readonly awaitTimeoutMs: number;
  readonly cancelGraceMs: number;
  readonly maxLogEntries: number;
  readonly maxPartBytes: number;
  readonly maxBacklog: number;
}

/**
 * One agent at work on one run: a single loop over a generator, whatever form the agent function has. Everything that
 * the agent does becomes a command to the log; everything that happens to it comes as an entry of the log.
 */
export class Execution implements QuestionsHost {
  readonly #host: ExecutionHost;
  #generator: Generator | undefined;
  /** The generators that wait while one that they gave is drained. */
  #outer: Generator[] | undefined;
  #results: Results | undefined;
  #questions: Questions | undefined;
  /** What the log holds of earlier executions, until all of it has happened again. */
  readonly #recording: Recording | undefined;
  /** What the agent showed for the first time before it had caught up. */
  #early: Emission[] | undefined;
  /** Whether the agent itself has left no message open. */
  #hasClosed = true;
  #time = 0;
  #aborted: CadenzaError | undefined;
  /** What ends the run once the agent is unwound; null: nothing went wrong. */
  #failure: unknown = null;
  #over = false;
  #emitted = 0;
  #usage: Usage | null = null;
  #clearTimeout: (() => void) | undefined;
  #clearGrace: (() => void) | undefined;

  /** With a recording the agent is run again, up to where it was. */
  constructor(host: ExecutionHost, recording?: Recording) {
    this.#host = host;
    this.#recording = recording;
  }

  /** Calls the agent. Never throws: what the agent throws fails its run. */
  start(): void {
    const { log, clock } = this.#host;
    this.#time = this.#recording?.startedAt ?? clock.now();
    if (this.#recording === undefined) {
      log.decide({ type: "start", at: this.#time });
      this.#armTimeout();
    }
    void this.#drive(undefined, true);
    if (this.#recording !== undefined) this.results.advance();
  }

  /** The error with which the run was stopped, if it was. */
  get aborted(): CadenzaError | undefined {
    return this.#aborted;
  }

  get over(): boolean {
    return this.#over;
  }

  /** Whether the agent has had its turn with all that has happened to it. */
  get isIdle(): boolean {
    return this.#results === undefined || this.#results.isIdle;
  }

  get results(): Results {
    if (this.#results === undefined) {
      this.#results = new Results(this.#host.clock, this.#host.durable, this.#replay());
      // An agent that goes on after its end is told so by whatever it asks for.
      if (this.#over) this.#results.close(() => endedError(this.#host.log.key.run_id));
    }
    return this.#results;
  }

  /** The time as a durable agent sees it: that of the last thing that happened to it. */
  get time(): number {
    return this.#time;
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
    return this.#recording?.intent(key);
  }

  get questions(): Questions {
    this.#questions ??= new Questions(this);
    return this.#questions;
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

  /** Goes on when the run has its place again. */
  withPlace(callback: () => void): void {
    if (!this.#host.durable) {
      this.#host.withPlace(callback);
      return;
    }
    // For a durable agent the result takes its place in the order of the log at once, and is handed over later.
    let goOn: (() => void) | undefined = ignore;
    this.#host.withPlace(() => {
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
    this.abort(expiredError(this.log.key.run_id, this.log.state.overdue?.await_id ?? ""));
  }

  /** Shows something. Undefined: done. A promise: the queue to the store is full, wait for it. */
  show(emission: Emission): undefined | Promise<void> {
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
    const isRepeated = this.#recording !== undefined && this.#showAgain(emission, this.#recording);
    if (!isRepeated) log.decide({ type: "emit", at, item: emission });
    if (this.#host.durable) return this.#waitAsBefore();
    return log.backlog >= settings.maxBacklog ? log.commit() : this.#host.pace(at);
  }

  /**
   * A durable agent that shows something waits at the same points each time that it is run, whatever the time and the
   * store: what it does side by side goes on in the same order then. It is handed nothing meanwhile.
   */
  #waitAsBefore(): undefined | Promise<void> {
    const { log, clock, settings } = this.#host;
    if (this.#emitted % Math.min(SHOWN_AT_ONCE, settings.maxBacklog) !== 0) return undefined;
    const room = log.backlog >= settings.maxBacklog ? log.commit() : undefined;
    return this.results.holdUntil(room ?? clock.turn());
  }

  /** Asks the client; the promise is the answer. It is observed: an agent that drops it does no harm. */
  ask(question: Question, options: AskOptions<unknown> = {}): Promise<unknown> {
    const { schema, timeoutMs, default: fallback } = options;
    const promise = new Promise((resolve, reject) => {
      const key = this.results.keyFor("ask");
      const parts = withSchema(questionParts(question), schema === undefined ? undefined : jsonSchemaOf(schema), key);
      this.#ask(new Ask(this, key, parts, validatorOf(schema), timeoutMs, fallback, this.#emitted, resolve, reject));
    });
    promise.catch(ignore);
    return promise;
  }

  /** The agent waits for an answer: its active time stands still. */
  onAsk(question: OpenQuestion): void {
    this.#clearTimeout?.();
    this.questions.ask(question);
  }

  get awaitTimeoutMs(): number {
    return this.#host.settings.awaitTimeoutMs;
  }

  /** Something happens to the agent, as the entry says: for a durable one it is this late now. */
  onAnswer(entry: ResultEntry): void {
    this.#time = entry.at;
    this.#recording?.passUsage(entry);
  }

  /** An answer that the log holds is none to the question as it is asked now. */
  onUnfitAnswer(key: string): void {
    const position = this.#recording?.begun.get(key) ?? 0;
    this.#diverge({ expected: `an answer to ${key} that fits`, asked: `${key} with another schema`, position });
  }

  /** Books usage. An agent that has not caught up reports what the log has already. */
  addUsage(usage: Usage): void {
    if (this.#recording !== undefined && this.results.isReplaying && this.#recording.takeUsage(usage)) return;
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

  /** Reads an answer to the question that is shown. An agent that is run again has to ask it first. */
  validate(answer: AwaitResume): MaybePromise<Validated | undefined> {
    if (this.#over) return undefined;
    const { shown } = this.questions;
    return shown === undefined
      ? this.questions.expected().then((question) => question?.validate(answer))
      : shown.validate(answer);
  }

  /** The answer to the question that is shown is committed. */
  answered(entry: Entry, value: unknown): void {
    this.questions.answered(entry, value);
  }

  /** Stops the agent: its signal aborts, what it waits for rejects, its `finally` blocks run. What takes longer than the grace period is left behind. */
  abort(reason: CadenzaError): void {
    if (this.#aborted !== undefined || this.#over) return;
    this.#aborted = reason;
    this.#clearTimeout?.();
    this.#questions?.close();
    this.results.close(() => reason);
    this.#host.abortSignal(() => reason);
    this.#beginUnwinding();
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

  /** Calls the agent, and takes one value after the other until it is through, is stopped, or waits for an answer. */
  async #drive(first: unknown, isCall: boolean): Promise<void> {
    try {
      if (isCall) this.#generator = this.#call();
      let sent = first;
      while (this.#generator !== undefined) {
        const step = await this.#generator.next(sent);
        sent = undefined;
        const isLast = step.done === true;
        if (this.#aborted !== undefined || this.#over) {
          // Whoever unwinds the agent needs the generators that wait for this one.
          if (!isLast || step.value !== undefined) await this.#showLast(step.value);
          return;
        }
        if (isLast) this.#generator = this.#outer?.pop();
        if (!isLast || step.value !== undefined) {
          const handled = this.#handle(step.value);
          if (handled === "waits") return;
          if (handled !== undefined) await handled;
        }
        if (this.#aborted !== undefined || this.#over) return;
      }
    } catch (error) {
      this.#fail(error ?? new Error(String(error)));
      return;
    }
    if (this.#aborted === undefined) this.#end(null, false);
  }

  /** The agent threw, or showed what means nothing: its `finally` blocks run, those of outer generators too, and the run fails. */
  #fail(error: unknown): void {
    if (this.#aborted !== undefined || this.#over) {
      this.#host.logger.debug("The agent threw while it was being stopped.", { error });
      return;
    }
    this.#failure = error;
    if (this.#generator === undefined) this.#end(null, false);
    else this.#beginUnwinding();
  }

  #beginUnwinding(): void {
    if (this.#clearGrace !== undefined) return;
    this.#clearGrace = this.#host.clock.setTimeout(() => this.#end(null, true), this.#host.settings.cancelGraceMs);
    void this.#unwind();
  }

  #call(): Generator {
    const { input } = createdEntry(this.log.state);
    return generatorOf(this.#host.fn(input, this.#host.contextFor(this)));
  }

  /** What is sent back is undefined, always, except to a request. The loop ends there, and the answer begins it again: a run that waits costs no more than its log. */
  #handle(value: unknown): undefined | Promise<void> | "waits" {
    const meaning = meaningOf(value);
    switch (meaning.kind) {
      case "await":
        if (this.#aborted !== undefined || this.#over) return undefined;
        this.#awaitMessage(meaning.request);
        return "waits";
      case "items":
        if (this.#generator !== undefined) {
          this.#outer ??= [];
          this.#outer.push(this.#generator);
        }
        this.#generator = generatorOfItems(meaning.iterable);
        return this.#host.pace(this.#host.clock.now());
      default:
        return this.show(meaning);
    }
  }

  #awaitMessage({ message, timeoutMs, default: fallback }: AwaitYield): void {
    const key = this.results.keyFor("await");
    this.#ask(new Ask(this, key, questionParts(message), asItCame, timeoutMs, fallback, this.#emitted));
  }

  #ask(ask: Ask): void {
    this.#compareQuestion(ask);
    this.results.perform(ask);
  }

  /** The answer to a request that was yielded: `yield` gives it. */
  goOn(sent: unknown): void {
    void this.#drive(sent, false);
  }

  /** Runs the `finally` blocks, those of the innermost generator first. What they show is kept. */
  async #unwind(): Promise<void> {
    // A generator that is stopped by what it calls itself has to come to its next `yield` first.
    await undefined;
    for (let generator = this.#generator; generator !== undefined; generator = this.#outer?.pop()) {
      try {
        let step = await generator.unwind();
        while (step.done !== true && !this.#over) {
          await this.#showLast(step.value);
          step = await generator.next(undefined);
        }
      } catch (error) {
        this.#host.logger.debug("The agent threw while it was being stopped.", { error });
      }
    }
    this.#end(null, false);
  }

  /** Keeps what a `finally` block shows; what means nothing, or asks, is passed over. */
  async #showLast(value: unknown): Promise<void> {
    try {
      const meaning = meaningOf(value);
      if (meaning.kind !== "await" && meaning.kind !== "items") await this.show(meaning);
      else await this.#host.pace(this.#host.clock.now());
      if (meaning.kind !== "items") return;
      for await (const item of meaning.iterable) {
        if (this.#over) return;
        await this.#showLast(item);
      }
    } catch (error) {
      this.#host.logger.debug("The agent showed something invalid while it was being stopped.", { error });
    }
  }

  #end(thrown: unknown, hung: boolean): void {
    if (this.#over) return;
    const error = thrown ?? this.#failure;
    if (this.#aborted === undefined && this.#endsEarly(error)) return;
    this.#showEarly();
    this.#over = true;
    const { log, clock, failureOf } = this.#host;
    const failure = error === null ? null : failureOf.call(this.#host, error);
    log.decide({ type: "end", at: clock.now(), failure, usage: this.takeUsage() });
    const reason = (): CadenzaError => this.#aborted ?? endedError(log.key.run_id);
    this.#results?.close(reason);
    this.#letGo();
    this.#host.abortSignal(reason);
    log.flush();
    this.#host.onOver(hung);
  }

  #letGo(): void {
    this.#clearTimeout?.();
    this.#clearGrace?.();
    this.#questions?.close();
    this.#outer = undefined;
    this.#generator = undefined;
  }

  #replay(): Replay | undefined {
    const recording = this.#recording;
    if (recording === undefined) return undefined;
    return {
      results: recording.results,
      begun: recording.begun,
      shown: this.#shownToAgent,
      unshown: () => {
        const next = recording.nextEmission;
        if (next === undefined || next.wasStopped) return undefined;
        return { what: describeEmission(next.entry), position: next.position };
      },
      onCaughtUp: () => this.#caughtUp(),
      onStall: (missing, asked) =>
        this.#host.onDivergence(
          missing && {
            expected: missing.what,
            asked: asked.length === 0 ? "nothing" : asked.join(", "),
            position: missing.position,
          },
          false,
        ),
    };
  }

  /** The question that the agent itself asks; one of a sub-run is none of its. */
  get #shownToAgent(): string | undefined {
    const shown = this.#host.log.state.shown?.request.await_id;
    return shown === undefined || isPassedOn(shown) ? undefined : shown;
  }

  #caughtUp(): void {
    this.#showEarly();
    this.#questions?.onCaughtUp();
    if (this.log.state.shown === null) this.#armTimeout();
    this.#host.onCaughtUp();
  }

  #showEarly(): void {
    const early = this.#early ?? [];
    this.#early = undefined;
    for (const item of early) this.log.decide({ type: "emit", at: this.clock.now(), item });
  }

  /** Compares what the agent shows with what it showed at this point the last time. False: there was no last time. */
  #showAgain(emission: Emission, recording: Recording): boolean {
    const next = recording.nextEmission;
    const { isReplaying } = this.results;
    const hadClosed = this.#hasClosed;
    if (emission.kind !== "generic") this.#hasClosed = emission.kind !== "part";
    // What a stopped agent showed on its way out is no measure for what it shows on its way there.
    if (next === undefined || (isReplaying && next.wasStopped && !isSameEmission(next.entry, emission))) {
      if (!isReplaying) return false;
      // An agent that was stopped may come further than the last time: that has not happened.
      if (recording.isStopped) return true;
      // There was nothing to close the last time, which is in no log.
      if (emission.kind === "close" && hadClosed) return true;
      this.#early ??= [];
      this.#early.push(emission);
      return true;
    }
    const { entry, position } = next;
    // There was nothing to close the last time.
    if (emission.kind === "close" && entry.kind !== "close") return true;
    if (entry.kind !== emission.kind) {
      this.#diverge({ expected: describeEmission(entry), asked: describeEmission(emission), position });
      return true;
    }
    if (!isSameEmission(entry, emission)) this.#host.onDifference();
    recording.skipEmission();
    this.results.advance();
    return true;
  }

  #compareQuestion({ key, emitted }: OpenQuestion): void {
    const recorded = this.#recording?.awaited(key);
    if (recorded === undefined || recorded.emitted === emitted) return;
    const position = this.#recording?.begun.get(key) ?? 0;
    const { missing } = this.results;
    if (missing !== undefined && missing.position < position)
      this.#diverge({ expected: missing.what, asked: key, position: missing.position });
    else
      this.#diverge({
        expected: `${key} after ${recorded.emitted} values shown`,
        asked: `${key} after ${emitted}`,
        position,
      });
  }

  /** Whether the agent ends although the log holds more. */
  #endsEarly(error: unknown): boolean {
    const recording = this.#recording;
    if (recording === undefined) return false;
    const { missing } = this.results;
    const next = recording.nextEmission;
    if (missing === undefined && next === undefined) return false;
    this.#diverge({
      expected: missing?.what ?? (next === undefined ? "" : describeEmission(next.entry)),
      asked: error === null ? "the end" : `the end, with the error: ${messageOf(error)}`,
      position: missing?.position ?? next?.position ?? 0,
    });
    return true;
  }

  #diverge(divergence: Divergence): void {
    this.fence();
    this.#host.onDivergence(divergence, true);
  }

  /** Active time is limited: the clock runs while the agent works, and stands while the run waits for an answer. */
  #armTimeout(): void {
    const { log, clock, settings } = this.#host;
    if (settings.timeoutMs === Number.POSITIVE_INFINITY) return;
    this.#clearTimeout?.();
    this.#clearTimeout = clock.setTimeout(
      () => this.#overrun(),
      Math.max(0, settings.timeoutMs - activeMs(log.state, clock.now())),
    );
  }

  #overrun(): void {
    const { log, clock } = this.#host;
    const decision = log.decide({ type: "overrun", at: clock.now() });
    if (isRefusal(decision) || decision.length === 0) return;
    log.flush();
    this.abort(timeoutError(log.key.run_id));
  }
}

/** The error with which an agent is stopped that has been active for too long. */
export function timeoutError(runId: string): CadenzaError {
  const message = "The run was active for longer than its time-out allows.";
  return new CadenzaError("run_timeout", message, { run_id: runId });
}

/** The work of an operation: see {@link Operation}. */
export type Work = Pick<Operation, "key" | "start" | "settle">;

/** A question as an operation. Without `resolve` it is a request that was yielded, and its answer goes back into the loop. */
class Ask implements Operation, OpenQuestion {
  readonly key: string;
  readonly parts: readonly MessagePart[];
  readonly validate: (answer: AwaitResume) => MaybePromise<Validated>;
  readonly timeoutMs: number;
  readonly emitted: number;
  readonly #execution: Execution;
  readonly #fallback: unknown;
  readonly #resolve: ((value: unknown) => void) | undefined;
  readonly #reject: ((error: unknown) => void) | undefined;

  constructor(
    execution: Execution,
    key: string,
    parts: readonly MessagePart[],
    validate: (answer: AwaitResume) => MaybePromise<Validated>,
    timeoutMs: number | undefined,
    fallback: unknown,
    emitted: number,
    resolve?: (value: unknown) => void,
    reject?: (error: unknown) => void,
  ) {
    this.#execution = execution;
    this.key = key;
    this.parts = parts;
    this.validate = validate;
    this.timeoutMs = timeoutMs ?? execution.awaitTimeoutMs;
    this.#fallback = fallback;
    this.emitted = emitted;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get hasDefault(): boolean {
    return this.#fallback !== undefined;
  }

  start(): void {
    this.#execution.onAsk(this);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    this.#execution.onAnswer(entry);
    if (entry.type === "timed-out") return this.#fallback;
    if (live !== undefined) return live;
    if (entry.type !== "resumed") throw new TypeError(`${entry.type} is no answer`);
    return this.#settled(entry.answer);
  }

  /** An answer that is read from the log again. */
  async #settled(answer: AwaitResume): Promise<unknown> {
    const outcome = await this.validate(answer);
    if ("value" in outcome) return outcome.value;
    this.#execution.onUnfitAnswer(this.key);
    return new Promise(ignore);
  }

  resolve(value: unknown): void {
    if (this.#resolve === undefined) this.#execution.goOn(value);
    else this.#resolve(value);
  }

  reject(error: unknown): void {
    this.#reject?.(error);
  }
}

function asItCame(answer: AwaitResume): Validated {
  return { value: answer };
}

function questionParts(question: Question): readonly MessagePart[] {
  return typeof question === "string" ? [textPart(question)] : readMessage("question", question).parts;
}

/** The schema of the answer travels as a part of the question, since clients drop what they do not know of the request itself. */
function withSchema(
  parts: readonly MessagePart[],
  schema: JsonObject | undefined,
  key: string,
): readonly MessagePart[] {
  if (schema === undefined) return parts;
  const content = JSON.stringify(schema);
  return [...parts, { content_type: "application/schema+json", content, content_encoding: "plain", await_id: key }];
}

function endedError(runId: string): CadenzaError {
  return new CadenzaError("run_cancelled", "The run has ended.", { run_id: runId });
}

/** What was shown, in words. */
function describeEmission(shown: Emission | EmittedEntry): string {
  switch (shown.kind) {
    case "part": {
      const { content_type, content } = shown.part;
      if (content === undefined || !content_type.startsWith("text/")) return `a part of type ${content_type}`;
      return `the text ${JSON.stringify(content.length > MAX_QUOTE ? `${content.slice(0, MAX_QUOTE)}…` : content)}`;
    }
    case "message":
      return "a message";
    case "generic":
      return "an object";
    case "close":
      return "the end of a message";
  }
}

function isSameEmission(entry: EmittedEntry, emission: Emission): boolean {
  switch (emission.kind) {
    case "part":
      return entry.kind === "part" && sameJson(entry.part, emission.part);
    case "message":
      return entry.kind === "message" && sameJson(entry.message.parts, emission.message.parts);
    case "generic":
      return entry.kind === "generic" && sameJson(entry.generic, emission.generic);
    case "close":
      return true;
  }
}

function limitError(limit: string, message: string): CadenzaError {
  return new CadenzaError("limit_reached", message, { limit });
}

/** A string has at most three bytes for each of its UTF-16 units, so that almost none needs counting. */
function checkSize(emission: Emission, maxBytes: number): void {
  switch (emission.kind) {
    case "part":
      checkPart(emission.part, maxBytes);
      break;
    case "message":
      for (const part of emission.message.parts) checkPart(part, maxBytes);
      break;
    case "generic":
      if (utf8Length(JSON.stringify(emission.generic)) > maxBytes)
        throw limitError("maxPartBytes", `An object is larger than ${maxBytes} bytes.`);
      break;
    case "close":
      break;
  }
}

function checkPart({ content = "", content_url = "" }: MessagePart, maxBytes: number): void {
  const text = content.length > content_url.length ? content : content_url;
  if (3 * text.length > maxBytes && utf8Length(text) > maxBytes)
    throw limitError("maxPartBytes", `A part is larger than ${maxBytes} bytes.`);
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}
