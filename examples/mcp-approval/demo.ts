/**
 * A tool call of an MCP client waits for an approval. Its server is killed with `kill -9` and started again meanwhile, and
 * the call has its result: `npm run demo -- mcp`
 */
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const SERVER = fileURLToPath(new URL("./server.ts", import.meta.url));
const REVISION = "2026-07-28";
const folder = mkdtempSync(join(tmpdir(), "cadenza-mcp-"));

/** Starts the server. Gives its address. */
async function start(port: string): Promise<{ readonly child: ChildProcess; readonly url: string }> {
  const child = spawn(process.execPath, ["--import", "tsx", SERVER, join(folder, "refunds.db"), port], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [url] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return { child, url };
}

let server = await start("0");
const { url } = server;
console.log("The server has started.");
try {
  const capabilities = { elicitation: { form: {} } };
  const clientInfo = { name: "example", version: "1.0.0" };
  const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: REVISION } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const session = createTaskSessionFromClient(client, {
    endpointId: url,
    v2RequestFraming: { protocolVersion: REVISION, clientInfo, clientCapabilities: capabilities },
    rawDispatch,
    onInputRequest: async ({ params }) => {
      console.log(`It asks: ${params?.["message"]}`);
      const gone = once(server.child, "exit");
      server.child.kill("SIGKILL");
      await gone;
      console.log("kill -9 of the server, while the call waits.");
      server = await start(new URL(url).port);
      console.log("The server has started again. The answer is yes.");
      return { action: "accept", content: { approved: true } } as never;
    },
  });
  const call = await session.callTool("refund", { amount: 40 });
  console.log("The tool is called, and the call is a task.");
  const { outcome } = await call.settle();
  const { content } = resultFromTaskOutcome(outcome) as { content: { text: string }[] };
  console.log(`The result: ${content.map(({ text }) => text).join("")}`);
  await session.close();
  await client.close();
} finally {
  server.child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}

/** Sends a request of the task client. */
async function rawDispatch(request: unknown): Promise<never> {
  const { method, params } = request as { method: string; params: { name?: string; taskId?: string } };
  const headers = {
    ...{ "content-type": "application/json", "mcp-protocol-version": REVISION, "mcp-method": method },
    "mcp-name": params.name ?? params.taskId ?? "",
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const response = await fetch(url, { method: "POST", headers, body });
  const { result, error } = (await response.json()) as { result?: unknown; error?: unknown };
  return (error === undefined ? { kind: "result", result } : { kind: "error", error }) as never;
}
