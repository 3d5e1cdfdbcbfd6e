import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import type { Case, Listening } from "./cases.ts";

/* The server, in a process of its own. It reports its memory on request. */
const { stallMs, parts, partLength } = JSON.parse(process.argv[2] ?? "") as Case;
const runtime = new AgentRuntime();
runtime.register("long", async function* () {
  for (let i = 0; i < parts; i++) yield "x".repeat(partLength);
});
const { run_id } = await runtime.createRun({ agent_name: "long", input: "" });
const server = createServer(createAcpNodeListener(runtime, { stallMs, limits: { maxReadersPerRun: 1_000 } }));
server.listen(0, "127.0.0.1");
await once(server, "listening");
process.send?.({ port: (server.address() as AddressInfo).port, run_id } satisfies Listening);
process.on("message", () => process.send?.(process.memoryUsage.rss()));
