import { errorResponse } from "../../http/errors.ts";
import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { NodeListener } from "../../http/node.ts";
import { listenerOf } from "../../http/node.ts";
import { route } from "../../http/router.ts";
import type { Face, Route, Service } from "../../http/service.ts";
import { runtimeService, serverUrl } from "../../http/service.ts";
import { json, jsonText } from "../../http/wire.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { getAgent, listAgents } from "./agents.ts";
import { getDetails, sendMessage } from "./extensions.ts";
import { openApiText } from "./openapi.ts";
import type { AcpOptions, AcpSettings } from "./options.ts";
import { readAcpOptions } from "./options.ts";
import { cancelRun, createRun, getEvents, getRun, listRuns, resumeRun } from "./runs.ts";
import { getResource, getSession } from "./sessions.ts";

/**
 * The runs of a runtime over HTTP, for Hono, Next.js, Bun and Deno, and with limits Workers. Throws `invalid_argument`
 * for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createAcpHandler } from "cadenza/http";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * const handler = createAcpHandler(runtime, { basePath: "/agents" });
 * // With Hono: app.all("/agents/*", (context) => handler(context.req.raw));
 * const response = await handler(new Request("http://localhost/agents/ping"));
 * console.log(response.status); // → 200
 * ```
 */
export function createAcpHandler(runtime: AgentRuntime, options: AcpOptions = {}): Handler {
  return handlerOf(serviceOf(runtime, options));
}

/**
 * The runs of a runtime over HTTP, for `node:http`, Express, Fastify and Koa. Throws `invalid_argument` for an invalid
 * option.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createAcpNodeListener } from "cadenza/http";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * createServer(createAcpNodeListener(runtime)).listen(8000);
 * ```
 */
export function createAcpNodeListener(runtime: AgentRuntime, options: AcpOptions = {}): NodeListener {
  return listenerOf(serviceOf(runtime, options));
}

function serviceOf(runtime: AgentRuntime, options: AcpOptions): Service<AcpSettings> {
  const settings = readAcpOptions(options);
  return runtimeService(runtime, settings.extensions ? extendedAcp : acp, settings);
}

/** Every endpoint of ACP, the most frequent ones first. */
const routes: readonly Route<AcpSettings>[] = [
  route("POST", "runs", "create", createRun),
  route("GET", "runs/{run_id}", "read", getRun),
  route("POST", "runs/{run_id}", "answer", resumeRun),
  route("GET", "runs/{run_id}/events", "read", getEvents),
  route("POST", "runs/{run_id}/cancel", "cancel", cancelRun),
  route("GET", "runs", "list", listRuns, { agent_name: "agent_name", session_id: "session_id" }),
  route("GET", "agents", "list", listAgents),
  route("GET", "agents/{name}", "read", getAgent),
  route("GET", "sessions/{session_id}", "session", getSession),
  route("GET", "session/{session_id}", "session", getSession),
  route("GET", "resources/{id}", "session", getResource),
  route("GET", "ping", "ping", async () => json(200, {})),
  route("GET", "openapi.json", "ping", async (call) => {
    return jsonText(200, openApiText(serverUrl(call), call.service.settings.extensions));
  }),
];

const acp: Face<AcpSettings> = { routes, refuse: errorResponse };

/** Every endpoint, with those that are not part of ACP. */
const extendedAcp: Face<AcpSettings> = {
  routes: [
    ...routes,
    route("GET", "runs/{run_id}/details", "read", getDetails),
    route("POST", "runs/{run_id}/messages/{message_name}", "send", sendMessage),
  ],
  refuse: errorResponse,
};
