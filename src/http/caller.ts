import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Scope } from "../runtime/api/scope.ts";
import { WireError } from "./errors.ts";
import type { Action, Authorize, AuthorizeRequest, Denial, Grant, RequestedObjects } from "./options.ts";
import { markRefused } from "./refusals.ts";

/** The client of a request, and what exists for it. */
export interface Caller {
  readonly scope: Scope;
  /** The tenant of the scope. */
  readonly tenant: string;
  /** The principal of the scope. */
  readonly principal: JsonValue;
  /** Whether an agent exists for the client; undefined: all do. */
  readonly sees: ((agentName: string) => boolean) | undefined;
  /** Whether a message from the client may have a role, such as `user` or `agent/desk`. */
  speaksAs(role: string): boolean;
  /**
   * Asks the host about the same request again, which is now known to be about more, and gives the client with the rights
   * that it has then. Undefined: the host is never asked.
   */
  readonly ask: ((about: About) => Promise<Caller>) | undefined;
}

/** What is known of a request that was not known when the host was last asked. */
export type About = RequestedObjects & { readonly action: Action };

/** The client of a request. Without `authorize` every client may do everything. */
export function callerOf(
  runtime: AgentRuntime,
  authorize: Authorize | undefined,
  asked: () => AuthorizeRequest,
  logger: Logger,
): MaybePromise<Caller> {
  if (authorize === undefined)
    return { scope: runtime, tenant: "", principal: null, sees: undefined, speaksAs: isUser, ask: undefined };
  return authorizedCaller(runtime, authorize, asked(), logger);
}

const rights: Rights = {
  tenant: (value) => typeof value === "string",
  principal: isPrincipal,
  agents: isChoice,
  roles: isChoice,
};

async function authorizedCaller(
  runtime: AgentRuntime,
  authorize: Authorize,
  request: AuthorizeRequest,
  logger: Logger,
): Promise<Caller> {
  const granted = await askHost<Grant>(() => authorize(request), rights, logger);
  const { tenant = "", principal = null, agents, roles } = granted;
  return {
    scope: runtime.scope({ tenant, principal }),
    tenant,
    principal,
    sees: agents && choosing("agents", agents, logger),
    speaksAs: roles === undefined ? isUser : choosing("roles", roles, logger),
    ask: async (more) => {
      const about = { ...request, ...more };
      try {
        return await authorizedCaller(runtime, authorize, about, logger);
      } catch (error) {
        throw error instanceof WireError ? markRefused(error, { about }) : error;
      }
    },
  };
}

/** The rights that a host may grant by name, and what each has to be. */
export type Rights = Readonly<Record<string, (value: unknown) => boolean>>;

/**
 * Asks the host what a client may do. An error in the host's function refuses the request, and so does an answer that is
 * not exactly rights: a right that is misspelt or undefined must not give more than it says.
 */
export async function askHost<Given extends object>(ask: () => unknown, known: Rights, logger: Logger): Promise<Given> {
  let answer: unknown;
  try {
    answer = await ask();
  } catch (error) {
    logger.warn("authorize failed; the request was refused.", { error });
    throw markRefused(denied({ status: 403 }), { isExplained: true });
  }
  if (answer === false) throw denied({ status: 403 });
  const wrong = wrongIn(answer, known);
  if (wrong !== undefined) throw misgranted(wrong, logger);
  if ("status" in (answer as Given)) throw denied(answer as Denial);
  return answer as Given;
}

/** The error for an answer of the host that is not rights. The host is told what is wrong, the client is not. */
export function misgranted(reason: string, logger: Logger): WireError {
  logger.error("authorize returned what are no rights; the request was refused.", { reason });
  return markRefused(denied({ status: 403 }), { isExplained: true });
}

const ofDenial: Rights = {
  status: (value) => typeof value === "number",
  message: (value) => value === undefined || typeof value === "string",
  headers: (value) => value === undefined || isPlain(value),
};

/** What is wrong with an answer of the host. */
function wrongIn(answer: unknown, known: Rights): string | undefined {
  if (!isPlain(answer)) return "expected a plain object, or false";
  const expected = "status" in answer ? ofDenial : known;
  for (const [name, value] of Object.entries(answer)) {
    const isValid = Object.hasOwn(expected, name) ? expected[name] : undefined;
    if (isValid === undefined) return `there is no right ${name}; there are ${Object.keys(expected).join(", ")}`;
    if (!isValid(value)) return `the right ${name} has a value of another type`;
  }
  return undefined;
}

/** Whether a value is an object of no class, whatever realm has made it. */
function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether a value may name who acts. */
export function isPrincipal(value: unknown): boolean {
  return value === null || ["string", "number", "boolean", "object"].includes(typeof value);
}

/** Some texts, listed or chosen by a function. */
type Choice = readonly string[] | ((text: string) => boolean);

function isChoice(value: unknown): boolean {
  return typeof value === "function" || (Array.isArray(value) && value.every((item) => typeof item === "string"));
}

/** A function of the host that fails, or answers with anything but true or false, refuses the request. */
function choosing(right: string, choice: Choice, logger: Logger): (text: string) => boolean {
  if (typeof choice !== "function") return (text) => choice.includes(text);
  return (text) => {
    let answer: unknown;
    try {
      answer = choice(text);
    } catch (error) {
      logger.warn("authorize failed; the request was refused.", { error });
      throw markRefused(denied({ status: 403 }), { isExplained: true });
    }
    if (typeof answer === "boolean") return answer;
    throw misgranted(`${right} has to answer with true or false`, logger);
  };
}

function isUser(role: string): boolean {
  return role === "user";
}

function denied({ status, message = "The request is not allowed.", headers = {} }: Denial): WireError {
  const known = typeof status === "number" && status >= 400 && status <= 499 ? status : 403;
  const reason = known === 401 ? "unauthorized" : "forbidden";
  return markRefused(new WireError(known, reason, message, { headers: { ...headers } }));
}
