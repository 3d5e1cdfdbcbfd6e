import type { CadenzaErrorDetails } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import { badArgument, checkObject } from "./check.ts";
import type { RunInput } from "./input.ts";
import { isJsonPart, isValue, validateMessages } from "./input.ts";
import { recordedValue } from "./recorded.ts";
import type { SchemaHost, SchemaInput, SchemaOutput, StandardSchema, Validated } from "./standard-schema.ts";
import { isStandardSchema, jsonSchemaOf, validateAccepted, validateFirst } from "./standard-schema.ts";

/** What an agent declares: the schemas of its input, its output, its questions and its messages. */
export interface AgentSchemas {
  /**
   * Its input. The agent gets the schema's output. It is read from the first JSON part of the input, or from its text. A
   * run with another input is refused with `invalid_input`. Default: any input, and the agent gets messages.
   */
  readonly input?: StandardSchema | undefined;
  /**
   * What it returns. It is emitted as a JSON part with the name `output`, as the agent has returned it. A run that
   * returns something else fails with `invalid_output`. Default: none, and what it returns is emitted as it is.
   */
  readonly output?: StandardSchema | undefined;
  /** The answers to its questions, by the `name` of the question. Default: each question brings its own schema. */
  readonly questions?: SchemasByName | undefined;
  /**
   * The messages that it receives, by name. A message of such a name that does not match is refused at its sender with
   * `message_rejected`. Default: none are declared.
   */
  readonly messages?: SchemasByName | undefined;
  /**
   * What a generation gives the next one with `continueAsNew`, which gets the schema's output as `context.carry`. The schema
   * answers at once, and not with a promise. Default: any JSON value.
   */
  readonly carry?: StandardSchema | undefined;
}

/** Schemas by name. */
export interface SchemasByName {
  readonly [name: string]: StandardSchema;
}

/** An agent as far as its callers are concerned. */
export interface CallableAgent {
  readonly name: string;
  readonly options: AgentSchemas;
}

/** What an agent is called with: the input of its schema, or without one any input of a run. */
export type AgentInput<Called extends CallableAgent> = Called["options"]["input"] extends infer Schema extends
  StandardSchema
  ? SchemaInput<Schema>
  : RunInput;

/** What a call of an agent gives: the output of its schema, or without one the messages of the run. */
export type AgentOutput<Called extends CallableAgent> = Called["options"]["output"] extends infer Schema extends
  StandardSchema
  ? SchemaOutput<Schema>
  : readonly Message[];

/** The name of the part that holds the output of an agent. */
const OUTPUT = "output";

/** Throws `invalid_argument` for declarations that are not schemas. */
export function checkSchemas({ input, output, questions, messages, carry }: AgentSchemas): void {
  checkSchema("options.input", input);
  checkSchema("options.output", output);
  checkSchema("options.carry", carry);
  checkSchemasByName("options.questions", questions);
  checkSchemasByName("options.messages", messages);
}

/** The input of a run that calls an agent with a value. Throws `invalid_argument` for a value that is not JSON. */
export function inputFor({ options }: CallableAgent, value: unknown): RunInput {
  return options.input === undefined ? (value as RunInput) : jsonPart(recordedValue("input", value) ?? null);
}

/** As {@link inputFor}, for what is JSON already, as a body is. A value is written as it is, and not copied first. */
export function jsonInputFor({ options }: CallableAgent, value: JsonValue): RunInput {
  return options.input !== undefined || isValue(value) ? jsonPart(value) : (value as RunInput);
}

/** Throws `invalid_input` if a run cannot have this input. */
export function checkInput(
  { name, options }: CallableAgent,
  input: readonly Message[],
  host: SchemaHost,
): undefined | Promise<unknown> {
  if (options.input === undefined) return undefined;
  const read = validateMessages(options.input, input, aboutAgent(host, name), validateFirst);
  if (isPromise(read)) return acceptedLater(name, read);
  accepted(name, read);
  return undefined;
}

/** What the agent gets for the input of its run. */
export function readInputValue(
  name: string,
  schema: StandardSchema,
  input: readonly Message[],
  host: SchemaHost,
): MaybePromise<unknown> {
  const read = validateMessages(schema, input, host, validateAccepted);
  return isPromise(read) ? acceptedLater(name, read) : accepted(name, read);
}

/** The part for what an agent has returned. Throws `invalid_output`. */
export async function outputPart(
  name: string,
  schema: StandardSchema,
  returned: unknown,
  host: SchemaHost,
): Promise<MessagePart> {
  const value = jsonOutput(name, returned);
  const read = await validateAccepted(schema, [value], host);
  if ("issues" in read) throw invalidOutput(name, "has returned a value that does not match its schema", read);
  return { name: OUTPUT, ...jsonPart(value ?? null) };
}

/** What a call of the agent gives for a run that has completed. Throws `invalid_output`. */
export async function readOutput(agent: CallableAgent, run: Run, host: SchemaHost): Promise<unknown> {
  const { name, options } = agent;
  if (options.output === undefined) return run.output;
  const part = run.output.flatMap(({ parts }) => parts.filter(isOutput)).at(-1);
  if (part === undefined) throw invalidOutput(name, "has completed without an output", {}, run.run_id);
  const about = { run_id: run.run_id, agent_name: name };
  const read = await validateAccepted(options.output, [JSON.parse(part.content ?? "")], { ...host, about });
  if ("issues" in read) throw invalidOutput(name, "has an output that does not match its schema", read, run.run_id);
  return read.value;
}

/** The options with the schema that is declared for a name, unless they have one. */
export function withDeclared<Options extends { readonly schema?: StandardSchema | undefined }>(
  schemas: SchemasByName | undefined,
  name: string | undefined,
  options: Options,
): Options {
  if (schemas === undefined || name === undefined || options.schema !== undefined || !Object.hasOwn(schemas, name))
    return options;
  return { ...options, schema: schemas[name] };
}

/** What an agent gets for what an earlier generation has given it. Throws `invalid_argument` for what its schema does not accept. */
export function readCarry({ name, options }: CallableAgent, carry: JsonValue | undefined, host: SchemaHost): unknown {
  if (options.carry === undefined) return carry;
  const read = validateAccepted(options.carry, [carry], host);
  if (isPromise(read)) throw badArgument("options.carry", "a schema that answers without a promise", options.carry);
  if ("value" in read) return read.value;
  const message = `The carry does not match the schema of agent ${JSON.stringify(name)}.`;
  throw new CadenzaError("invalid_argument", message, { agent_name: name, issues: read.issues });
}

/** Throws `message_rejected` if the agent declares messages of this name, and this is none. */
export async function checkMessage(
  { name: agent_name, options }: CallableAgent,
  name: string,
  data: JsonValue,
  host: SchemaHost,
): Promise<void> {
  const { schema } = withDeclared(options.messages, name, noSchema);
  if (schema === undefined) return;
  const read = await validateFirst(schema, [data], aboutAgent(host, agent_name));
  if ("value" in read) return;
  const message = `The message ${JSON.stringify(name)} does not match the schema of agent ${JSON.stringify(agent_name)}.`;
  throw new CadenzaError("message_rejected", message, { agent_name, issues: read.issues });
}

const noSchema: { readonly schema?: StandardSchema | undefined } = {};

/** The schemas as JSON Schema, for the manifest. Undefined: none is declared. */
export function describeSchemas({ input, output, questions, messages }: AgentSchemas): JsonObject | undefined {
  const described: Record<string, JsonValue> = {};
  if (input !== undefined) described["input"] = describe(input);
  if (output !== undefined) described["output"] = describe(output);
  if (questions !== undefined) described["questions"] = describeByName(questions);
  if (messages !== undefined) described["messages"] = describeByName(messages);
  return Object.keys(described).length > 0 ? described : undefined;
}

/** A schema that cannot be converted accepts anything as far as its reader knows. */
function describe(schema: StandardSchema): JsonObject {
  return JSON.parse(jsonSchemaOf(schema) ?? "{}") as JsonObject;
}

function describeByName(schemas: SchemasByName): JsonObject {
  return Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, describe(schema)]));
}

function aboutAgent({ clock, logger }: SchemaHost, agent_name: string): SchemaHost {
  return { clock, logger, about: { agent_name } };
}

function jsonOutput(name: string, returned: unknown): JsonValue | undefined {
  try {
    return recordedValue("output", returned);
  } catch (error) {
    if (!CadenzaError.is(error)) throw error;
    throw invalidOutput(name, "has returned a value that is not JSON", error);
  }
}

function isOutput(part: MessagePart): boolean {
  return part.name === OUTPUT && isJsonPart(part);
}

function accepted(name: string, read: Validated): unknown {
  if ("value" in read) return read.value;
  const message = `The input does not match the schema of agent ${JSON.stringify(name)}.`;
  throw new CadenzaError("invalid_input", message, { agent_name: name, issues: read.issues });
}

async function acceptedLater(name: string, read: Promise<Validated>): Promise<unknown> {
  return accepted(name, await read);
}

function invalidOutput(
  name: string,
  what: string,
  { issues = [] }: { readonly issues?: CadenzaError["issues"] },
  run_id?: string,
): CadenzaError {
  const details: CadenzaErrorDetails = { agent_name: name, issues, ...(run_id !== undefined && { run_id }) };
  return new CadenzaError("invalid_output", `Agent ${JSON.stringify(name)} ${what}.`, details);
}

function checkSchema(name: string, schema: unknown): void {
  if (schema !== undefined && !isStandardSchema(schema)) throw badArgument(name, "a Standard Schema", schema);
}

function checkSchemasByName(name: string, schemas: unknown): void {
  if (schemas === undefined) return;
  checkObject(name, schemas);
  for (const [key, schema] of Object.entries(schemas as object)) checkSchema(`${name}.${key}`, schema);
}
