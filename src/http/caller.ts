import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { AgentRuntime } from "../runtime/agent-runtime.ts";
import type { Scope } from "../runtime/scope.ts";
import { WireError } from "./errors.ts";
import type { Authorize, AuthorizeRequest, Denial, Grant } from "./options.ts";

/** The client of a request, and what exists for it. */
export interface Caller {
  readonly scope: Scope;
  /** The tenant of the scope. */
  readonly tenant: string;
  /** Whether an agent exists for the client; undefined: all do. */
  readonly sees: ((agentName: string) => boolean) | undefined;
}

/** The client of a request. Without `authorize` every client may do everything. */
export function callerOf(
  runtime: AgentRuntime,
  authorize: Authorize | undefined,
  asked: () => AuthorizeRequest,
  logger: Logger,
): MaybePromise<Caller> {
  if (authorize === undefined) return { scope: runtime, tenant: "", sees: undefined };
  return authorizedCaller(runtime, authorize, asked(), logger);
}

async function authorizedCaller(
  runtime: AgentRuntime,
  authorize: Authorize,
  request: AuthorizeRequest,
  logger: Logger,
): Promise<Caller> {
  const { tenant = "", principal = null, agents } = await askHost<Grant>(() => authorize(request), logger);
  if (typeof tenant !== "string") throw new TypeError("authorize returned a tenant that is not a string.");
  return { scope: runtime.scope({ tenant, principal }), tenant, sees: seeing(agents) };
}

/** Asks the host whether a client is authorized. An error in the host's function refuses the request. */
export async function askHost<Given extends object>(ask: () => unknown, logger: Logger): Promise<Given> {
  let answer: unknown;
  try {
    answer = await ask();
  } catch (error) {
    logger.warn("authorize failed; the request was refused.", { error });
    throw denied({ status: 403 });
  }
  if (typeof answer !== "object" || answer === null) throw denied({ status: 403 });
  if ("status" in answer) throw denied(answer as Denial);
  return answer as Given;
}

function seeing(agents: Grant["agents"]): Caller["sees"] {
  if (agents === undefined || typeof agents === "function") return agents;
  return (name) => agents.includes(name);
}

function denied({ status, message = "The request is not allowed.", headers = {} }: Denial): WireError {
  const known = typeof status === "number" && status >= 400 && status <= 499 ? status : 403;
  return new WireError(known, known === 401 ? "unauthorized" : "forbidden", message, { headers: { ...headers } });
}
