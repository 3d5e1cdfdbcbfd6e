import type { Logger } from "../core/ports.ts";
import type { AgentRuntime } from "../runtime/agent-runtime.ts";
import type { Scope } from "../runtime/scope.ts";
import { WireError } from "./errors.ts";
import type { Authorize, AuthorizeRequest, Denial, Grant } from "./options.ts";

/** The client of a request, and what exists for it. */
export interface Caller {
  readonly scope: Scope;
  /** Whether an agent exists for the client; undefined: all do. */
  readonly sees: ((agentName: string) => boolean) | undefined;
}

/** Asks the host whether a client is authorized. An error in the host's function refuses the request. */
export async function authorizeCaller(
  runtime: AgentRuntime,
  authorize: Authorize,
  request: AuthorizeRequest,
  logger: Logger,
): Promise<Caller> {
  let answer: unknown;
  try {
    answer = await authorize(request);
  } catch (error) {
    logger.warn("authorize failed; the request was refused.", { error });
    throw denied({ status: 403 });
  }
  if (typeof answer !== "object" || answer === null) throw denied({ status: 403 });
  if ("status" in answer) throw denied(answer as Denial);
  const { tenant = "", principal = null, agents } = answer as Grant;
  if (typeof tenant !== "string") throw new TypeError("authorize returned a tenant that is not a string.");
  return { scope: runtime.scope({ tenant, principal }), sees: seeing(agents) };
}

function seeing(agents: Grant["agents"]): Caller["sees"] {
  if (agents === undefined || typeof agents === "function") return agents;
  return (name) => agents.includes(name);
}

function denied({ status, message = "The request is not allowed.", headers = {} }: Denial): WireError {
  const known = typeof status === "number" && status >= 400 && status <= 499 ? status : 403;
  return new WireError(known, known === 401 ? "unauthorized" : "forbidden", message, { headers: { ...headers } });
}
