import { CadenzaError } from "../core/errors.ts";
import type { QuestionKind } from "../core/log.ts";
import type { JsonValue } from "../protocol/json.ts";
import { JSON_LIMITS } from "../protocol/json-text.ts";
import type { AskedQuestion } from "../runtime/agent/answer.ts";

/**
 * What a client wants to do: the same words for all protocols and for the inspector.
 *
 * - `create`: to begin a run, and so also to talk in a chat or a thread
 * - `answer`: to answer or decline a question of a run
 * - `read`: to look at an agent, at a run with its events, or at a chat or a thread
 * - `list`: to list agents or runs
 * - `session`: to read a session and the messages in it by its id
 * - `cancel`, `send`, `fork`, `delete`: to do so with a run
 * - `ping`: to learn that the service is there, and what it looks like (`openapi.json`)
 */
export type Action = "create" | "answer" | "read" | "list" | "session" | "cancel" | "send" | "fork" | "delete" | "ping";

/**
 * A request to be authorized: before its body is read with what its path and query name, and again when the body has
 * named more, such as the agent of a new run or the question of an answer.
 */
export interface AuthorizeRequest extends RequestedObjects {
  readonly action: Action;
  /** The headers, by their names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /**
   * The request as the host sees it: `req` of Node with all that middleware added, or a `Request`. It is the same object
   * when the request is asked about again.
   */
  readonly request: unknown;
}

/** What a request is about, as far as it is known. */
export interface RequestedObjects {
  readonly agent_name?: string | undefined;
  /** The id of the run in its canonical form: lower case, with dashes. */
  readonly run_id?: string | undefined;
  /** The id of the session in its canonical form. Not of a chat that is named by `chat_id`. */
  readonly session_id?: string | undefined;
  /** The id that a page has given its chat, or an AG-UI host its thread. */
  readonly chat_id?: string | undefined;
  /** The name of the message that is sent, for the action `send`. */
  readonly message_name?: string | undefined;
  /** The question that is answered, for the action `answer`, once the body is read. */
  readonly question?: AskedQuestion | undefined;
}

/** What an authorized client may see. */
export interface Grant {
  /**
   * The tenant of the client's runs and sessions. Those of other tenants do not exist for it. Default: the empty
   * tenant.
   */
  readonly tenant?: string | undefined;
  /**
   * What agents see as `context.principal`. A text is the id of a user, and so is the `id` of an object. What the client
   * creates is that user's.
   */
  readonly principal?: JsonValue | undefined;
  /**
   * Whether only runs, sessions and chats exist for the client that its user has created. The `principal` then has to name a
   * user. Default: false, all of the tenant exist.
   */
  readonly owns?: boolean | undefined;
  /** Whether the client may only look, and answer what `answers` says. Default: false. */
  readonly readOnly?: boolean | undefined;
  /**
   * Which questions the client may answer or decline, of those that it may see: their kinds, or a function of a question.
   * Default: all, and none with `readOnly`.
   *
   * @example
   * ```ts
   * import type { Grant } from "cadenza/http";
   *
   * const fourEyes: Grant = { principal: "ada", answers: ({ kind, creator }) => kind !== "approval" || creator !== "ada" };
   * console.log(typeof fourEyes.answers); // → function
   * ```
   */
  readonly answers?: readonly QuestionKind[] | ((question: AskedQuestion) => boolean) | undefined;
  /** The agents that exist for this client. Other agents and their runs do not exist for it. Default: all. */
  readonly agents?: readonly string[] | ((name: string) => boolean) | undefined;
  /**
   * The roles that messages from this client may have: in the input of a run, in an answer, and in the history of a
   * session that the client sends. What comes over a wire is a user's: each face refuses a message with a role that is
   * not named here, or takes it as the user's where the official clients of its protocol send such messages. Name
   * others only for a service that speaks for agents, such as a gateway. Default: `["user"]`.
   *
   * @example
   * ```ts
   * import type { Grant } from "cadenza/http";
   *
   * const gateway: Grant = { tenant: "blue", roles: (role) => role === "user" || role.startsWith("agent/") };
   * console.log(typeof gateway.roles); // → function
   * ```
   */
  readonly roles?: readonly string[] | ((role: string) => boolean) | undefined;
}

/** Why a client is refused. */
export interface Denial {
  /** From 400 to 499, for example 401. */
  readonly status: number;
  readonly message?: string | undefined;
  /** For example `WWW-Authenticate`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Authorizes a client (a {@link Grant}) or refuses it (`false`, a {@link Denial}, or an error that it throws: 403). */
export type Authorize = (request: AuthorizeRequest) => Grant | Denial | false | Promise<Grant | Denial | false>;

/** How runs are served over HTTP, whatever the protocol. Every property may be left out. */
export interface HttpOptions {
  /**
   * The path below which the service is mounted, for example `/acp`. The service answers below it alone, also if its host
   * strips it and says so, as Express does. Leave it out for a host that strips it and does not say so, and set `baseUrl`.
   * Default: none.
   */
  readonly basePath?: string | undefined;
  /**
   * The address of the service as its clients see it, `basePath` included. The URLs of session contents begin with it.
   * Default: taken from the request.
   */
  readonly baseUrl?: string | undefined;
  /**
   * Authorizes every request, before its body is read and again when the body has named more than the path. Default: all
   * clients may do everything.
   */
  readonly authorize?: Authorize | undefined;
  /** Other origins whose pages may send requests, for example `https://app.example.com`. Default: none. */
  readonly allowedOrigins?: readonly string[] | undefined;
  /**
   * Host names under which the service may be addressed, for example `localhost`; with a port, only under that.
   * Default: any.
   */
  readonly allowedHosts?: readonly string[] | undefined;
  /** Sends CORS headers to the allowed origins and answers their preflight requests. Default: false. */
  readonly cors?: boolean | undefined;
  /**
   * What becomes of a run whose sync or streaming client disconnects before the run rests. `cancel` stops it at once.
   * `cancelAfterMs` stops it after so many milliseconds, unless a client follows its events by then; when the last of
   * these leaves, the time begins again. A run that waits for an answer by then goes on waiting. A client that
   * reconnects has to reach the same handler. Default: `continue`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   * import { createAcpHandler } from "cadenza/http";
   *
   * const handler = createAcpHandler(new AgentRuntime(), { onDisconnect: { cancelAfterMs: 30_000 } });
   * console.log(typeof handler); // → function
   * ```
   */
  readonly onDisconnect?: "continue" | "cancel" | { readonly cancelAfterMs: number } | undefined;
  /**
   * After how much silence a stream sends an empty comment, in milliseconds. Some servers close connections that
   * are silent for ten seconds. Default: 8,000.
   */
  readonly heartbeatMs?: number | undefined;
  /**
   * After how long a reader that takes nothing is disconnected, in milliseconds. The buffers of the operating system
   * report what it takes in steps only, of up to 1.5 MB within one machine. Default: 60,000.
   */
  readonly stallMs?: number | undefined;
  /** Limits beyond which requests are refused. */
  readonly limits?: HttpLimits | undefined;
}

/** Limits beyond which requests are refused. `Infinity` switches a limit off. */
export interface HttpLimits {
  /**
   * Bytes in a body. Default: 1 MiB; of `cadenza/ai-sdk` and `cadenza/ag-ui`, whose pages send the whole chat each time,
   * 10 MiB.
   */
  readonly maxBodyBytes?: number | undefined;
  /** How long a body may take to arrive, in milliseconds. Default: 30,000. */
  readonly bodyTimeoutMs?: number | undefined;
  /** Levels of nested objects and lists. Default: 64. */
  readonly maxDepth?: number | undefined;
  /** Values in a body, in total. Default: 50,000. */
  readonly maxNodes?: number | undefined;
  /** Messages in the input of a run, or in a session that a client brings along. Default: 1,000. */
  readonly maxMessages?: number | undefined;
  /** Parts in all messages of a request together. Default: 10,000. */
  readonly maxParts?: number | undefined;
  /**
   * Characters in the metadata of one part, and in what a chat page or an AG-UI host adds as the metadata of a run, written
   * as JSON. Default: 65,536.
   */
  readonly maxMetadataLength?: number | undefined;
  /** Streams that are open at a time. Default: 10,000. */
  readonly maxReaders?: number | undefined;
  /** Streams of one run that are open at a time. Default: 100. */
  readonly maxReadersPerRun?: number | undefined;
}

/** The options with their defaults. */
export interface HttpSettings {
  /** Empty, or with a slash in front and none at the end. */
  readonly basePath: string;
  /** Without a slash at the end. */
  readonly baseUrl: string | undefined;
  readonly authorize: Authorize | undefined;
  readonly allowedOrigins: ReadonlySet<string>;
  readonly allowedHosts: ReadonlySet<string> | undefined;
  readonly cors: boolean;
  /**
   * Whether browsers may follow links from pages of other origins to it. Such a request shows something to its user, and
   * changes nothing. Left out: no.
   */
  readonly takesLinks?: boolean | undefined;
  /** How long after its client has disconnected a run is cancelled, in milliseconds. `Infinity`: never. */
  readonly cancelAfterMs: number;
  readonly heartbeatMs: number;
  readonly stallMs: number;
  readonly limits: Required<{ [Key in keyof HttpLimits]: number }>;
}

export const MIB = 1024 * 1024;

const limitDefaults = {
  maxBodyBytes: MIB,
  bodyTimeoutMs: 30_000,
  ...JSON_LIMITS,
  maxMessages: 1_000,
  maxParts: 10_000,
  maxMetadataLength: 65_536,
  maxReaders: 10_000,
  maxReadersPerRun: 100,
};
const timeDefaults = { heartbeatMs: 8_000, stallMs: 60_000 };

const names = [
  ...["basePath", "baseUrl", "authorize", "allowedOrigins", "allowedHosts", "cors", "onDisconnect"],
  ...["heartbeatMs", "stallMs", "limits"],
];

/** Whether a value is a list of texts. */
export function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}

/**
 * Reads the options of a handler. `others`: the names of the options of its protocol. `standard`: the limits for
 * which its protocol has other defaults. Throws `invalid_argument` for an invalid one.
 */
export function readHttpOptions(
  options: HttpOptions,
  others: readonly string[],
  standard: Partial<HttpSettings["limits"]> = {},
): HttpSettings {
  checkKeys("options", options, [...names, ...others]);
  const { basePath = "", baseUrl, authorize, cors = false, onDisconnect = "continue" } = options;
  if (typeof basePath !== "string" || /[?#\s]/.test(basePath)) throw bad("basePath", "a path such as /acp");
  if (baseUrl !== undefined && !isHttpUrl(baseUrl)) throw bad("baseUrl", "an absolute http or https URL");
  if (authorize !== undefined && typeof authorize !== "function") throw bad("authorize", "a function");
  if (typeof cors !== "boolean") throw bad("cors", "true or false");
  // As it is in the addresses of requests, where letters such as ü are encoded.
  const { pathname } = new URL(`http://a/${basePath.split("/").filter(Boolean).join("/")}`);
  return {
    basePath: pathname === "/" ? "" : pathname,
    baseUrl: baseUrl?.replace(/\/+$/, ""),
    authorize,
    allowedOrigins: readOrigins("allowedOrigins", options.allowedOrigins),
    allowedHosts: options.allowedHosts && readHosts(options.allowedHosts),
    cors,
    cancelAfterMs: readOnDisconnect(onDisconnect),
    ...amountsIn(timeDefaults, options),
    limits: amounts("options.limits", { ...limitDefaults, ...standard }, options.limits),
  };
}

function readOnDisconnect(onDisconnect: NonNullable<HttpOptions["onDisconnect"]>): number {
  if (onDisconnect === "continue") return Number.POSITIVE_INFINITY;
  if (onDisconnect === "cancel") return 0;
  if (typeof onDisconnect !== "object" || onDisconnect?.cancelAfterMs === undefined)
    throw bad("onDisconnect", '"continue", "cancel" or an object with cancelAfterMs');
  return amounts("onDisconnect", { cancelAfterMs: 0 }, onDisconnect).cancelAfterMs;
}

/** Reads an object of nothing but amounts. */
function amounts<Key extends string>(
  name: string,
  standard: Readonly<Record<Key, number>>,
  given: Partial<Readonly<Record<Key, number | undefined>>> = {},
): Record<Key, number> {
  checkKeys(name, given, Object.keys(standard));
  return amountsIn(standard, given);
}

/** The amounts among options, with their defaults: times in milliseconds, by their names, and whole numbers. */
export function amountsIn<Key extends string>(
  standard: Readonly<Record<Key, number>>,
  given: Partial<Readonly<Record<NoInfer<Key>, number | undefined>>>,
): Record<Key, number> {
  const read: Record<Key, number> = { ...standard };
  for (const key of Object.keys(standard) as Key[]) {
    const value = given[key];
    if (value === undefined) continue;
    const isCount = !key.endsWith("Ms");
    if (typeof value !== "number" || !(value >= 0) || (isCount && value % 1 > 0))
      throw bad(key, `a ${isCount ? "whole " : ""}number from 0 to Infinity`);
    read[key] = value;
  }
  return read;
}

export function readOrigins(name: string, origins: readonly string[] = []): ReadonlySet<string> {
  if (!Array.isArray(origins)) throw bad(name, "a list of origins");
  return new Set(
    Array.from(origins, (origin: unknown) => {
      if (!isHttpUrl(origin) || new URL(origin).pathname !== "/")
        throw bad(name, "origins such as https://app.example.com");
      return new URL(origin).origin;
    }),
  );
}

function readHosts(hosts: readonly string[]): ReadonlySet<string> {
  if (!Array.isArray(hosts) || ![...hosts].every((host) => typeof host === "string" && /^[^\s/]+$/.test(host)))
    throw bad("allowedHosts", "a list of host names such as localhost");
  return new Set(hosts.map((host: string) => host.toLowerCase()));
}

function isHttpUrl(value: unknown): value is string {
  return typeof value === "string" && /^https?:\/\//i.test(value) && URL.canParse(value);
}

export function checkKeys(name: string, value: unknown, known: readonly string[]): void {
  if (typeof value !== "object" || value === null) throw bad(name, "an object");
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw bad(`${name}.${key}`, `one of ${known.join(", ")} as the name of an option`);
  }
}

export function bad(name: string, expected: string): CadenzaError {
  const message = `expected ${expected}`;
  return new CadenzaError("invalid_argument", `${name}: ${message}.`, { issues: [{ path: name.split("."), message }] });
}
