import type { AgentError } from "../../core/errors.ts";
import type { Metadata } from "../../protocol/agent.ts";
import { agentNameSchema, metadataSchema } from "../../protocol/agent.ts";
import type { Message, MessageInput, MessagePartInput } from "../../protocol/message.ts";
import type { AwaitResume } from "../../protocol/run.ts";
import type { AgentContext } from "./agent-context.ts";
import type { AgentSchemas } from "./agent-schemas.ts";
import { checkSchemas } from "./agent-schemas.ts";
import type { Question } from "./agent-waits.ts";
import {
  badArgument,
  checkAmount,
  checkCount,
  checkFunction,
  checkKey,
  checkKeys,
  checkObject,
  maxLengths,
  read,
} from "./check.ts";
import type { AwaitYield } from "./generator.ts";
import type { QueueingOptions } from "./queueing.ts";
import { checkQueueing } from "./queueing.ts";
import type { BudgetOptions } from "./usage.ts";
import { readBudget } from "./usage.ts";

/**
 * An agent: an async generator, a generator, an async function or a plain function. It emits what it yields and
 * returns. A value's kind is decided in this order: null or undefined closes the open message; a string is appended to
 * it; an await request (see {@link awaitMessage}) asks the client; an `AgentError` fails the run; an iterable emits its
 * items; an object with `parts` is a message; one with a string `content` or `content_url` is a part; any other plain
 * object is a generic event. Anything else fails the run with `invalid_yield`. The function of a durable agent is an
 * `AgentFunction<DurableContext>`.
 */
export type AgentFunction<Context extends AgentContext = AgentContext> = (
  input: readonly Message[],
  context: Context,
) => AgentResult;

/**
 * The result of an agent function. `yield` returns the client's answer to an await request, and undefined for all other
 * values. (The union lists its members, because with `unknown` among them TypeScript could not infer the type of
 * `yield`.)
 */
export type AgentResult =
  | AsyncGenerator<unknown, unknown, AwaitResume>
  | Generator<unknown, unknown, AwaitResume>
  | Promise<unknown>
  | AgentValue;

/** The values that a plain function may return. */
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

/** The options of an agent. All are optional. */
export interface AgentOptions extends QueueingOptions {
  /** One sentence for the manifest. Default: an empty string. */
  readonly description?: string | undefined;
  /** Metadata for the manifest (ACP 1.0). Default: an empty object. */
  readonly metadata?: Metadata | undefined;
  /** The media types of its input, for the manifest. Default: all. */
  readonly inputContentTypes?: readonly string[] | undefined;
  /** The media types of its output, for the manifest. Default: all. */
  readonly outputContentTypes?: readonly string[] | undefined;
  /** The version of the code. A run is executed only by the version that it was created with. Default: none. */
  readonly version?: string | undefined;
  /**
   * Whether runs survive the end of the process. Needs a durable store. With any other store the agent works, its runs
   * end with the process, and the logger is warned once. Default: false.
   */
  readonly durable?: boolean | undefined;
  /**
   * How long a run may be active, in milliseconds. What it waits for does not count, nor the queue for a slot. A run
   * that exceeds it fails with the reason `run_timeout`. A sub-run has no more than is left above it. Default: the
   * runtime's `timeoutMs`.
   */
  readonly timeoutMs?: number | undefined;
  /** How many tokens a run and its sub-runs may use. A run may have its own. Default: no limit. */
  readonly budget?: BudgetOptions | undefined;
  /** How many runs may be active at the same time. Default: no limit. */
  readonly concurrency?: ConcurrencyOptions | undefined;
}

/** How many runs of an agent may be active at the same time: over all processes of a durable store that persists. */
export interface ConcurrencyOptions {
  /** The number of slots, a whole number from 1 on, or `Infinity`. */
  readonly max: number;
  /**
   * `agent`: all runs of the agent share the slots. `tenant`: each tenant has its own. `session`: each session has its
   * own. `process`: the runs of each process share them, whatever the store is. Default: `agent`.
   */
  readonly per?: "agent" | "tenant" | "session" | "process" | undefined;
  /**
   * `queue`: a run stays `created` until a slot is free. `reject`: `createRun` throws `limit_reached`. Default:
   * `queue`.
   */
  readonly whenFull?: "queue" | "reject" | undefined;
}

/** How an agent is registered. */
export interface Registration {
  /**
   * Whether to replace a registered agent of the same name and version, for hot reload. Loaded runs keep the old
   * function. Default: false.
   */
  readonly replace?: boolean | undefined;
  /**
   * Whether new runs of the name use this version, whatever the order of registration. At most one version of a name
   * says true. False: they never use it, as where only open runs need the code. Default: they use the version that was
   * registered last, unless another one says true.
   */
  readonly current?: boolean | undefined;
}

/** An agent as a value; `register` takes it. Made by {@link defineAgent}. */
export interface Agent<Name extends string = string, Schemas extends AgentSchemas = AgentSchemas> {
  /** 1 to 63 letters, digits, `-` or `_`. */
  readonly name: Name;
  readonly options: AgentOptions & Schemas;
  /** What a run calls, with its input and its context. */
  readonly fn: AgentFunction;
}

/** What is known of an agent that another process executes: see {@link AgentRuntime.declare}. */
export interface AgentDeclaration<Name extends string = string>
  extends AgentOptions,
    AgentSchemas,
    Pick<Registration, "current"> {
  /** 1 to 63 letters, digits, `-` or `_`. */
  readonly name: Name;
}

const optionNames: readonly (keyof AgentOptions | keyof Registration)[] = [
  "description",
  "metadata",
  "inputContentTypes",
  "outputContentTypes",
  "version",
  "durable",
  "timeoutMs",
  "budget",
  "concurrency",
  "limits",
  "priority",
  "fairBy",
  "replace",
  "current",
];
const schemaNames: readonly (keyof AgentSchemas)[] = ["input", "output", "questions", "messages", "carry"];

/** The options of a `typed` agent may have schemas. */
export type AgentKind = "plain" | "typed";

/** Makes an agent. Throws `invalid_argument`. */
export function newAgent(
  name: string,
  options: AgentOptions & AgentSchemas,
  fn: AgentFunction,
  kind: AgentKind,
): Agent {
  checkAgent(name, options, kind);
  checkFunction("fn", fn);
  return { name, options, fn };
}

/**
 * Makes the await request that a generator yields to ask the client: `const answer = yield awaitMessage("Sure?")`. The
 * answer is the protocol's `await_resume`: a message, or any object. `timeoutMs`, in milliseconds, and `default` mean the
 * same as in {@link AskOptions}. Throws `invalid_argument` if there is no question.
 */
export function awaitMessage(
  message: Question,
  options: { readonly timeoutMs?: number; readonly default?: unknown } = {},
): AwaitYield {
  // An object without a message would be emitted as a generic event, and ask nothing.
  if (message === null || message === undefined)
    throw badArgument("question", "a string, a part or a message", message);
  return { type: "message", message, ...options };
}

/** Throws `invalid_argument` for an invalid name or option of an agent. */
export function checkAgent(name: string, options: AgentOptions & AgentSchemas, kind: AgentKind): void {
  if (!agentNameSchema.safeParse(name).success) throw badArgument("name", "1 to 63 letters, digits, - or _", name);
  checkObject("options", options);
  checkKeys("options", options, kind === "typed" ? [...optionNames, ...schemaNames] : optionNames);
  checkSchemas(options);
  const { description, metadata, version, durable, timeoutMs, concurrency, inputContentTypes, outputContentTypes } =
    options;
  if (description !== undefined && typeof description !== "string")
    throw badArgument("options.description", "a string", description);
  if (version !== undefined) checkKey("options.version", version, maxLengths.version);
  if (metadata !== undefined) read("options.metadata", metadataSchema, metadata);
  if (durable !== undefined && typeof durable !== "boolean")
    throw badArgument("options.durable", "true or false", durable);
  if (timeoutMs !== undefined) checkAmount("options.timeoutMs", timeoutMs);
  readBudget("options.budget", options.budget);
  checkContentTypes("options.inputContentTypes", inputContentTypes);
  checkContentTypes("options.outputContentTypes", outputContentTypes);
  if (concurrency !== undefined) checkConcurrency(concurrency);
  checkQueueing(options, concurrency?.per);
}

function checkContentTypes(name: string, types: unknown): void {
  if (types === undefined) return;
  const valid = Array.isArray(types) && types.length > 0 && [...types].every((type) => typeof type === "string");
  if (!valid) throw badArgument(name, "a list of media types that is not empty", types);
}

const scopes: ReadonlySet<unknown> = new Set(["agent", "tenant", "session", "process"]);

function checkConcurrency(concurrency: ConcurrencyOptions): void {
  checkObject("options.concurrency", concurrency);
  checkKeys("options.concurrency", concurrency, ["max", "per", "whenFull"]);
  const { max, per = "agent", whenFull = "queue" } = concurrency;
  checkCount("options.concurrency.max", max, 1);
  if (!scopes.has(per)) throw badArgument("options.concurrency.per", '"agent", "tenant", "session" or "process"', per);
  if (whenFull !== "queue" && whenFull !== "reject")
    throw badArgument("options.concurrency.whenFull", '"queue" or "reject"', whenFull);
}
