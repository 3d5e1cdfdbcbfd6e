import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { NodeListener } from "../../http/node.ts";
import { listenerOf } from "../../http/node.ts";
import { route } from "../../http/router.ts";
import type { Frame } from "../../http/rpc-text.ts";
import type { Face, Service } from "../../http/service.ts";
import { runtimeService } from "../../http/service.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { postMessage, refuseMessage } from "./messages.ts";
import type { McpOptions, McpSettings } from "./options.ts";
import { readMcpOptions } from "./options.ts";

/**
 * The agents of a runtime as tools of MCP, for clients of `2026-07-28` and of the revisions before it, for Hono, Next.js,
 * Bun and Deno. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createMcpHandler } from "cadenza/mcp";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * const handler = createMcpHandler(runtime, { basePath: "/mcp" });
 * const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
 * const headers = { "content-type": "application/json" };
 * const response = await handler(new Request("http://localhost/mcp", { method: "POST", headers, body }));
 * const { result } = (await response.json()) as { result: { tools: { name: string }[] } };
 * console.log(result.tools[0]?.name); // → echo
 * ```
 */
export function createMcpHandler(runtime: AgentRuntime, options: McpOptions = {}): Handler {
  return handlerOf(serviceOf(runtime, options));
}

/**
 * As {@link createMcpHandler}, for `node:http`, Express, Fastify and Koa.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createMcpNodeListener } from "cadenza/mcp";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * createServer(createMcpNodeListener(runtime, { basePath: "/mcp" })).listen(8000);
 * ```
 */
export function createMcpNodeListener(runtime: AgentRuntime, options: McpOptions = {}): NodeListener {
  return listenerOf(serviceOf(runtime, options));
}

/** The service of MCP. `frame`: what separates the messages of a response. Default: they are server-sent events. */
export function serviceOf(runtime: AgentRuntime, options: McpOptions, frame?: Frame): Service<McpSettings> {
  return runtimeService(runtime, mcp, readMcpOptions(options, frame));
}

const mcp: Face<McpSettings> = {
  // The body says what is asked for: see `askAbout`.
  routes: [route("POST", "", "read", postMessage)],
  headers: ["MCP-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name"],
  refuse: refuseMessage,
};
