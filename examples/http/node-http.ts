/** On `node:http`. `npx tsx examples/http/node-http.ts` */
import { createServer } from "node:http";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";

const runtime = new AgentRuntime();
runtime.register("echo", async function* (input) {
  yield* input;
});

const server = createServer(createAcpNodeListener(runtime)).listen(Number(process.env["PORT"] ?? 8000));

// Runs end before the process does.
process.once("SIGTERM", () => {
  server.close();
  void runtime.close();
});
