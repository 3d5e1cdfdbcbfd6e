import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { AskCommand, Command } from "../../core/commands.ts";
import { isRefusal } from "../../core/decide.ts";
import type { CadenzaErrorDetails } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Growing, OfferedEntry, QuestionKind, ResultEntry } from "../../core/log.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isStopped, openQuestion, settledQuestion } from "../../core/state.ts";
import { LAST_TIME } from "../../core/time.ts";
import type { MessagePart } from "../../protocol/message.ts";
import type { AwaitResume } from "../../protocol/run.ts";
import { SCHEMA_TYPE } from "../../protocol/run.ts";
import type { AnswerDetails, AskOptions, Question } from "../agent/agent-waits.ts";
import { readAnswer, replyCommand } from "../agent/answer.ts";
import { badArgument, checkText } from "../agent/check.ts";
import type { AwaitYield } from "../agent/generator.ts";
import { readItem, textPart } from "../agent/input.ts";
import type { AskInfo, AskOutcome, Interceptors } from "../agent/interceptors.ts";
import type { StandardSchema, Validate, Validated } from "../agent/standard-schema.ts";
import { jsonSchemaOf, validateAccepted, validateFirst } from "../agent/standard-schema.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import { AgentPromise } from "./agent-promise.ts";
import type { Execution } from "./execution.ts";
import type { Committed } from "./operations.ts";
import { unfit } from "./operations.ts";
import { checkWaitOptions, throwIfAborted, Wait } from "./wait.ts";

const known = ["schema", "timeoutMs", "default", "name", "kind", "signal", "details"];
const kinds: readonly unknown[] = ["input", "approval", "auth"] satisfies QuestionKind[];

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

/** A question as an operation. */
export abstract class Ask extends Wait {
  /** Undefined when the question is in the log. */
  #asking: Asking | undefined;
  readonly #default: unknown;
  /** The last offered answer that was validated. */
  #examined: string | undefined;

  constructor(execution: Execution, key: string, asking: Asking) {
    super(execution, key, asking.signal);
    this.#asking = asking;
    this.#default = asking.default;
  }

  get asking(): Asking | undefined {
    return this.#asking;
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
    if (this.#asking === undefined) return true;
    const { log, clock } = this.execution;
    const { parts, emitted, name, kind, timeoutMs = this.execution.settings.awaitTimeoutMs } = this.#asking;
    const at = clock.now();
    const asking: Growing<AskCommand> = { type: "ask", at, await_id: this.key, parts, emitted };
    if (name !== undefined) asking.name = name;
    if (kind !== undefined) asking.kind = kind;
    if (at + timeoutMs <= LAST_TIME) asking.deadline = at + timeoutMs;
    const usage = this.execution.takeUsage();
    if (usage !== null) asking.usage = usage;
    const decision = log.decide(asking);
    if (isRefusal(decision) || decision.length === 0) return false;
    this.#asking = undefined;
    log.flush();
    return true;
  }

  protected expiry(at: number): Command {
    return { type: "expire", at, await_id: this.key, defaulted: this.#default !== undefined };
  }

  protected override onEnded(entry: Committed): void {
    if (entry.type === "timed-out" && !entry.defaulted) this.execution.onExpired();
    else super.onEnded(entry);
  }

  settle(entry: ResultEntry, live: unknown): unknown {
    switch (entry.type) {
      case "timed-out":
        return this.valueFor(this.#default, entry);
      case "withdrawn":
        throw this.withdrawn(() => this.#error("withdrawn", "was withdrawn."));
      case "declined": {
        const { decline, by } = entry;
        const what = decline.reason === undefined ? "was declined." : `was declined: ${decline.reason}`;
        throw this.#error("answer_declined", what, { ...decline, ...(by !== undefined && { by }) });
      }
      case "resumed":
        return live === undefined ? this.#settled(entry.answer, entry) : this.valueFor(live, entry);
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
  async #settled(answer: AwaitResume, entry: ResultEntry): Promise<unknown> {
    const outcome = await this.validate(answer, validateAccepted);
    if ("value" in outcome) return this.valueFor(outcome.value, entry);
    return unfit;
  }

  #error(code: "answer_declined" | "withdrawn", what: string, details: CadenzaErrorDetails = {}): CadenzaError {
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
  const { name, kind } = checkWaitOptions(options, known);
  if (name !== undefined) checkText("options.name", name);
  if (kind !== undefined && !kinds.includes(kind))
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
  perform(execution, ask, asked);
  return ask.given;
}

/** Asks the client by an await request that the agent has yielded. */
export function askByYield(execution: Execution, { message, timeoutMs, default: fallback }: AwaitYield): void {
  const key = execution.keyFor("await");
  const asking = { parts: questionParts(message), timeoutMs, default: fallback, emitted: execution.emitted };
  perform(execution, new YieldedQuestion(execution, key, asking), asking);
}

function perform(execution: Execution, ask: Ask, asked: Asked): void {
  const { settings, isStopped, log } = execution;
  const { interceptors } = settings;
  // What the log has settled is not wrapped again.
  if (interceptors.ask !== undefined && !isStopped && settledQuestion(log.state, ask.key) === undefined)
    observe(interceptors.ask, execution, ask, asked);
  execution.begin(ask);
}

/** Tells the interceptors of a question. They observe it, and what they throw changes nothing. */
function observe(
  wrap: NonNullable<Interceptors["ask"]>,
  { log, logger }: Execution,
  ask: Ask,
  { parts, name, kind = "input" }: Asked,
): void {
  const { agent_name } = createdEntry(log.state);
  const settled = new Promise<AskOutcome>((resolve) => {
    ask.onRelease(() => resolve(outcomeOf(log.state, ask.key)));
  });
  const info: AskInfo = { ...log.key, agent_name, await_id: ask.key, name: name ?? null, kind, parts };
  const wrapped = (async () => wrap(info, () => settled))().catch((error: unknown) =>
    logger.warn("An interceptor of questions failed.", { ...aboutRun(log), await_id: ask.key, error }),
  );
  inBackground(logger, wrapped);
}

/** What has become of a question that is not asked here any more. */
function outcomeOf(state: RunState, awaitId: string): AskOutcome {
  const type = settledQuestion(state, awaitId)?.settled?.type;
  if (type === undefined) return isStopped(state) ? "withdrawn" : "left";
  if (type === "resumed") return "answered";
  return type === "timed-out" ? "expired" : type === "declined" ? "declined" : "withdrawn";
}
