import { isPromise } from "../../core/promises.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import type { AwaitResume } from "../../protocol/run.ts";
import type { Agent, AgentFunction, AgentOptions, AgentValue } from "./agent.ts";
import { checkAgent, newAgent } from "./agent.ts";
import type { AgentContext, DurableContext } from "./agent-context.ts";
import type { AgentSchemas, SchemasByName } from "./agent-schemas.ts";
import { outputPart, readInputValue } from "./agent-schemas.ts";
import type { AnswerDetails, AskOptions, MessageDetails, OrNull, Question, ReceiveOptions } from "./agent-waits.ts";
import { checkFunction } from "./check.ts";
import type { Generator as Driven } from "./generator.ts";
import { ContinueAsNew, isGenerator } from "./generator.ts";
import type { SchemaHost, SchemaInput, SchemaOutput, StandardSchema } from "./standard-schema.ts";

/** An agent that has its name and its options. `run` adds the function, whose types follow from the schemas. */
export interface AgentDraft<Name extends string, Schemas extends AgentSchemas, Durable extends boolean> {
  /**
   * Makes the agent. The function is one of the four forms of an agent function. With an `output` schema it returns a
   * value of the schema's input, and yields what any agent may yield. Throws `invalid_argument` for anything but a
   * function.
   */
  run(fn: TypedAgentFunction<Schemas, Durable>): Agent<Name, Schemas>;
}

/** The function of a typed agent. */
export type TypedAgentFunction<Schemas extends AgentSchemas, Durable extends boolean> = (
  input: Schemas["input"] extends infer Schema extends StandardSchema ? SchemaOutput<Schema> : readonly Message[],
  context: TypedContext<Schemas, Durable>,
) => Schemas["output"] extends infer Schema extends StandardSchema ? TypedResult<SchemaInput<Schema>> : UntypedResult;

/** What an agent may emit. An object of an interface type has no index signature, and may be emitted all the same. */
type Emitted = AgentValue | object;

type UntypedResult =
  | AsyncGenerator<Emitted, unknown, AwaitResume>
  | Generator<Emitted, unknown, AwaitResume>
  | Promise<unknown>
  | AgentValue;

type TypedResult<Returned> =
  | AsyncGenerator<Emitted, Returned | ContinueAsNew, AwaitResume>
  | Generator<Emitted, Returned | ContinueAsNew, AwaitResume>
  | Promise<Returned | ContinueAsNew>
  | Returned
  | ContinueAsNew;

/**
 * Makes an agent as a value. A name has 1 to 63 letters, digits, `-` or `_`. With a function it is an agent as
 * `register` takes it too. Without one it is a typed agent, whose `run` takes the function: the schemas of its options
 * give the types of its input, its output, its questions and its messages. Throws `invalid_argument` for an invalid
 * name, option or function.
 *
 * @example
 * ```ts
 * import { AgentRuntime, defineAgent } from "cadenza";
 * import { z } from "zod";
 *
 * const echo = defineAgent("echo", async function* (input) {
 *   yield* input;
 * });
 *
 * const Ticket = z.object({ text: z.string() });
 * const Category = z.object({ category: z.enum(["refund", "other"]) });
 * const triage = defineAgent("triage", { input: Ticket, output: Category }).run(async ({ text }) => {
 *   return { category: text.includes("money") ? "refund" : "other" };
 * });
 *
 * const runtime = new AgentRuntime({ agents: [echo, triage] });
 * const { category } = await runtime.call(triage, { text: "I want my money back." });
 * console.log(category); // → refund
 * ```
 */
export function defineAgent<const Name extends string>(name: Name, fn: AgentFunction): Agent<Name>;
export function defineAgent<
  const Name extends string,
  Input extends StandardSchema | undefined = undefined,
  Output extends StandardSchema | undefined = undefined,
  Questions extends SchemasByName | undefined = undefined,
  Messages extends SchemasByName | undefined = undefined,
  Carry extends StandardSchema | undefined = undefined,
  Durable extends boolean = false,
>(
  name: Name,
  options: AgentOptions & {
    readonly input?: Input | undefined;
    readonly output?: Output | undefined;
    readonly questions?: Questions | undefined;
    readonly messages?: Messages | undefined;
    readonly carry?: Carry | undefined;
    readonly durable?: Durable | undefined;
  },
): AgentDraft<
  Name,
  {
    readonly input: Input;
    readonly output: Output;
    readonly questions: Questions;
    readonly messages: Messages;
    readonly carry: Carry;
  },
  Durable
>;
export function defineAgent<const Name extends string>(
  name: Name,
  options: AgentOptions & { readonly durable: true },
  fn: AgentFunction<DurableContext>,
): Agent<Name>;
export function defineAgent<const Name extends string>(
  name: Name,
  options: AgentOptions,
  fn: AgentFunction,
): Agent<Name>;
export function defineAgent(
  name: string,
  ...rest: [AgentFunction] | [AgentOptions & AgentSchemas] | [AgentOptions, AgentFunction]
): Agent | AgentDraft<string, AgentSchemas, boolean> {
  const [first] = rest;
  if (typeof first === "function") return newAgent(name, {}, first, "plain");
  if (rest.length > 1) return newAgent(name, first, rest[1] as AgentFunction, "plain");
  // A mistake for the function is likelier than one for the options.
  if (typeof first !== "object") checkFunction("fn", first);
  const options: AgentOptions & AgentSchemas = first;
  checkAgent(name, options, "typed");
  return {
    run: (fn) => {
      checkFunction("fn", fn);
      return { name, options, fn: untypedFunction(name, options, fn) };
    },
  };
}

/** Makes the function that the runtime calls for the function of a typed agent. */
function untypedFunction<Schemas extends AgentSchemas, Durable extends boolean>(
  name: string,
  { input: inputSchema, output: outputSchema }: Schemas,
  fn: TypedAgentFunction<Schemas, Durable>,
): AgentFunction {
  // The types of both sides follow from the schemas, by which the values are validated.
  const call = fn as (input: unknown, context: unknown) => unknown;
  return ((input: readonly Message[], context: AgentContext) => {
    const value = inputSchema === undefined ? input : readInputValue(name, inputSchema, input, hostOf(name, context));
    const result = isPromise(value) ? value.then((later) => call(later, context)) : call(value, context);
    if (outputSchema === undefined) return result;
    return isPromise(result)
      ? result.then((later) => withOutput(name, outputSchema, later, context))
      : withOutput(name, outputSchema, result, context);
  }) as AgentFunction;
}

/** The result of the function, with its output as a part. */
function withOutput(name: string, schema: StandardSchema, result: unknown, context: AgentContext): unknown {
  if (isGenerator(result)) return generateOutput(name, schema, result, context);
  return result instanceof ContinueAsNew ? result : outputPart(name, schema, result, hostOf(name, context));
}

async function* generateOutput(
  name: string,
  schema: StandardSchema,
  generator: Driven,
  context: AgentContext,
): AsyncGenerator<unknown, unknown, unknown> {
  const returned = yield* generator as AsyncGenerator<unknown, unknown, unknown>;
  return returned instanceof ContinueAsNew ? returned : outputPart(name, schema, returned, hostOf(name, context));
}

/** What the schemas of the agent itself are called with. The time of the run limits theirs. */
function hostOf(agent_name: string, { run_id, logger }: AgentContext): SchemaHost {
  return { logger, about: { run_id, agent_name } };
}

/** The context of a typed agent: an {@link AgentContext} that knows the declared questions and messages. */
export interface TypedContext<Schemas extends AgentSchemas, Durable extends boolean>
  extends Omit<AgentContext, "ask" | "receive" | "step" | "carry" | "continueAsNew"> {
  /** As {@link AgentContext.ask}. A question with a declared name is answered by the schema of that name. */
  readonly ask: DeclaredAsk<Named<Schemas["questions"]>>;
  /** As {@link AgentContext.receive}. A message with a declared name has the schema of that name. */
  readonly receive: DeclaredReceive<Named<Schemas["messages"]>>;
  readonly step: Durable extends true ? DurableContext["step"] : AgentContext["step"];
  /** As {@link AgentContext.carry}: the output of the declared schema. */
  readonly carry: Schemas["carry"] extends infer Schema extends StandardSchema
    ? SchemaOutput<Schema> | undefined
    : AgentContext["carry"];
  /** As {@link AgentContext.continueAsNew}, with the input of the declared schema. */
  readonly continueAsNew: Schemas["carry"] extends infer Schema extends StandardSchema
    ? (carry: SchemaInput<Schema>) => ContinueAsNew
    : AgentContext["continueAsNew"];
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
