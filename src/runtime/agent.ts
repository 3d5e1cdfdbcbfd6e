import type { AgentError } from "../core/errors.ts";
import type { Metadata } from "../protocol/agent.ts";
import { agentNameSchema, metadataSchema } from "../protocol/agent.ts";
import type { Message, MessageInput, MessagePartInput } from "../protocol/message.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { AgentContext, DurableContext, Question } from "./agent-context.ts";
import { badArgument, checkAmount, checkFunction, checkKeys, checkObject, checkText, read } from "./check.ts";
import type { AwaitYield } from "./yields.ts";

/**
 * An agent: an async generator, a generator, an async function or a plain function. What it yields and returns is
 * shown to the client, told apart in this order: null or undefined closes the open message; a string joins it; an
 * await request (see {@link awaitMessage}) asks the client; an `AgentError` fails the run; an iterable is drained; an object
 * with `parts` is a message; one with a string `content` or `content_url` is a part; any other plain object is a generic
 * event. Anything else fails the run.
 */
export type AgentFunction = (input: readonly Message[], context: AgentContext) => AgentResult;

/** The same for a durable agent: see {@link DurableContext}. */
export type DurableAgentFunction = (input: readonly Message[], context: DurableContext) => AgentResult;

/**
 * What an agent function gives. `yield` gives the client's answer to an await request, and undefined to anything else.
 * (The union names its members: with `unknown` among them TypeScript would not know what `yield` gives.)
 */
export type AgentResult =
  | AsyncGenerator<unknown, unknown, AwaitResume>
  | Generator<unknown, unknown, AwaitResume>
  | Promise<unknown>
  | AgentValue;

/** What a function that is neither a generator nor asynchronous may return. */
export type AgentValue =
  | string
  | null
  | undefined
  | readonly unknown[]
  | { readonly [key: string]: unknown }
  | Message
  | MessageInput
  | MessagePartInput
  | AwaitYield
  | AgentError;

/** How an agent is registered. Every property may be left out. */
export interface AgentOptions {
  /** One sentence for the manifest. Default: empty. */
  readonly description?: string | undefined;
  /** Static details for the manifest (ACP 1.0). */
  readonly metadata?: Metadata | undefined;
  /** Media types of input. Default: all. */
  readonly inputContentTypes?: readonly string[] | undefined;
  /** Media types of output. Default: all. */
  readonly outputContentTypes?: readonly string[] | undefined;
  /** Names this version of the code. Runs stay with the version that they were created for. */
  readonly version?: string | undefined;
  /** Whether runs outlive the process. Needs a store that persists. Default: false. */
  readonly durable?: boolean | undefined;
  /** How long a run may be active, in milliseconds; waiting for answers does not count. Default: the runtime's `timeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** How many runs may be active at once. Default: no limit. */
  readonly concurrency?: ConcurrencyOptions | undefined;
}

/** How many runs of an agent may be active at once. */
export interface ConcurrencyOptions {
  /** At least 1. */
  readonly max: number;
  /** Counted over all runs of the agent, or for each session by itself. Default: `agent`. */
  readonly per?: "agent" | "session" | undefined;
  /** What happens to a run without a slot: it stays `created` until there is one, or is refused. Default: `queue`. */
  readonly whenFull?: "queue" | "reject" | undefined;
}

/** How a name is registered. */
export interface RegisterOptions extends AgentOptions {
  /** Takes the place of an agent of the same name and version, for hot reload. Runs under way keep the old function. Default: false. */
  readonly replace?: boolean | undefined;
}

/** An agent as a value; `register` takes it. Made by {@link defineAgent}. */
export interface Agent {
  readonly name: string;
  readonly options: AgentOptions;
  readonly fn: AgentFunction;
}

const optionNames: readonly (keyof RegisterOptions)[] = [
  "description",
  "metadata",
  "inputContentTypes",
  "outputContentTypes",
  "version",
  "durable",
  "timeoutMs",
  "concurrency",
  "replace",
];

/** Makes an agent as a value. Throws `invalid_argument` for a name or an option that cannot be. */
export function defineAgent(name: string, fn: AgentFunction): Agent;
export function defineAgent(
  name: string,
  options: AgentOptions & { readonly durable: true },
  fn: DurableAgentFunction,
): Agent;
export function defineAgent(name: string, options: AgentOptions, fn: AgentFunction): Agent;
export function defineAgent(name: string, ...rest: [AgentFunction] | [AgentOptions, AgentFunction]): Agent {
  const [options, fn] = rest.length === 1 ? [{}, rest[0]] : rest;
  if (!agentNameSchema.safeParse(name).success) throw badArgument("name", "1 to 63 letters, digits, - or _", name);
  checkFunction("fn", fn);
  checkOptions(options);
  return { name, options, fn };
}

/**
 * The request that a generator yields to ask the client: `const answer = yield awaitMessage("Sure?")`. The answer is the
 * protocol's `await_resume`: a message, or any object.
 */
export function awaitMessage(
  message: Question,
  options: { readonly timeoutMs?: number; readonly default?: unknown } = {},
): AwaitYield {
  // Without a message it would be an object like any other, and ask nothing.
  if (message === null || message === undefined)
    throw badArgument("question", "a string, a part or a message", message);
  return { type: "message", message, ...options };
}

function checkOptions(options: RegisterOptions): void {
  checkObject("options", options);
  checkKeys("options", options, optionNames);
  const { description, metadata, version, durable, timeoutMs, concurrency, inputContentTypes, outputContentTypes } =
    options;
  if (description !== undefined && typeof description !== "string")
    throw badArgument("options.description", "a string", description);
  if (version !== undefined) checkText("options.version", version);
  if (metadata !== undefined) read("options.metadata", metadataSchema, metadata);
  if (durable !== undefined && typeof durable !== "boolean")
    throw badArgument("options.durable", "true or false", durable);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
  checkContentTypes("options.inputContentTypes", inputContentTypes);
  checkContentTypes("options.outputContentTypes", outputContentTypes);
  if (concurrency !== undefined) checkConcurrency(concurrency);
}

function checkContentTypes(name: string, types: unknown): void {
  if (types === undefined) return;
  const valid = Array.isArray(types) && types.length > 0 && types.every((type) => typeof type === "string");
  if (!valid) throw badArgument(name, "a list of media types that is not empty", types);
}

function checkConcurrency(concurrency: ConcurrencyOptions): void {
  checkObject("options.concurrency", concurrency);
  checkKeys("options.concurrency", concurrency, ["max", "per", "whenFull"]);
  const { max, per = "agent", whenFull = "queue" } = concurrency;
  if (typeof max !== "number" || !(max >= 1)) throw badArgument("options.concurrency.max", "a number from 1 on", max);
  if (per !== "agent" && per !== "session") throw badArgument("options.concurrency.per", '"agent" or "session"', per);
  if (whenFull !== "queue" && whenFull !== "reject")
    throw badArgument("options.concurrency.whenFull", '"queue" or "reject"', whenFull);
}
