import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { AgentContext, DurableContext } from "./agent-context.ts";
import type { AgentSchemas, SchemasByName } from "./agent-schemas.ts";
import type { AnswerDetails, AskOptions, MessageDetails, OrNull, Question, ReceiveOptions } from "./agent-waits.ts";
import type { SchemaOutput, StandardSchema } from "./standard-schema.ts";

/** The context of a typed agent: an {@link AgentContext} that knows the declared questions and messages. */
export interface TypedContext<Schemas extends AgentSchemas, Durable extends boolean>
  extends Omit<AgentContext, "ask" | "receive" | "step"> {
  /** As {@link AgentContext.ask}. A question with a declared name is answered by the schema of that name. */
  readonly ask: DeclaredAsk<Named<Schemas["questions"]>>;
  /** As {@link AgentContext.receive}. A message with a declared name has the schema of that name. */
  readonly receive: DeclaredReceive<Named<Schemas["messages"]>>;
  readonly step: Durable extends true ? DurableContext["step"] : AgentContext["step"];
}

/** The declared schemas; none, if none are declared. */
type Named<Schemas extends SchemasByName | undefined> = Schemas extends SchemasByName ? Schemas : Record<never, never>;

/** See {@link TypedContext.ask}. */
export interface DeclaredAsk<Questions> {
  /** A declared question, with the facts about its answer. */
  <Name extends keyof Questions>(
    question: Question,
    options: DeclaredOptions<AskOptions<SchemaOutput<Questions[Name]>, true>, Name> & { readonly details: true },
  ): Promise<AnswerDetails<SchemaOutput<Questions[Name]>>>;
  /** A declared question. */
  <Name extends keyof Questions>(
    question: Question,
    options: DeclaredOptions<AskOptions<SchemaOutput<Questions[Name]>, false>, Name>,
  ): Promise<SchemaOutput<Questions[Name]>>;
  /** A question with a schema of its own, with the facts about its answer. */
  <Output>(
    question: Question,
    options: AskOptions<Output, true> & { readonly schema: StandardSchema<unknown, Output>; readonly details: true },
  ): Promise<AnswerDetails<Output>>;
  /** A question with a schema of its own. */
  <Output>(
    question: Question,
    options: AskOptions<Output, false> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output>;
  /** Any other question, with the facts about its answer. */
  <Name extends string>(
    question: Question,
    options: OtherOptions<AskOptions<Message | JsonObject, true>, Name, Questions> & { readonly details: true },
  ): Promise<AnswerDetails<Message | JsonObject>>;
  /** Any other question. */
  <Name extends string>(
    question: Question,
    options?: OtherOptions<AskOptions<Message | JsonObject, false>, Name, Questions>,
  ): Promise<Message | JsonObject>;
  /** With a default that may be null, the answer may be null too. */
  <Name extends keyof Questions>(
    question: Question,
    options: DeclaredOptions<OrNull<AskOptions<SchemaOutput<Questions[Name]>, true>>, Name> & {
      readonly details: true;
    },
  ): Promise<AnswerDetails<SchemaOutput<Questions[Name]> | null>>;
  <Name extends keyof Questions>(
    question: Question,
    options: DeclaredOptions<OrNull<AskOptions<SchemaOutput<Questions[Name]>, false>>, Name>,
  ): Promise<SchemaOutput<Questions[Name]> | null>;
  <Output>(
    question: Question,
    options: OrNull<AskOptions<Output, true>> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<AnswerDetails<Output | null>>;
  <Output>(
    question: Question,
    options: OrNull<AskOptions<Output, false>> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output | null>;
  <Name extends string>(
    question: Question,
    options: OtherOptions<OrNull<AskOptions<Message | JsonObject, true>>, Name, Questions> & { readonly details: true },
  ): Promise<AnswerDetails<Message | JsonObject | null>>;
  <Name extends string>(
    question: Question,
    options: OtherOptions<OrNull<AskOptions<Message | JsonObject, false>>, Name, Questions>,
  ): Promise<Message | JsonObject | null>;
}

/** See {@link TypedContext.receive}. */
export interface DeclaredReceive<Messages> {
  /** A declared message, with the facts about it. */
  <Name extends keyof Messages>(
    name: Name,
    options: ReceiveOptions<SchemaOutput<Messages[Name]>, true> & {
      readonly schema?: undefined;
      readonly details: true;
    },
  ): Promise<MessageDetails<SchemaOutput<Messages[Name]>>>;
  /** A declared message. */
  <Name extends keyof Messages>(
    name: Name,
    options?: ReceiveOptions<SchemaOutput<Messages[Name]>, false> & { readonly schema?: undefined },
  ): Promise<SchemaOutput<Messages[Name]>>;
  /** A message with a schema of its own, with the facts about it. */
  <Output>(
    name: string,
    options: ReceiveOptions<Output, true> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<MessageDetails<Output>>;
  /** A message with a schema of its own. */
  <Output>(
    name: string,
    options: ReceiveOptions<Output, false> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output>;
  /** Any other message, with the facts about it. */
  <Name extends string>(
    name: Other<Name, Messages>,
    options: ReceiveOptions<JsonValue, true> & { readonly schema?: undefined; readonly details: true },
  ): Promise<MessageDetails<JsonValue>>;
  /** Any other message. */
  <Name extends string>(
    name: Other<Name, Messages>,
    options?: ReceiveOptions<JsonValue, false> & { readonly schema?: undefined },
  ): Promise<JsonValue>;
  /** With a default that may be null, the result may be null too. */
  <Name extends keyof Messages>(
    name: Name,
    options: OrNull<ReceiveOptions<SchemaOutput<Messages[Name]>, true>> & {
      readonly schema?: undefined;
      readonly details: true;
    },
  ): Promise<MessageDetails<SchemaOutput<Messages[Name]> | null>>;
  <Name extends keyof Messages>(
    name: Name,
    options: OrNull<ReceiveOptions<SchemaOutput<Messages[Name]>, false>> & { readonly schema?: undefined },
  ): Promise<SchemaOutput<Messages[Name]> | null>;
  <Output>(
    name: string,
    options: OrNull<ReceiveOptions<Output, true>> & {
      readonly schema: StandardSchema<unknown, Output>;
      readonly details: true;
    },
  ): Promise<MessageDetails<Output | null>>;
  <Output>(
    name: string,
    options: OrNull<ReceiveOptions<Output, false>> & { readonly schema: StandardSchema<unknown, Output> },
  ): Promise<Output | null>;
}

type DeclaredOptions<Options, Name> = Omit<Options, "name" | "schema"> & {
  readonly name: Name;
  readonly schema?: undefined;
};

type OtherOptions<Options, Name extends string, Declared> = Omit<Options, "name" | "schema"> & {
  readonly name?: Other<Name, Declared> | undefined;
  readonly schema?: undefined;
};

/** A name that is not declared, so that a wrong use of a declared name is not taken for a right use of another. */
type Other<Name extends string, Declared> = Name extends keyof Declared ? never : Name;
