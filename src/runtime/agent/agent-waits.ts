import type { QuestionKind } from "../../core/log.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { InputItem } from "./input.ts";
import type { StandardSchema } from "./standard-schema.ts";

/* What an agent waits for: the types of `context.ask`, `context.sleep` and `context.receive`. */

/** See `context.ask`. */
export type Ask = AskMethod["ask"];

/**
 * Declared as a method, because methods are checked bivariantly: the ask of an agent with declared questions is an `Ask`
 * too.
 */
interface AskMethod {
  /** With `details`, resolves with the answer and the facts about it. */
  ask<Output>(
    question: Question,
    options: AskOptions<Output, true> & { readonly schema: StandardSchema<unknown, Output>; readonly details: true },
  ): Promise<AnswerDetails<Output>>;
  ask(
    question: Question,
    options: AskOptions<Message | JsonObject, true> & { readonly schema?: undefined; readonly details: true },
  ): Promise<AnswerDetails<Message | JsonObject>>;
  /**
   * With a schema, resolves with the schema's output. An answer that fails validation is rejected, and the run continues
   * waiting.
   */
  ask<Output>(
    question: Question,
    options: AskOptions<Output, false> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output>;
  /** Without a schema, resolves with the client's message or object. */
  ask(
    question: Question,
    options?: AskOptions<Message | JsonObject, false> & { readonly schema?: undefined },
  ): Promise<Message | JsonObject>;
  /** With a default that may be null, the answer may be null too. */
  ask<Output>(
    question: Question,
    options: OrNull<AskOptions<Output, true>> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<AnswerDetails<Output | null>>;
  ask<Output>(
    question: Question,
    options: OrNull<AskOptions<Output, false>> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output | null>;
  ask(
    question: Question,
    options: OrNull<AskOptions<Message | JsonObject, true>> & { readonly schema?: undefined; readonly details: true },
  ): Promise<AnswerDetails<Message | JsonObject | null>>;
  ask(
    question: Question,
    options: OrNull<AskOptions<Message | JsonObject, false>> & { readonly schema?: undefined },
  ): Promise<Message | JsonObject | null>;
}

/** Options whose default may be null. */
export type OrNull<Options extends { readonly default?: unknown }> = Omit<Options, "default" | "schema"> & {
  readonly default: Options["default"] | null;
};

/** A question: text, a part or a message. */
export type Question = InputItem;

/** How a question is asked. */
export interface AskOptions<Output, Details extends boolean = boolean> {
  /**
   * Any Standard Schema. If its library can convert it, the question has a part with the JSON Schema. Default: any
   * answer is accepted.
   */
  readonly schema?: StandardSchema<unknown, Output> | undefined;
  /** How long the question may be answered, in milliseconds. Default: the runtime's `awaitTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /**
   * The answer when the question expires: of the schema's output, or null. It is not validated. Default: none, and the
   * run fails with the reason `await_timeout` when the question expires.
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

/** See `context.sleep`. */
export type Sleep = (duration: number | string | Date, options?: SleepOptions) => Promise<void>;

/** How an agent sleeps. */
export interface SleepOptions {
  /** A name for the sleep, which becomes a part of its key: `sleep:NAME#1`. Default: none. */
  readonly name?: string | undefined;
  /** Ends the sleep when it aborts: `sleep` rejects with its reason. Default: none. */
  readonly signal?: AbortSignal | undefined;
}

/** See `context.receive`. */
export type Receive = ReceiveMethod["receive"];

/** A method like {@link Ask}. */
interface ReceiveMethod {
  /** With `details`, resolves with the message and the facts about it. */
  receive<Output>(
    name: string,
    options: ReceiveOptions<Output, true> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<MessageDetails<Output>>;
  receive(
    name: string,
    options: ReceiveOptions<JsonValue, true> & { readonly schema?: undefined; readonly details: true },
  ): Promise<MessageDetails<JsonValue>>;
  /** With a schema, resolves with the schema's output. */
  receive<Output>(
    name: string,
    options: ReceiveOptions<Output, false> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output>;
  /** Without a schema, resolves with the data as it was sent. */
  receive(
    name: string,
    options?: ReceiveOptions<JsonValue, false> & { readonly schema?: undefined },
  ): Promise<JsonValue>;
  /** With a default that may be null, the result may be null too. */
  receive<Output>(
    name: string,
    options: OrNull<ReceiveOptions<Output, true>> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<MessageDetails<Output | null>>;
  receive<Output>(
    name: string,
    options: OrNull<ReceiveOptions<Output, false>> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output | null>;
}

/** How a message is received. */
export interface ReceiveOptions<Output, Details extends boolean = boolean> {
  /** Any Standard Schema. Default: any message is accepted. */
  readonly schema?: StandardSchema<unknown, Output> | undefined;
  /**
   * How long to wait, in milliseconds. 0 takes a message that is there, and does not wait. Default: no limit.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * The result when no message came in time: of the schema's output, or null. It is not validated. Default: none, and
   * `receive` rejects.
   */
  readonly default?: NoInfer<Output> | undefined;
  /** Ends the receive when it aborts: it rejects with the signal's reason, and takes no message. Default: none. */
  readonly signal?: AbortSignal | undefined;
  /** Whether to resolve with a {@link MessageDetails}. Default: false. */
  readonly details?: Details | undefined;
}

/** A message, and the facts about it. */
export interface MessageDetails<Output> {
  readonly value: Output;
  /** The principal who sent it; null if the application named none. */
  readonly by: JsonValue;
  /** When it arrived, or when the receive expired, in milliseconds since 1970. */
  readonly at: number;
  /** `default`: no message came in time, and `value` is the default. */
  readonly how: "message" | "default";
}
