import type { QuestionKind } from "../core/log.ts";
import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { userOf } from "../core/user.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { AskedQuestion } from "../runtime/agent/answer.ts";
import type { AgentRuntime } from "../runtime/api/agent-runtime.ts";
import type { Scope } from "../runtime/api/scope.ts";
import { WireError } from "./errors.ts";
import type { Action, Authorize, AuthorizeRequest, Denial, Grant, RequestedObjects } from "./options.ts";
import { isTexts } from "./options.ts";
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
  /** Whether the client may only look, and answer what `mayAnswer` says. */
  readonly isReader: boolean;
  /** Whether the client may answer a question that it sees. */
  mayAnswer(question: AskedQuestion): boolean;
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
  return authorize === undefined ? unlimited(runtime) : authorizedCaller(runtime, authorize, asked(), logger);
}

function unlimited(scope: AgentRuntime): Caller {
  return {
    scope,
    tenant: "",
    principal: null,
    sees: undefined,
    speaksAs: isUser,
    isReader: false,
    mayAnswer: isAllowed,
    ask: undefined,
  };
}

function isAllowed(): boolean {
  return true;
}

const rights: Rights = {
  tenant: (value) => typeof value === "string",
  principal: isPrincipal,
  owns: isFlag,
  readOnly: isFlag,
  answers: isAnswers,
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
  const { tenant = "", principal = null, owns = false, readOnly = false, answers, agents, roles } = granted;
  if (owns && userOf(principal) === undefined)
    throw misgranted(
      "with owns the principal has to be a text, or an object with an id, of at most 255 characters",
      logger,
    );
  return {
    scope: runtime.scope({ tenant, principal, owns }),
    tenant,
    principal,
    sees: agents && choosing("agents", agents, logger),
    speaksAs: roles === undefined ? isUser : choosing("roles", roles, logger),
    isReader: readOnly,
    mayAnswer: answering(answers, readOnly, logger),
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

export function isFlag(value: unknown): boolean {
  return typeof value === "boolean";
}

const kinds: readonly unknown[] = ["input", "approval", "auth"] satisfies QuestionKind[];

/** Whether a value may say which questions are answered. */
export function isAnswers(value: unknown): boolean {
  return typeof value === "function" || (Array.isArray(value) && value.every((kind) => kinds.includes(kind)));
}

/** Which questions a client may answer. Left out: all, and none for one that may only look. */
export function answering(answers: Grant["answers"], isReader: boolean, logger: Logger): Caller["mayAnswer"] {
  if (answers === undefined) return () => !isReader;
  if (typeof answers !== "function") return ({ kind }) => answers.includes(kind);
  return choosing("answers", answers, logger);
}

function isChoice(value: unknown): boolean {
  return typeof value === "function" || isTexts(value);
}

/** A function of the host that fails, or answers with anything but true or false, refuses the request. */
function choosing<Item>(
  right: string,
  choice: readonly Item[] | ((item: Item) => boolean),
  logger: Logger,
): (item: Item) => boolean {
  if (typeof choice !== "function") return (item) => choice.includes(item);
  return (item) => {
    let answer: unknown;
    try {
      answer = choice(item);
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

/** Refuses a client that may only look. */
export function checkMayWrite(client: Pick<Caller, "isReader" | "tenant" | "principal">): void {
  if (client.isReader) throw markRefused(denied({ status: 403 }), { client });
}

/** The refusal of an answer to a question that the client may see. */
export function mayNotAnswer(client: Pick<Caller, "tenant" | "principal">): WireError {
  return markRefused(denied({ status: 403, message: "The question may not be answered by this user." }), { client });
}

function denied({ status, message = "The request is not allowed.", headers = {} }: Denial): WireError {
  const known = typeof status === "number" && status >= 400 && status <= 499 ? status : 403;
  const reason = known === 401 ? "unauthorized" : "forbidden";
  return markRefused(new WireError(known, reason, message, { headers: { ...headers } }));
}
