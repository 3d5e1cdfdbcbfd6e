import type { Handler } from "../../http/fetch.ts";
import { handlerOf } from "../../http/fetch.ts";
import type { NodeListener } from "../../http/node.ts";
import { listenerOf } from "../../http/node.ts";
import { route } from "../../http/router.ts";
import type { Face, Service } from "../../http/service.ts";
import { runtimeService } from "../../http/service.ts";
import type { AgentRuntime } from "../../runtime/api/agent-runtime.ts";
import { postJsonRpc, refuse, rest } from "./bindings.ts";
import { getCard } from "./card.ts";
import { operations } from "./operations.ts";
import type { A2aOptions, A2aSettings } from "./options.ts";
import { readA2aOptions } from "./options.ts";

/**
 * The agents of a runtime for clients of A2A 1.0, for Hono, Next.js, Bun and Deno. Each agent has a card, and an interface
 * in JSON-RPC and in REST, at the path of its name. Throws `invalid_argument` for an invalid option.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createA2aHandler } from "cadenza/a2a";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * const handler = createA2aHandler(runtime, { basePath: "/a2a", root: "echo" });
 * const card = await handler(new Request("http://localhost/a2a/.well-known/agent-card.json"));
 * const { supportedInterfaces } = (await card.json()) as { readonly supportedInterfaces: { readonly url: string }[] };
 * console.log(supportedInterfaces[0]?.url); // → http://localhost/a2a/echo
 * ```
 */
export function createA2aHandler(runtime: AgentRuntime, options: A2aOptions = {}): Handler {
  return handlerOf(serviceOf(runtime, options));
}

/**
 * As {@link createA2aHandler}, for `node:http`, Express, Fastify and Koa.
 *
 * @example
 * ```ts no-run — it listens until it is stopped
 * import { createServer } from "node:http";
 * import { AgentRuntime } from "cadenza";
 * import { createA2aNodeListener } from "cadenza/a2a";
 *
 * const runtime = new AgentRuntime().register("echo", (input) => input);
 * createServer(createA2aNodeListener(runtime, { root: "echo" })).listen(8000);
 * ```
 */
export function createA2aNodeListener(runtime: AgentRuntime, options: A2aOptions = {}): NodeListener {
  return listenerOf(serviceOf(runtime, options));
}

function serviceOf(runtime: AgentRuntime, options: A2aOptions): Service<A2aSettings> {
  return runtimeService(runtime, a2a, readA2aOptions(options));
}

const CARD = ".well-known/agent-card.json";

const a2a: Face<A2aSettings> = {
  headers: ["A2A-Version", "A2A-Extensions"],
  routes: [
    // The body says what it is: see `askAbout`.
    route("POST", "{name}", "read", postJsonRpc),
    ...[...operations.values()].flatMap((operation) => {
      const { action, path, methods, asks } = operation;
      return methods.map((method) => route(method, `{name}/${path}`, action, rest(operation), asks));
    }),
    route("GET", CARD, "read", getCard),
    route("GET", `{name}/${CARD}`, "read", getCard),
  ],
  refuse,
};
