/** On Koa 3. `npx tsx examples/http/koa.ts` */
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import Koa from "koa";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const listener = createAcpNodeListener(runtime, { basePath: "/acp" });
const app = new Koa();
app.use(async (context, next) => {
  if (!context.path.startsWith("/acp/")) return void (await next());
  context.respond = false;
  listener(context.req, context.res);
});
const server = app.listen(Number(process.env["PORT"] ?? 8000));

// Runs end before the process does.
process.once("SIGTERM", () => {
  server.close();
  void runtime.close();
});
