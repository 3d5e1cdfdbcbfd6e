import { errorResponse } from "../../http/errors.ts";
import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { NodeListener } from "../../http/node.ts";
import { listenerOf } from "../../http/node.ts";
import type { HttpOptions } from "../../http/options.ts";
import { readHttpOptions } from "../../http/options.ts";
import { route } from "../../http/router.ts";
import type { Face } from "../../http/service.ts";
import { runtimeService } from "../../http/service.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { chatLimits } from "../chat/chat.ts";
import { followThread, postRun, stopThread } from "./threads.ts";

/**
 * The agents of a runtime for hosts that speak AG-UI 1.0, such as CopilotKit, for Hono, Next.js, Bun and Deno. The
 * endpoint of an agent is the path of its name. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createAgUiHandler } from "cadenza/ag-ui";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * const handler = createAgUiHandler(runtime, { basePath: "/ag-ui" });
 * // The host: new HttpAgent({ url: "/ag-ui/echo" })
 * const messages = [{ id: "m1", role: "user", content: "Hello" }];
 * const body = JSON.stringify({ threadId: "thread-17", runId: "run-1", messages });
 * const headers = { "content-type": "application/json" };
 * const response = await handler(new Request("http://localhost/ag-ui/echo", { method: "POST", headers, body }));
 * console.log(response.status); // → 200
 * ```
 */
export function createAgUiHandler(runtime: AgentRuntime, options: HttpOptions = {}): Handler {
  return handlerOf(runtimeService(runtime, agUi, readHttpOptions(options, [], chatLimits)));
}

/**
 * As {@link createAgUiHandler}, for `node:http`, Express, Fastify and Koa.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createAgUiNodeListener } from "cadenza/ag-ui";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * createServer(createAgUiNodeListener(runtime, { basePath: "/ag-ui" })).listen(8000);
 * ```
 */
export function createAgUiNodeListener(runtime: AgentRuntime, options: HttpOptions = {}): NodeListener {
  return listenerOf(runtimeService(runtime, agUi, readHttpOptions(options, [], chatLimits)));
}

const agUi: Face = {
  routes: [
    // The body says whether it talks or answers: see `askAbout`.
    route("POST", "{name}", "read", postRun),
    route("GET", "{name}", "read", followThread, { threadId: "chat_id" }),
    route("DELETE", "{name}", "cancel", stopThread, { threadId: "chat_id" }),
  ],
  refuse: errorResponse,
};
