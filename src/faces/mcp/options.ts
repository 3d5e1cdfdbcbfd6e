import type { RpcMessage, RpcRequest } from "../../http/json-rpc.ts";
import type { HttpOptions, HttpSettings } from "../../http/options.ts";
import { amountsIn, bad, checkKeys, isTexts, readHttpOptions } from "../../http/options.ts";
import type { Frame } from "../../http/rpc-text.ts";
import { sseFrame } from "../../http/rpc-text.ts";
import { Seal } from "../../http/seal.ts";
import type { Call } from "../../http/service.ts";
import type { OpenQuestionDetails } from "../../protocol/extensions.ts";
import { isJsonObject } from "../../protocol/json.ts";

/** How agents are served as tools of MCP. Every property may be left out. */
export interface McpOptions extends HttpOptions {
  /**
   * Authenticates what clients keep for the server: `requestState`, and the session ids of older clients. All processes
   * behind one address need the same. Of a list the first one seals and all verify, so that a secret can be replaced.
   * At least 32 characters. Default: a random one, so that another process, or this one after a restart, does not take
   * them. Tasks need none.
   */
  readonly secret?: string | readonly string[] | undefined;
  /**
   * Which agents are called as tasks by clients that declare the tasks extension: all, none, or these. Default: those that
   * are durable. An object says it of each agent by its name:
   *
   * - `optional`: other clients get the result of the call.
   * - `required`: other clients are refused.
   * - `answered`: as `optional`, but that the call asks the first questions itself. It becomes a task by their answers.
   */
  readonly tasks?:
    | boolean
    | readonly string[]
    | Readonly<Record<string, "optional" | "required" | "answered">>
    | undefined;
  /** What the server says of itself. Default: the name `cadenza` and the version `1.0.0`. */
  readonly serverInfo?:
    | { readonly name: string; readonly version: string; readonly title?: string | undefined }
    | undefined;
  /** What a model should know to use the tools together. Default: none. */
  readonly instructions?: string | undefined;
  /** How long a client may keep the list of tools, in milliseconds. Default: 60,000. */
  readonly ttlMs?: number | undefined;
  /** How long a question can be answered by a call that repeats its state, in milliseconds. Default: 24 hours. */
  readonly stateTtlMs?: number | undefined;
  /** How often clients should ask for a task, in milliseconds. Default: 1,000. */
  readonly pollIntervalMs?: number | undefined;
}

const taskModes = ["optional", "required", "answered"] as const;
type TaskMode = (typeof taskModes)[number];

/** The options with their defaults. */
export interface McpSettings extends HttpSettings {
  readonly seal: Seal;
  /** How the open streams of calls show a question again. A client from before `2026-07-28` answers in another request. */
  readonly asking: Map<string, (question: OpenQuestionDetails, reason: string) => void>;
  /** How calls of an agent become tasks. Undefined: calls of durable agents do. */
  readonly tasks: boolean | ReadonlyMap<string, TaskMode> | undefined;
  readonly serverInfo: { readonly name: string; readonly version: string; readonly title?: string };
  /** What clients of both eras get with `serverInfo`. */
  readonly about: { readonly instructions?: string };
  readonly ttlMs: number;
  readonly stateTtlMs: number;
  readonly pollIntervalMs: number;
  /** What separates the messages of a response. Messages in lines have no headers. */
  readonly frame: Frame;
}

/** A request of MCP while it is answered. */
export type McpCall = Call<McpSettings>;

/** A request of MCP whose message has been read. */
export interface RpcCall<Message extends RpcMessage = RpcRequest> extends McpCall {
  readonly message: Message;
  readonly peer: Peer;
}

/** The client of a request, as far as the request or its session says. */
export interface Peer {
  /** Whether it is a client of `2026-07-28` and later, or one from before. */
  readonly isModern: boolean;
  /** Whether it shows forms to its user. */
  readonly elicits: boolean;
  readonly hasTasks: boolean;
  /** Tells the session from all others, before `2026-07-28`. Undefined: the client has none. */
  readonly session: string | undefined;
}

const MIN_SECRET_LENGTH = 32;
const DAY_MS = 86_400_000;
const timeDefaults = { ttlMs: 60_000, stateTtlMs: DAY_MS, pollIntervalMs: 1_000 };

const names = ["secret", "tasks", "serverInfo", "instructions", ...Object.keys(timeDefaults)];

/** Reads the options of a handler. Throws `invalid_argument` for an invalid one. */
export function readMcpOptions(options: McpOptions, frame = sseFrame): McpSettings {
  const settings = readHttpOptions(options, names);
  const { secret = [], tasks, serverInfo = { name: "cadenza", version: "1.0.0" }, instructions } = options;
  const secrets = typeof secret === "string" ? [secret] : secret;
  if (!isTexts(secrets) || secrets.some(({ length }) => length < MIN_SECRET_LENGTH))
    throw bad("secret", `a text of at least ${MIN_SECRET_LENGTH} characters, or a list of them`);
  checkKeys("options.serverInfo", serverInfo, ["name", "version", "title"]);
  const { name, version, title } = serverInfo;
  if (!isTexts([name, version, title ?? ""])) throw bad("serverInfo", "texts as name, version and title");
  if (instructions !== undefined && typeof instructions !== "string") throw bad("instructions", "a text");
  return {
    ...settings,
    seal: new Seal("mcp", secrets),
    asking: new Map(),
    tasks: readTasks(tasks),
    serverInfo: { name, version, ...(title !== undefined && { title }) },
    about: { ...(instructions !== undefined && { instructions }) },
    ...amountsIn(timeDefaults, options),
    frame,
  };
}

function readTasks(tasks: McpOptions["tasks"]): McpSettings["tasks"] {
  if (tasks === undefined || typeof tasks === "boolean") return tasks;
  const named = isTexts(tasks) ? Object.fromEntries(tasks.map((name) => [name, "optional"] as const)) : tasks;
  const modes = isJsonObject(named) ? Object.entries(named) : undefined;
  if (modes?.every(([, mode]) => taskModes.includes(mode))) return new Map(modes);
  throw bad("tasks", `true, false, a list of names of agents, or an object from names to ${taskModes.join(", ")}`);
}
