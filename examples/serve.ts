/** Serves a few agents: `npm run demo -- serve` */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { booking } from "./approval.ts";
import { echo } from "./echo.ts";

const runtime = new AgentRuntime();
runtime.register(echo).register(booking);

// Only requests from this machine, under this host name, are allowed. Web pages of other origins are refused.
const listener = createAcpNodeListener(runtime, { allowedHosts: ["localhost", "127.0.0.1"] });
const server = createServer(listener);
server.listen(Number(process.env["PORT"] ?? 8000), "localhost", () => {
  const url = `http://localhost:${(server.address() as AddressInfo).port}`;
  const run = (agent: string, mode: string, text: string): string =>
    `curl -sN ${url}/runs -d '${JSON.stringify({ agent_name: agent, mode, input: [{ parts: [{ content: text }] }] })}' -H 'content-type: application/json'`;
  console.log(`The agents are served at ${url}. Try:\n`);
  console.log(`curl -s ${url}/agents`);
  console.log(run("echo", "stream", "Hello"));
  console.log(run("booking", "sync", "Rome, Friday"));
});

// Runs end before the process does.
process.once("SIGTERM", () => {
  server.close();
  void runtime.close();
});
