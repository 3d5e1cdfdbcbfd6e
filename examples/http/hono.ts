/** On Hono 4, here under Node; the same lines run on Bun and Deno. `npx tsx examples/http/hono.ts` */
import { serve } from "@hono/node-server";
import { AgentRuntime } from "cadenza";
import { createAcpHandler } from "cadenza/http";
import { Hono } from "hono";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const handler = createAcpHandler(runtime, { basePath: "/acp" });
const app = new Hono();
app.all("/acp/*", (context) => handler(context.req.raw));
const server = serve({ fetch: app.fetch, port: Number(process.env["PORT"] ?? 8000) });

// Runs end before the process does.
process.once("SIGTERM", () => {
  server.close();
  void runtime.close();
});
