import type { Logger } from "../../core/ports.ts";
import { refusalOf } from "../../http/errors.ts";
import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { NodeListener } from "../../http/node.ts";
import { listenerOf } from "../../http/node.ts";
import { route } from "../../http/router.ts";
import type { Face } from "../../http/service.ts";
import { runtimeService } from "../../http/service.ts";
import type { WireRequest, WireResponse } from "../../http/wire.ts";
import { json } from "../../http/wire.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { goneCodes } from "../chat/questions.ts";
import { followChat, getMessages, postChat, stopChat } from "./chats.ts";
import type { ChatOptions, ChatSettings } from "./options.ts";
import { readChatOptions } from "./options.ts";

/**
 * The agents of a runtime for chat pages that use `useChat` of the AI SDK, for Hono, Next.js, Bun and Deno. The page of
 * an agent posts to the path of its name. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createChatHandler } from "cadenza/ai-sdk";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * const handler = createChatHandler(runtime, { basePath: "/chat" });
 * // The page: useChat({ transport: new DefaultChatTransport({ api: "/chat/echo" }) })
 * const message = { id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }] };
 * const body = JSON.stringify({ id: "chat-17", messages: [message], trigger: "submit-message" });
 * const headers = { "content-type": "application/json" };
 * const response = await handler(new Request("http://localhost/chat/echo", { method: "POST", headers, body }));
 * console.log(response.status); // → 200
 * ```
 */
export function createChatHandler(runtime: AgentRuntime, options: ChatOptions = {}): Handler {
  return handlerOf(runtimeService(runtime, chat, readChatOptions(options)));
}

/**
 * As {@link createChatHandler}, for `node:http`, Express, Fastify and Koa.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createChatNodeListener } from "cadenza/ai-sdk";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * createServer(createChatNodeListener(runtime, { basePath: "/chat" })).listen(8000);
 * ```
 */
export function createChatNodeListener(runtime: AgentRuntime, options: ChatOptions = {}): NodeListener {
  return listenerOf(runtimeService(runtime, chat, readChatOptions(options)));
}

const chat: Face<ChatSettings> = {
  routes: [
    // The body says whether it talks or answers: see `askAbout`.
    route("POST", "{name}", "read", postChat),
    route("GET", "{name}/{chat_id}/stream", "read", followChat, { run_id: "run_id" }),
    route("DELETE", "{name}/{chat_id}/stream", "cancel", stopChat, { run_id: "run_id" }),
    route("GET", "{name}/{chat_id}/messages", "read", getMessages),
  ],
  refuse,
};

/** A page shows the text of a refusal to its user. One that accepts JSON gets the reason too. */
function refuse(error: unknown, logger: Logger, request: WireRequest): WireResponse {
  const { status, code, message, data, headers } = refusalOf(error, logger);
  const told = goneCodes.has(data.reason) ? 409 : status;
  if (/\bapplication\/json\b/i.test(request.header("accept") ?? ""))
    return json(told, { code, message, data }, headers);
  return {
    status: told,
    headers: {
      "content-type": "text/plain; charset=utf-8",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...headers,
    },
    body: message,
  };
}
