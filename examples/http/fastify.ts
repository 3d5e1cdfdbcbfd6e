/** On Fastify 5. The plugin does not parse bodies: the service reads them itself. `npx tsx examples/http/fastify.ts` */
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import fastify from "fastify";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const app = fastify();
app.register((acp, _options, done) => {
  const listener = createAcpNodeListener(runtime, { basePath: "/acp" });
  acp.removeAllContentTypeParsers();
  acp.addContentTypeParser("*", (_request, _body, done) => done(null));
  acp.all("/acp/*", (request, reply) => {
    reply.hijack();
    listener(request.raw, reply.raw);
  });
  done();
});
await app.listen({ port: Number(process.env["PORT"] ?? 8000) });

// Runs end before the process does.
process.once("SIGTERM", () => {
  void app.close();
  void runtime.close();
});
