import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { Usage } from "../core/usage.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { Message } from "../protocol/message.ts";
import type { Run } from "../protocol/run.ts";
import type { InputItem, RunInput } from "./input.ts";
import type { StandardSchema } from "./standard-schema.ts";

/** What an agent function gets beside its input. Its methods may be taken out of it and passed on. */
export interface AgentContext {
  readonly run_id: string;
  readonly agent_name: string;
  readonly session: AgentSession;
  /** Aborts when the run is cancelled, runs out of time or ends. There is one for each run. */
  readonly signal: AbortSignal;
  /** Who asked for the run, as the embedding application calls them; null where it did not say. */
  readonly principal: JsonValue;
  readonly logger: Logger;
  /** Shows something, as `yield` does, for code deep in callbacks. Resolves at once, or when the queue to the store has room again. */
  readonly emit: (value: unknown) => Promise<void>;
  /** Asks the client and waits for the answer. The open message is completed first. Several questions at once queue up. */
  readonly ask: Ask;
  /** Runs a function that touches the world. For a durable agent its result is recorded, and final. */
  readonly step: Step;
  /** Runs another agent in a session of its own and gives the run when it has ended. It is cancelled with this run; what it asks is asked here. */
  readonly run: (agent_name: string, input: RunInput) => Promise<Run>;
  readonly usage: UsageReport;
  /** The time in milliseconds since the epoch. For a durable agent: of the last thing that happened to the run, and so repeatable. */
  readonly now: () => number;
  /** A UUID that is the same when a durable agent is run again. */
  readonly uuid: () => string;
  /** A number from 0 up to 1 that is the same when a durable agent is run again. Not for secrets. */
  readonly random: () => number;
}

/** The session of a run. */
export interface AgentSession {
  readonly id: string;
  /** The messages of the session as they were when the run was created, oldest first. */
  readonly history: () => Promise<readonly Message[]>;
  /** The state as it is now; null until it is set. */
  readonly getState: () => Promise<JsonValue>;
  /** Replaces the state. Resolves when it is stored. */
  readonly setState: (state: JsonValue) => Promise<void>;
}

/** See {@link AgentContext.ask}. */
export interface Ask {
  /** With a schema the answer is what the schema makes of it; what does not fit is refused, and the run goes on waiting. */
  <Output>(
    question: Question,
    options: AskOptions<Output> & { readonly schema: StandardSchema<Output> },
  ): Promise<Output>;
  /** Without a schema the answer is the message that came, or the object. */
  (
    question: Question,
    options?: AskOptions<Message | JsonObject> & { readonly schema?: undefined },
  ): Promise<Message | JsonObject>;
}

/** A question: text, a part or a message. */
export type Question = InputItem;

/** How a question is asked. */
export interface AskOptions<Output> {
  /** Any Standard Schema. The client sees it as JSON Schema, as a part of the question, where its library can say it. */
  readonly schema?: StandardSchema<Output> | undefined;
  /** How long the question stands, in milliseconds from when it is shown. Default: the runtime's `awaitTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** The answer when the question expires; it is not validated. Without it the run fails then. */
  readonly default?: NoInfer<Output> | undefined;
}

/** See {@link AgentContext.step}. */
export type Step = StepMethod["step"];

/** Written as a method, so that a {@link DurableStep} is a `Step` too: it takes less, and gives the same. */
interface StepMethod {
  step<Result>(name: string, fn: (step: StepScope) => MaybePromise<Result>, options?: StepOptions): Promise<Result>;
}

/**
 * What the function of a durable agent gets beside its input: an {@link AgentContext} whose steps give what JSON can carry. Their
 * results are recorded, and what JSON would lose is refused.
 */
export interface DurableContext extends AgentContext {
  readonly step: DurableStep;
}

/** As {@link Step}. A result that JSON would lose or change does not compile, where its type tells, and makes the step fail. */
export type DurableStep = <Result>(
  name: string,
  fn: (step: StepScope) => MaybePromise<Result & Recordable<Result>>,
  options?: StepOptions,
) => Promise<Result>;

/** The type itself, if JSON gives back what is of this type. A class without methods cannot be told from a plain object. */
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

/** What the compiler says of the result of a durable step that JSON would lose. */
type NotRecordable = "JSON would lose this, and the result of a durable step is recorded as JSON";
type AnyFunction = (...parameters: never) => unknown;
/** Dates, maps, sets, buffers and all other instances of classes have methods. */
type HasMethods<Value> = true extends { [Key in keyof Value]-?: IsFunction<NonNullable<Value[Key]>> }[keyof Value]
  ? true
  : false;
type IsFunction<Member> = [Member] extends [never] ? false : Member extends AnyFunction ? true : false;

/** What the function of a step gets. */
export interface StepScope {
  /** The same on every attempt: an idempotency key for the other side. */
  readonly key: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  readonly signal: AbortSignal;
  /** Shows something while the step runs, for example each token of a model's answer. */
  readonly emit: (value: unknown) => Promise<void>;
}

/** How a step is run. */
export interface StepOptions {
  /** A durable step whose function was interrupted by a crash is not run again: it throws `step_interrupted`. Default: false. */
  readonly once?: boolean | undefined;
  /** Runs the function again when it throws. Default: one attempt. */
  readonly retry?: { readonly attempts: number; readonly backoffMs?: number | undefined } | undefined;
}

/** Where an agent reports what its model calls used. */
export interface UsageReport {
  /** Takes the usage object of the AI SDK 4 to 7, of OpenAI's two APIs or of Anthropic as it is. Totals count cached tokens like all others. */
  readonly add: (usage: object) => void;
  /** What has been reported so far, sub-runs included; null before the first report. */
  readonly total: Usage | null;
}
