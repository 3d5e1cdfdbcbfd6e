import { aboutRun } from "../../core/about-run.ts";
import { inBackground, onceAborted } from "../../core/background.ts";
import type { AskCommand, Command } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import type { CadenzaErrorDetails } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import { takenAt } from "../../core/head.ts";
import { copyJson } from "../../core/json.ts";
import type {
  Entry,
  Growing,
  IntentEntry,
  OfferedEntry,
  QuestionKind,
  ReceivedEntry,
  ResultEntry,
  TakenEntry,
} from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { InboxMessage, RunState } from "../../core/state.ts";
import { createdEntry, isStopped, openQuestion, settledQuestion } from "../../core/state.ts";
import { LAST_TIME } from "../../core/time.ts";
import type { MessagePart } from "../../protocol/message.ts";
import type { AwaitResume } from "../../protocol/run.ts";
import { SCHEMA_TYPE } from "../../protocol/run.ts";
import type { AnswerDetails, AskOptions, MessageDetails, Question, SleepOptions } from "../agent/agent-waits.ts";
import { readAnswer, replyCommand } from "../agent/answer.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkSignal, checkText } from "../agent/check.ts";
import type { AwaitYield } from "../agent/generator.ts";
import { readItem, textPart } from "../agent/input.ts";
import type { AskInfo, AskOutcome, Interceptors } from "../agent/interceptors.ts";
import type { StandardSchema, Validate, Validated } from "../agent/standard-schema.ts";
import { isStandardSchema, jsonSchemaOf, validateAccepted, validateFirst } from "../agent/standard-schema.ts";
import { issuesText } from "../log/refusals.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import { AgentPromise } from "./agent-promise.ts";
import type { Execution } from "./execution.ts";
import type { Committed, Operation } from "./operations.ts";
import { onceCommitted, onceInLog, uncommitted, unfit } from "./operations.ts";

/**
 * An operation that waits for an event outside the run: a question, a sleep or a receive. The log holds that it waits,
 * and until when. It ends with its result, at its deadline, when its signal aborts, or with its run.
 */
abstract class Wait implements Operation {
  readonly key: string;
  protected readonly execution: Execution;
  readonly #signal: AbortSignal | undefined;
  #clearDeadline: (() => void) | undefined;
  #onRelease: (() => void)[] | undefined;
  #isEnded = false;

  constructor(execution: Execution, key: string, signal: AbortSignal | undefined) {
    this.execution = execution;
    this.key = key;
    this.#signal = signal;
  }

  start(): void {
    if (!this.isLogged && !this.begin()) return;
    this.watchDeadline();
    const signal = this.#signal;
    if (signal === undefined) return;
    const withdraw = (): void => this.finish({ type: "withdraw", at: this.execution.clock.now(), await_id: this.key });
    if (signal.aborted) withdraw();
    else this.onRelease(onceAborted(this.execution.logger, signal, withdraw));
  }

  release(): void {
    this.#clearDeadline?.();
    this.#clearDeadline = undefined;
    for (const callback of this.#onRelease ?? []) callback();
  }

  /** Calls back when the wait has its result, or the run leaves this process. */
  onRelease(callback: () => void): void {
    this.#onRelease = [...(this.#onRelease ?? []), callback];
  }

  /** The time to the deadline may be another one: the clock was set, or the store has given the run to this process. */
  measureAgain(): void {
    if (this.#clearDeadline !== undefined) this.watchDeadline();
  }

  /** Whether its end is decided. It may not be handed over yet. */
  protected get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Whether the log holds that the operation waits: an earlier execution has begun it. */
  protected abstract get isLogged(): boolean;
  /** When it waits no longer, in milliseconds since 1970. Undefined: it waits for ever. */
  protected abstract get deadline(): number | undefined;
  /** Logs that it waits. False: it does not wait. */
  protected abstract begin(): boolean;
  /** What is decided at the deadline. */
  protected abstract expiry(at: number): Command;
  /** The agent may be given the entry that ends the wait. */
  protected onEnded(entry: Committed): void {
    this.execution.withSlot(() => this.execution.deliver(entry));
  }

  abstract settle(entry: ResultEntry, live: unknown): unknown;
  abstract resolve(value: unknown): void;
  abstract reject(error: unknown): void;

  /** Decides the end of the wait, commits it, and hands over what the log holds then. An end that the log does not have is dropped. */
  protected finish(command: Command): void {
    if (this.#isEnded) return;
    const { log } = this.execution;
    const decision = log.decide(command);
    const entry = isRefusal(decision) ? undefined : decision[0];
    if (entry === undefined) return;
    this.#isEnded = true;
    this.onDecided(entry);
  }

  /** The end of the wait is decided: the agent gets it when it is committed. */
  protected onDecided(entry: Entry): void {
    onceInLog(this.execution.log, entry, (committed) => {
      if (committed !== undefined) this.onEnded(committed);
    });
  }

  /** The error of a wait that was withdrawn. */
  protected withdrawn(otherwise: () => CadenzaError): unknown {
    return this.#signal?.aborted === true ? this.#signal.reason : otherwise();
  }

  protected onDeadline(): void {
    const { run, clock } = this.execution;
    if (run.mayGoOn) this.finish(this.expiry(clock.now()));
  }

  protected watchDeadline(): void {
    const { deadline } = this;
    this.#clearDeadline?.();
    if (deadline === undefined) return;
    const { clock } = this.execution;
    // This clock may be behind the store's clock, by which the deadline has passed.
    const left = (): number => (takenAt(this.execution.log.head) >= deadline ? 0 : deadline - clock.now());
    this.#clearDeadline = clock.setTimeout(
      // Timers may fire a little early.
      () => (left() > 0 ? this.watchDeadline() : this.onDeadline()),
      Math.max(0, left()),
    );
  }
}

/**
 * Checks the options that questions and receives have in common. Throws `invalid_argument`, also for an option that is
 * not in `known`.
 */
function checkWaitOptions(options: unknown, known: readonly string[]): { readonly [name: string]: unknown } {
  checkObject("options", options);
  checkKeys("options", options, known);
  const checked = options as { readonly [name: string]: unknown };
  const { schema, timeoutMs, signal, details } = checked;
  if (schema !== undefined && !isStandardSchema(schema))
    throw badArgument("options.schema", "a Standard Schema", schema);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
  checkSignal("options.signal", signal);
  if (details !== undefined && typeof details !== "boolean")
    throw badArgument("options.details", "true or false", details);
  return checked;
}

/** The clock was set, or the store has given the run to this process: the times to all deadlines may be others. */
export function measureAgain(execution: Execution): void {
  for (const key of execution.open) {
    const operation = execution.find(key);
    if (operation instanceof Wait) operation.measureAgain();
  }
}

/** Throws the reason of a signal that is aborted. */
function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw signal.reason;
}

const askOptionNames = ["schema", "timeoutMs", "default", "name", "kind", "signal", "details"];
const questionKinds: readonly unknown[] = ["input", "approval", "auth"] satisfies QuestionKind[];

/** How a question is asked. */
interface Asking {
  readonly parts: readonly MessagePart[];
  /** How many values the agent had emitted when it asked. */
  readonly emitted: number;
  readonly timeoutMs?: number | undefined;
  readonly default?: unknown;
  readonly name?: string | undefined;
  readonly kind?: QuestionKind | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A question as an operation. It has no private methods: they would take eight bytes of each run that waits. */
export abstract class Ask extends Wait {
  /** Once the question is in the log, its default is all that is left of it. Undefined: it has none. */
  #asking: Asking | Pick<Asking, "default"> | undefined;
  /** The last offered answer that was validated. */
  #examined: string | undefined;

  constructor(execution: Execution, key: string, asking: Asking) {
    super(execution, key, asking.signal);
    this.#asking = asking;
  }

  get asking(): Asking | undefined {
    return this.#asking !== undefined && "parts" in this.#asking ? this.#asking : undefined;
  }

  protected get isLogged(): boolean {
    const { state } = this.execution.log;
    // An agent that is executed again may find an answer here that was not handed over yet.
    return openQuestion(state, this.key) !== undefined || settledQuestion(state, this.key) !== undefined;
  }

  protected get deadline(): number | undefined {
    return openQuestion(this.execution.log.state, this.key)?.asked.deadline;
  }

  protected begin(): boolean {
    const { asking } = this;
    if (asking === undefined) return true;
    const { log, clock } = this.execution;
    const { parts, emitted, name, kind, timeoutMs = this.execution.settings.awaitTimeoutMs } = asking;
    const at = clock.now();
    const command: Growing<AskCommand> = { type: "ask", at, await_id: this.key, parts, emitted };
    if (name !== undefined) command.name = name;
    if (kind !== undefined) command.kind = kind;
    if (at + timeoutMs <= LAST_TIME) command.deadline = at + timeoutMs;
    const usage = this.execution.takeUsage();
    if (usage !== null) command.usage = usage;
    const decision = log.decide(command);
    if (isRefusal(decision) || decision.length === 0) return false;
    this.#asking = asking.default === undefined ? undefined : { default: asking.default };
    log.flush();
    return true;
  }

  protected expiry(at: number): Command {
    return { type: "expire", at, await_id: this.key, defaulted: this.#asking?.default !== undefined };
  }

  protected override onEnded(entry: Committed): void {
    if (entry.type === "timed-out" && !entry.defaulted) this.execution.onExpired();
    else super.onEnded(entry);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    switch (entry.type) {
      case "timed-out":
        return this.valueFor(this.#asking?.default, entry);
      case "withdrawn":
        throw this.withdrawn(() => this.error("withdrawn", "was withdrawn."));
      case "declined": {
        const { decline, by } = entry;
        const what = decline.reason === undefined ? "was declined." : `was declined: ${decline.reason}`;
        throw this.error("answer_declined", what, { ...decline, ...(by !== undefined && { by }) });
      }
      case "resumed":
        return live === undefined ? this.settled(entry.answer, entry) : this.valueFor(live, entry);
      default:
        throw new TypeError(`Expected an entry that settles a question, found an entry of type ${entry.type}.`);
    }
  }

  /** Whether an offered answer is to be validated: it is not being validated already. */
  examines(offerId: string): boolean {
    const isNew = this.#examined !== offerId;
    this.#examined = offerId;
    return isNew;
  }

  /** The value for the agent. */
  protected valueFor(value: unknown, _entry: ResultEntry): unknown {
    return value;
  }

  /** Validates an answer from the log. */
  protected async settled(answer: AwaitResume, entry: ResultEntry): Promise<unknown> {
    const outcome = await this.validate(answer, validateAccepted);
    if ("value" in outcome) return this.valueFor(outcome.value, entry);
    return unfit;
  }

  protected error(
    code: "answer_declined" | "withdrawn",
    what: string,
    details: CadenzaErrorDetails = {},
  ): CadenzaError {
    const { run_id } = this.execution.log.key;
    return new CadenzaError(code, `The question ${this.key} of run ${run_id} ${what}`, {
      ...details,
      run_id,
      await_id: this.key,
    });
  }

  /** Turns an answer into the value for the agent, or into issues. */
  abstract validate(answer: AwaitResume, validate?: Validate): MaybePromise<Validated>;
}

/** The question of an await request that the agent has yielded. */
class YieldedQuestion extends Ask {
  validate(answer: AwaitResume): Validated {
    return { value: answer };
  }

  resolve(value: unknown): void {
    this.execution.goOn(value);
  }

  /** The execution unwinds an agent that is stopped. */
  reject(error: unknown): void {
    this.execution.throwInto(error);
  }
}

/** Makes what the agent is given of an answer. */
type ToValue = (value: unknown, entry: ResultEntry) => unknown;

const valueAlone: ToValue = (value) => value;

const withDetails: ToValue = (value, entry) => {
  const by = entry.type === "resumed" ? (entry.by ?? null) : null;
  const how = entry.type === "timed-out" ? "default" : "answer";
  return { value, by, at: entry.at, how } satisfies AnswerDetails<unknown>;
};

/** A question of `context.ask`. */
class AskedQuestion extends Ask {
  readonly #schema: StandardSchema | undefined;
  readonly #toValue: ToValue;
  readonly given = new AgentPromise<unknown>();

  constructor(execution: Execution, key: string, asking: Asking, schema: StandardSchema | undefined, toValue: ToValue) {
    super(execution, key, asking);
    this.#schema = schema;
    this.#toValue = toValue;
  }

  validate(answer: AwaitResume, validate: Validate = validateFirst): MaybePromise<Validated> {
    return readAnswer(answer, this.#schema, this.execution, validate);
  }

  protected override valueFor(value: unknown, entry: ResultEntry): unknown {
    return this.#toValue(value, entry);
  }

  resolve(value: unknown): void {
    this.given.resolve(value);
  }

  reject(error: unknown): void {
    this.execution.fail(this.given, error, this.key);
  }
}

/** The open question with this id. Undefined: the agent does not ask it. */
export function questionOf(execution: Execution, awaitId: string): Ask | undefined {
  const operation = execution.over ? undefined : execution.find(awaitId);
  return operation instanceof Ask ? operation : undefined;
}

function questionParts(question: Question): readonly MessagePart[] {
  if (typeof question === "string") return [textPart(question)];
  return readItem("question", question).parts;
}

/** Adds the schema of the answer as a part of the question, because clients drop unknown fields of the request. */
function withSchema(parts: readonly MessagePart[], content: string | undefined, key: string): readonly MessagePart[] {
  if (content === undefined) return parts;
  return [...parts, { content_type: SCHEMA_TYPE, content, content_encoding: "plain", await_id: key }];
}

/** Throws `invalid_argument` for unknown or invalid options of `context.ask`. */
function checkAskOptions(options: unknown): void {
  const { name, kind } = checkWaitOptions(options, askOptionNames);
  if (name !== undefined) checkText("options.name", name);
  if (kind !== undefined && !questionKinds.includes(kind))
    throw badArgument("options.kind", '"input", "approval" or "auth"', kind);
}

/** What validating an answer that declines gives. */
export const declined: Validated = { value: undefined };

/**
 * Gives the verdict on the answers that other processes have offered. An answer that is taken is handed to the agent
 * when it is committed.
 */
export function answerOffers(execution: Execution, shared: SharedByRuns): void {
  for (const offer of execution.log.state.mail?.offers.values() ?? []) {
    const question = questionOf(execution, offer.await_id);
    if (question === undefined || !question.examines(offer.offer_id)) continue;
    const reading: MaybePromise<Validated> = offer.answer === undefined ? declined : question.validate(offer.answer);
    if (isPromise(reading))
      inBackground(
        shared.logger,
        reading.then((later) => decideOffer(execution, shared, offer, later)),
      );
    else decideOffer(execution, shared, offer, reading);
  }
}

function decideOffer(execution: Execution, shared: SharedByRuns, offer: OfferedEntry, reading: Validated): void {
  const { log, clock } = execution;
  if (log.lost || execution.over || shared.isClosed) return;
  const { offer_id, await_id, answer, decline, idempotency_key, by } = offer;
  const at = clock.now();
  if ("issues" in reading) {
    const { issues } = reading;
    log.decide({ type: "refuse", entry: { type: "refused", at, offer_id, code: "answer_rejected", issues } });
    log.flush();
    return;
  }
  const reply = answer === undefined ? { decline: decline ?? {} } : { answer };
  const command = replyCommand({ await_id, reply, idempotency_key, by }, at, offer_id);
  const decision = log.decide(command);
  const entry = isRefusal(decision) ? undefined : decision[0];
  if (entry === undefined) return;
  execution.deliverOnceLogged(entry, reading.value);
}

/** How a question is asked, as far as interceptors see it. */
type Asked = Pick<Asking, "parts" | "name" | "kind">;

/** Asks the client. */
export function askClient(
  execution: Execution,
  question: Question,
  options: AskOptions<unknown, boolean> | undefined,
): Promise<unknown> {
  if (options !== undefined) checkAskOptions(options);
  const { schema, details = false, ...asking } = options ?? {};
  const key = execution.keyFor("ask");
  throwIfAborted(asking.signal);
  const parts = withSchema(questionParts(question), schema === undefined ? undefined : jsonSchemaOf(schema), key);
  const toValue = details ? withDetails : valueAlone;
  const asked = { ...asking, parts, emitted: execution.emitted };
  const ask = new AskedQuestion(execution, key, asked, schema, toValue);
  beginQuestion(execution, ask, asked);
  return ask.given;
}

/** Asks the client by an await request that the agent has yielded. */
export function askByYield(execution: Execution, { message, timeoutMs, default: fallback }: AwaitYield): void {
  const key = execution.keyFor("await");
  const asking = { parts: questionParts(message), timeoutMs, default: fallback, emitted: execution.emitted };
  beginQuestion(execution, new YieldedQuestion(execution, key, asking), asking);
}

function beginQuestion(execution: Execution, ask: Ask, asked: Asked): void {
  const { settings, isStopped, log } = execution;
  const { interceptors } = settings;
  // What the log has settled is not wrapped again.
  if (interceptors.ask !== undefined && !isStopped && settledQuestion(log.state, ask.key) === undefined)
    tellInterceptors(interceptors.ask, execution, ask, asked);
  execution.begin(ask);
}

/** Tells the interceptors of a question. They observe it, and what they throw changes nothing. */
function tellInterceptors(
  wrap: NonNullable<Interceptors["ask"]>,
  { log, logger }: Execution,
  ask: Ask,
  { parts, name, kind = "input" }: Asked,
): void {
  const { agent_name } = createdEntry(log.state);
  const settled = new Promise<AskOutcome>((resolve) => {
    ask.onRelease(() => resolve(outcomeOfQuestion(log.state, ask.key)));
  });
  const info: AskInfo = { ...log.key, agent_name, await_id: ask.key, name: name ?? null, kind, parts };
  const wrapped = (async () => wrap(info, () => settled))().catch((error: unknown) =>
    logger.warn("An interceptor of questions failed.", { ...aboutRun(log), await_id: ask.key, error }),
  );
  inBackground(logger, wrapped);
}

/** What has become of a question that is not asked here any more. */
function outcomeOfQuestion(state: RunState, awaitId: string): AskOutcome {
  const type = settledQuestion(state, awaitId)?.settled?.type;
  if (type === undefined) return isStopped(state) ? "withdrawn" : "left";
  if (type === "resumed") return "answered";
  return type === "timed-out" ? "expired" : type === "declined" ? "declined" : "withdrawn";
}

/** A wait whose deadline is in the `intent` of its operation. */
abstract class IntendedWait extends Wait {
  readonly given = new AgentPromise<unknown>();

  protected get isLogged(): boolean {
    return this.#intent !== undefined;
  }

  protected get deadline(): number | undefined {
    return this.#intent?.until ?? undefined;
  }

  resolve(value: unknown): void {
    this.given.resolve(value);
  }

  reject(error: unknown): void {
    this.execution.fail(this.given, error, this.key);
  }

  /** Logs that the operation waits. */
  protected intend(until: number | null): boolean {
    const { log, clock } = this.execution;
    const entry: IntentEntry = { type: "intent", at: clock.now(), key: this.key, attempt: 1, run_id: null, until };
    const decision = log.decide({ type: "intend", entry });
    if (isRefusal(decision) || decision.length === 0) return false;
    log.flush();
    return true;
  }

  get #intent(): IntentEntry | undefined {
    return this.execution.log.state.waits?.get(this.key);
  }
}

/** A durable timer of the agent. */
class Sleep extends IntendedWait {
  readonly #until: number;

  constructor(execution: Execution, key: string, until: number, signal: AbortSignal | undefined) {
    super(execution, key, signal);
    this.#until = until;
  }

  protected begin(): boolean {
    return this.intend(this.#until);
  }

  /** Its beginning is committed first: the cancel of another process would drop the beginning, and not the result. */
  protected override onDeadline(): void {
    onceCommitted(this.execution.log, () => {
      if (this.isLogged) super.onDeadline();
    });
  }

  protected expiry(at: number): Command {
    const usage = this.execution.takeUsage();
    return { type: "record", entry: { type: "step", at, key: this.key, result: undefined, error: null, usage } };
  }

  settle(entry: ResultEntry): undefined {
    if (entry.type !== "withdrawn") return undefined;
    const { run_id } = this.execution.log.key;
    throw this.withdrawn(
      () => new CadenzaError("withdrawn", `The sleep ${this.key} of run ${run_id} was withdrawn.`, { run_id }),
    );
  }
}

const units: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/**
 * Reads when a sleep ends, in milliseconds since 1970: after a number of milliseconds, after a text such as "90s" or
 * "24h", or at a date. Throws `invalid_argument` for anything else, and for a time that no `Date` can have.
 */
function readUntil(name: string, value: unknown, now: number): number {
  const until = value instanceof Date ? value.getTime() : now + durationOf(value);
  if (until <= LAST_TIME) return until;
  throw badArgument(name, 'a number of milliseconds, a duration such as "90s" or "24h", or a Date', value);
}

/** In milliseconds. NaN for a value that is no duration. */
function durationOf(value: unknown): number {
  if (typeof value === "number") return value >= 0 ? value : Number.NaN;
  const [, amount, unit] = typeof value === "string" ? (/^(\d+(?:\.\d+)?) ?(ms|[smhdw])$/.exec(value) ?? []) : [];
  return Number(amount) * (units[unit ?? ""] ?? Number.NaN);
}

/** How a message is received. */
interface Receiving {
  readonly schema?: StandardSchema | undefined;
  readonly timeoutMs?: number | undefined;
  readonly default?: unknown;
  readonly signal?: AbortSignal | undefined;
  readonly details?: boolean | undefined;
}

/** A message that a receive is about to take, and what the schema says of it. */
interface Claim {
  readonly message: InboxMessage;
  /** Undefined: the schema has not answered. */
  readonly verdict?: Validated;
}

/** One receive of the agent: takes the first message of its name. */
class Receive extends IntendedWait {
  readonly #name: string;
  readonly #options: Receiving;
  taken: InboxMessage | undefined;
  #claim: Claim | undefined;

  constructor(execution: Execution, key: string, name: string, options: Receiving) {
    super(execution, key, options.signal);
    this.#name = name;
    this.#options = options;
  }

  override start(): void {
    // Receives that began before this one come first.
    if (this.#next() !== undefined) takeMail(this.execution);
    if (!this.isEnded) super.start();
  }

  /** The position of the message that its schema is asked about. No other receive takes that message. */
  get claimed(): number | undefined {
    return this.#isAsking ? this.#claim?.message.position : undefined;
  }

  /** Takes the next message of its name, unless it has ended. To `claimed` it adds the message that it is about to take. */
  take(claimed: Set<number>): void {
    const message = this.isEnded || this.#isAsking ? undefined : this.#next(claimed);
    if (message === undefined) return;
    const verdict = this.#validate(message.entry);
    if (!isPromise(verdict)) {
      this.#end({ message, verdict });
      return;
    }
    const claim: Claim = { message };
    this.#claim = claim;
    claimed.add(message.position);
    const judged = verdict.then((later) => {
      if (this.#claim === claim && !this.execution.isStopped) this.#end({ message, verdict: later });
    });
    inBackground(this.execution.logger, judged);
  }

  /** The log says at once whether the message was rejected, so the schema has answered by then. */
  #end(claim: Claim & { readonly verdict: Validated }): void {
    this.#claim = claim;
    const { position } = claim.message;
    const entry: Growing<TakenEntry> = { type: "taken", at: this.execution.clock.now(), key: this.key, position };
    if ("issues" in claim.verdict) entry.issues = claim.verdict.issues;
    this.finish({ type: "take", entry });
    if (this.isEnded) this.taken = claim.message;
  }

  get #isAsking(): boolean {
    return !this.isEnded && this.#claim !== undefined && this.#claim.verdict === undefined;
  }

  /** The first message of its name that has arrived and is committed, and that no receive has taken or takes now. */
  #next(claimed?: ReadonlySet<number>): InboxMessage | undefined {
    const { state, committed } = this.execution.log;
    return state.mail?.inbox.find(
      ({ entry, position }) => entry.name === this.#name && position < committed && claimed?.has(position) !== true,
    );
  }

  protected begin(): boolean {
    const { timeoutMs = Number.POSITIVE_INFINITY } = this.#options;
    const now = this.execution.clock.now();
    if (timeoutMs === 0 && !this.#isAsking) {
      this.finish(this.expiry(now));
      return false;
    }
    return this.intend(now + timeoutMs <= LAST_TIME ? now + timeoutMs : null);
  }

  /** A message that has arrived in time is taken, however long its schema needs. */
  protected override onDeadline(): void {
    if (!this.#isAsking) super.onDeadline();
  }

  /**
   * A message is given to an agent at once if that waits for nothing else. Executed again, the agent takes the same message, since
   * the log says which one is the first of its name. No step or sub-run is at work that the agent could stop, and none begins
   * before the commit.
   */
  protected override onDecided(entry: Entry): void {
    const { journal, open, log } = this.execution;
    const isTaken = entry.type === "taken" && entry.position !== null;
    if (isTaken && journal !== undefined && open.length === 1 && log.handsOver) this.onEnded(uncommitted(entry));
    else super.onDecided(entry);
  }

  /** A receive that is aborted leaves its message to the next one. */
  protected override finish(command: Command): void {
    const wasAsking = this.#isAsking;
    super.finish(command);
    if (!wasAsking || !this.isEnded || command.type !== "withdraw") return;
    this.#claim = undefined;
    takeMail(this.execution);
  }

  protected expiry(at: number): Command {
    return { type: "take", entry: { type: "taken", at, key: this.key, position: null } };
  }

  settle(entry: ResultEntry, taken: unknown): unknown {
    if (entry.type === "withdrawn") throw this.withdrawn(() => this.#error("withdrawn", "was withdrawn."));
    if (entry.type !== "taken") throw new TypeError(`Expected an entry that takes a message, found ${entry.type}.`);
    if (entry.position === null) {
      const { default: fallback } = this.#options;
      if (fallback !== undefined) return this.#told(fallback, { at: entry.at }, "default");
      throw this.#error("receive_timeout", "got no message in time.");
    }
    if (this.#claim?.verdict !== undefined) return this.#read(this.#claim.message.entry, this.#claim.verdict);
    const message = taken as ReceivedEntry | undefined;
    if (message === undefined) throw new TypeError(`There is no message at position ${entry.position} of the log.`);
    const { issues } = entry;
    // A message that was rejected stays so, also if the code has another schema by now.
    return issues === undefined ? this.#readAgain(message) : this.#read(message, { issues });
  }

  /** An earlier execution may have got and used the message, which a schema that fails does not tell. */
  async #readAgain(message: ReceivedEntry): Promise<unknown> {
    const outcome = await this.#validate(message);
    return "failed" in outcome ? unfit : this.#read(message, outcome);
  }

  /** A copy of the message, because the agent may change it. */
  #validate({ data }: ReceivedEntry): MaybePromise<Validated> {
    const { schema } = this.#options;
    const value = copyJson(data);
    return schema === undefined ? { value } : validateAccepted(schema, [value], this.execution);
  }

  async #read(message: ReceivedEntry, outcome: Validated): Promise<unknown> {
    if ("value" in outcome) return this.#told(outcome.value, message, "message");
    const { issues } = outcome;
    throw this.#error(
      "message_rejected",
      `got a message that does not match its schema: ${issuesText(issues)}`,
      issues,
    );
  }

  /** The value for the agent. */
  #told(value: unknown, { at, by = null }: Pick<ReceivedEntry, "at" | "by">, how: "message" | "default"): unknown {
    return this.#options.details === true ? ({ value, by, at, how } satisfies MessageDetails<unknown>) : value;
  }

  #error(
    code: "receive_timeout" | "withdrawn" | "message_rejected",
    what: string,
    issues?: CadenzaError["issues"],
  ): CadenzaError {
    const { run_id } = this.execution.log.key;
    const message = `The receive ${this.key} of run ${run_id} ${what}`;
    return new CadenzaError(code, message, { run_id, ...(issues !== undefined && { issues }) });
  }
}

/** The receives that are open take the messages that have arrived, in the order in which they began. */
export function takeMail(operations: Pick<Execution, "open" | "find">): void {
  const receives = operations.open.map((key) => operations.find(key)).filter((one) => one instanceof Receive);
  const claimed = new Set(receives.flatMap((receive) => receive.claimed ?? []));
  for (const receive of receives) receive.take(claimed);
}

/** Throws `invalid_argument` for unknown or invalid options of `context.receive`. */
export function checkReceiveOptions(options: unknown): void {
  checkWaitOptions(options, ["schema", "timeoutMs", "default", "signal", "details"]);
}

/** Waits for a time. */
export function sleepFor(
  execution: Execution,
  duration: number | string | Date,
  { name, signal }: SleepOptions,
): Promise<unknown> {
  const until = readUntil("duration", duration, execution.clock.now());
  const key = execution.keyFor(name === undefined ? "sleep" : `sleep:${name}`);
  throwIfAborted(signal);
  const sleep = new Sleep(execution, key, until, signal);
  execution.begin(sleep);
  return sleep.given;
}

/** Waits for a message. */
export function receiveMessage(execution: Execution, name: string, options: Receiving): Promise<unknown> {
  const key = execution.keyFor(`receive:${name}`);
  throwIfAborted(options.signal);
  const receive = new Receive(execution, key, name, options);
  execution.begin(receive);
  return receive.given;
}
