import type { Labels, QuestionKind } from "../core/log.ts";
import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import type { InputItem, RunInput } from "./input.ts";
import type { StandardSchema } from "./standard-schema.ts";

/**
 * The second argument of an agent function. Its methods are bound: they may be destructured and passed on. After the run
 * was stopped, `ask` and `run` reject with `run_cancelled`, `run_timeout` or `await_timeout`. Inside the body of a step
 * `ask`, `step` and `run` reject with `nested_operation`, as do `emit` and the session's state in a durable agent.
 */
export interface AgentContext {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session: AgentSession;
  /**
   * Aborts when the run is cancelled, exceeds its `timeoutMs` or ends. Its reason is a `CadenzaError`, such as
   * `run_cancelled` or `run_timeout`. Each run has one signal.
   */
  readonly signal: AbortSignal;
  /** The principal that the application named when it created the run. Default: null. */
  readonly principal: JsonValue;
  /** The `metadata` that the run's creator gave it. Default: null, also for a sub-run. */
  readonly metadata: JsonValue;
  /** The `labels` that the run's creator gave it. Default: none, also for a sub-run. */
  readonly labels: Labels;
  /** The logger of the runtime. */
  readonly logger: Logger;
  /**
   * Emits a part, a message or an object as `yield` does, for code in callbacks. Resolves at once, or, above
   * `limits.maxBacklog`, when the store has caught up. Rejects with `invalid_yield` for a value that is none of these.
   */
  readonly emit: (value: unknown) => Promise<void>;
  /**
   * Asks the client and resolves with the answer. The open message is completed first. Several questions may be open at
   * once: each can be answered by its id, and the first of them is the run's await request. Rejects with
   * `answer_declined` when the client declines, with the signal's reason when its signal aborts, and with
   * `invalid_argument` for an invalid question or option.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const schema = z.object({ ok: z.boolean() });
   * export const booking = defineAgent("booking", async (_input, { ask }) => {
   *   const { ok } = await ask("Book it?", { schema, timeoutMs: 86_400_000, default: { ok: false } });
   *   return ok ? "Booked." : "Not booked.";
   * });
   * ```
   */
  readonly ask: Ask;
  /**
   * Runs a function with side effects, and resolves with its result. For a durable agent the result is written to the
   * log. When the agent is executed again, it gets the result from there, and the function is not called. Rejects with
   * the error of the last attempt, which is `step_timeout` if it took longer than `timeoutMs`. Rejects with
   * `limit_reached` if the result of a durable step is larger than `limits.maxStepBytes`, and with `invalid_argument`
   * for an invalid name, function or option. A name is any text except `ask`, `await` and `sleep`, and does not begin
   * with `ask:`, `sleep:`, `run:`, `receive:` or `session.`: the keys of other operations have these forms.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const report = defineAgent("report", { durable: true }, async (_input, { step }) => {
   *   const load = async ({ signal }: { signal: AbortSignal }) =>
   *     (await fetch("https://example.com/figures.txt", { signal })).text();
   *   const figures = await step("load figures", load, { retry: { attempts: 3, backoffMs: 500 } });
   *   return `The figures: ${figures}`;
   * });
   * ```
   */
  readonly step: Step;
  /**
   * Waits for a time: a number of milliseconds, a text such as "90s" or "24h" (the units are ms, s, m, h, d and w), or a
   * `Date`. The sleep of a durable agent survives its process. The run shows no question meanwhile, and may leave
   * memory. Rejects with `invalid_argument` for another value, and with the signal's reason when its signal aborts.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const reminder = defineAgent("reminder", { durable: true }, async function* (_input, { sleep }) {
   *   yield "I shall remind you tomorrow.";
   *   await sleep("24h");
   *   yield "Here is your reminder.";
   * });
   * ```
   */
  readonly sleep: Sleep;
  /**
   * Waits for a message that is sent to the run with `runtime.send`, and resolves with its data. Each receive takes the
   * oldest message of its name that no other has taken, also one that came before the receive began. Without a default
   * it rejects with `receive_timeout` when its time has passed. Rejects with `message_rejected` for a message that does
   * not match the schema, and with the signal's reason when its signal aborts.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   * import { z } from "zod";
   *
   * const schema = z.object({ cents: z.int() });
   * export const order = defineAgent("order", { durable: true }, async (_input, { receive }) => {
   *   const paid = await receive("payment", { schema, timeoutMs: 86_400_000, default: { cents: 0 } });
   *   return `Paid: ${paid.cents} cents.`;
   * });
   * ```
   */
  readonly receive: Receive;
  /**
   * Runs another agent in a session of its own, and resolves with the run when it has ended, also if it has failed. The
   * sub-run is cancelled with this run. This run passes on its questions. With `show: true` it also shows what the
   * sub-run emits, while it is emitted. Rejects with `agent_not_found`, with `limit_reached` above `limits.maxDepth` or
   * if the log of this run is too short for what it shows, and with `invalid_argument` for an invalid option.
   *
   * @example
   * ```ts
   * import { defineAgent } from "cadenza";
   *
   * export const desk = defineAgent("desk", async function* (input, { run }) {
   *   yield "I ask the researcher. ";
   *   const research = await run("researcher", input, { show: true });
   *   yield `That was the researcher, who has ${research.status}.`;
   * });
   * ```
   */
  readonly run: (agent_name: string, input: RunInput, options?: SubRunOptions) => Promise<Run>;
  /** Takes the token usage of the run's model calls. */
  readonly usage: UsageReport;
  /**
   * The time in milliseconds since 1970. For a durable agent it is the time of the last result that it received, or of
   * its start. An agent that is executed again gets the same times.
   */
  readonly now: () => number;
  /** A UUID that is the same when a durable agent is executed again. */
  readonly uuid: () => string;
  /**
   * A number from 0 up to, but not including, 1. It is the same when a durable agent is executed again. Not for
   * secrets.
   */
  readonly random: () => number;
}

/** The session of a run. */
export interface AgentSession {
  readonly id: string;
  /** The messages of the session as they were when the run was created, oldest first. */
  readonly history: () => Promise<readonly Message[]>;
  /** The current state, as JSON; null until it is set. */
  readonly getState: () => Promise<JsonValue>;
  /** Replaces the state. Resolves when it is stored. Rejects with `invalid_argument` for a value that is not JSON. */
  readonly setState: (state: JsonValue) => Promise<void>;
}

/** How another agent is run. */
export interface SubRunOptions {
  /**
   * Whether this run shows what the sub-run emits: its parts, messages and objects join the output and the events of this
   * run while they are emitted. The messages keep the role of the sub-run's agent, and in process the events have a
   * `source`. All of it is shown before the sub-run's record is the result. Default: false.
   */
  readonly show?: boolean | undefined;
}

/** See {@link AgentContext.ask}. */
export interface Ask {
  /** With `details`, resolves with the answer and the facts about it. */
  <Output>(
    question: Question,
    options: AskOptions<Output, true> & { readonly schema: StandardSchema<Output>; readonly details: true },
  ): Promise<AnswerDetails<Output>>;
  (
    question: Question,
    options: AskOptions<Message | JsonObject, true> & { readonly schema?: undefined; readonly details: true },
  ): Promise<AnswerDetails<Message | JsonObject>>;
  /**
   * With a schema, resolves with the schema's output. An answer that fails validation is rejected, and the run goes on
   * waiting.
   */
  <Output>(
    question: Question,
    options: AskOptions<Output, false> & { readonly schema: StandardSchema<Output> },
  ): Promise<Output>;
  /** Without a schema, resolves with the client's message or object. */
  (
    question: Question,
    options?: AskOptions<Message | JsonObject, false> & { readonly schema?: undefined },
  ): Promise<Message | JsonObject>;
}

/** A question: text, a part or a message. */
export type Question = InputItem;

/** How a question is asked. */
export interface AskOptions<Output, Details extends boolean = boolean> {
  /**
   * Any Standard Schema. If its library can convert it, the question has a part with the JSON Schema. Default: any
   * answer is accepted.
   */
  readonly schema?: StandardSchema<Output> | undefined;
  /** How long the question may be answered, in milliseconds. Default: the runtime's `awaitTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /**
   * The answer when the question expires. It is not validated. Default: none, and the run fails with the reason
   * `await_timeout` when the question expires.
   */
  readonly default?: NoInfer<Output> | undefined;
  /** A name for the question, which `details` shows. Default: none. */
  readonly name?: string | undefined;
  /** What is asked for, which `details` shows. Default: `input`. */
  readonly kind?: QuestionKind | undefined;
  /**
   * Withdraws the question when it aborts: `ask` rejects with its reason. A durable agent aborts it by itself, so that
   * it does so again when it is executed again. Default: none.
   */
  readonly signal?: AbortSignal | undefined;
  /** Whether to resolve with an {@link AnswerDetails}. Default: false. */
  readonly details?: Details | undefined;
}

/** An answer, and the facts about it. */
export interface AnswerDetails<Output> {
  readonly value: Output;
  /** The principal who answered; null if the application named none. */
  readonly by: JsonValue;
  /** When it was answered or expired, in milliseconds since 1970. */
  readonly at: number;
  /** `default`: the question expired, and `value` is its default. */
  readonly how: "answer" | "default";
}

/** See {@link AgentContext.sleep}. */
export type Sleep = (duration: number | string | Date, options?: SleepOptions) => Promise<void>;

/** How an agent sleeps. */
export interface SleepOptions {
  /** A name for the sleep, which becomes a part of its key: `sleep:NAME#1`. Default: none. */
  readonly name?: string | undefined;
  /** Ends the sleep when it aborts: `sleep` rejects with its reason. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** See {@link AgentContext.receive}. */
export interface Receive {
  /** With a schema, resolves with the schema's output. */
  <Output>(
    name: string,
    options: ReceiveOptions<Output> & { readonly schema: StandardSchema<Output> },
  ): Promise<Output>;
  /** Without a schema, resolves with the data as it was sent. */
  (name: string, options?: ReceiveOptions<JsonValue> & { readonly schema?: undefined }): Promise<JsonValue>;
}

/** How a message is received. */
export interface ReceiveOptions<Output> {
  /** Any Standard Schema. Default: any message is accepted. */
  readonly schema?: StandardSchema<Output> | undefined;
  /**
   * How long to wait, in milliseconds. 0 takes a message that is there, and does not wait. Default: no limit.
   */
  readonly timeoutMs?: number | undefined;
  /** The result when no message came in time. It is not validated. Default: none, and `receive` rejects. */
  readonly default?: NoInfer<Output> | undefined;
  /** Ends the receive when it aborts: it rejects with the signal's reason, and takes no message. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** See {@link AgentContext.step}. */
export type Step = StepMethod["step"];

/**
 * Declared as a method, because methods are checked bivariantly: a {@link DurableStep}, which accepts fewer functions,
 * is a `Step` too.
 */
interface StepMethod {
  step<Result>(name: string, fn: (step: StepScope) => MaybePromise<Result>, options?: StepOptions): Promise<Result>;
}

/**
 * The second argument of a durable agent's function: an {@link AgentContext} whose steps return JSON values. The
 * results of its steps are written to the log as JSON. A result that JSON would lose or change is refused.
 */
export interface DurableContext extends AgentContext {
  readonly step: DurableStep;
}

/**
 * As {@link Step}. A result that JSON would lose or change makes the step fail. It does not compile either, if its type
 * shows the problem.
 */
export type DurableStep = <Result>(
  name: string,
  fn: (step: StepScope) => MaybePromise<Result & Recordable<Result>>,
  options?: StepOptions,
) => Promise<Result>;

/**
 * The type itself, if its values survive JSON unchanged. A class without methods cannot be told from a plain object.
 */
export type Recordable<Value> = unknown extends Value
  ? Value
  : Value extends string | number | boolean | null | undefined
    ? Value
    : Value extends void
      ? Value
      : Value extends bigint | symbol | AnyFunction
        ? NotRecordable
        : Value extends readonly unknown[]
          ? { [Index in keyof Value]: undefined extends Value[Index] ? NotRecordable : Recordable<Value[Index]> }
          : HasMethods<Value> extends true
            ? NotRecordable
            : { [Key in keyof Value]: Recordable<Value[Key]> };

/** The text in the compiler's error for a step result that JSON would lose. */
type NotRecordable = "JSON would lose this, and the result of a durable step is recorded as JSON";
type AnyFunction = (...parameters: never) => unknown;
/** Dates, maps, sets, buffers and all other instances of classes have methods. */
type HasMethods<Value> = true extends { [Key in keyof Value]-?: IsFunction<NonNullable<Value[Key]>> }[keyof Value]
  ? true
  : false;
type IsFunction<Member> = [Member] extends [never] ? false : Member extends AnyFunction ? true : false;

/** The argument of a step's function. */
export interface StepScope {
  /** The step's key within the run, such as `fetch figures#2`. It is the same on every attempt. */
  readonly key: string;
  /**
   * A UUID for the other side, which tells a further attempt from a further step by it. It is computed from the run's id
   * and the step's key: the same on every attempt, also after a crash, and different for every other step of any run.
   */
  readonly idempotencyKey: string;
  /** 1 for the first attempt. After a crash it goes on from the attempt that was interrupted. */
  readonly attempt: number;
  /**
   * The signal of the run. With `timeoutMs`, a signal of this attempt, which aborts with the run's signal too, and with
   * `step_timeout` when the time is over.
   */
  readonly signal: AbortSignal;
  /**
   * Emits a part, a message or an object while the step runs, for example each token of a model's answer. After the
   * attempt's `timeoutMs` nothing is emitted.
   */
  readonly emit: (value: unknown) => Promise<void>;
}

/** How a step is run. */
export interface StepOptions {
  /**
   * Whether a durable step that a crash has interrupted throws `step_interrupted` instead of running again. Default:
   * false.
   */
  readonly once?: boolean | undefined;
  /**
   * How long one attempt may take, in milliseconds. After that the attempt's signal aborts, and the attempt fails with
   * `step_timeout`, also if the function goes on. What the function still emits or returns is dropped. The attempt is
   * repeated like any other that fails. Default: `Infinity`.
   */
  readonly timeoutMs?: number | undefined;
  /** How the function is tried again when an attempt fails. Default: one attempt. */
  readonly retry?: StepRetry | undefined;
}

/**
 * How a step is tried again. The pause after attempt n is `backoffMs * factor ** (n - 1)`, and at most `maxBackoffMs`.
 * Of this, a part between the half and the whole is waited, which differs for each run, step and attempt, so that runs
 * that failed together do not try again together.
 */
export interface StepRetry {
  /**
   * How many attempts there are, a whole number from 1 on. A step that a crash has interrupted has all of them again.
   */
  readonly attempts: number;
  /** The longest pause after the first attempt, in milliseconds. Default: 0, and then there are no pauses. */
  readonly backoffMs?: number | undefined;
  /** By how much the pause grows with each attempt, from 1 on. Default: 2. */
  readonly factor?: number | undefined;
  /** The longest pause, in milliseconds. Default: 60,000, or `backoffMs` if that is more. */
  readonly maxBackoffMs?: number | undefined;
  /**
   * Whether an attempt that failed with this error is repeated. The function is not asked after the last attempt. If it
   * throws, the step fails with what it throws. It must not return a promise. Default: every error is repeated.
   */
  readonly when?: ((error: unknown) => boolean) | undefined;
}

/** The token usage of a run's model calls. */
export interface UsageReport {
  /**
   * Adds the usage object of the AI SDK 4 to 7, of OpenAI's two APIs or of Anthropic. Totals include cached tokens.
   * Throws `invalid_argument` for an object without token counts.
   */
  readonly add: (usage: object) => void;
  /** The sum of all reports so far, including those of sub-runs; null before the first report. */
  readonly total: Usage | null;
}
