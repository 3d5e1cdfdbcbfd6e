/** A chat page, and the agent behind it. A request to `/kill` ends the process as `kill -9` does. */
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { createNodeListener } from "cadenza/ai-sdk";
import { build } from "esbuild";
import { openStore } from "../durable-approval/store.ts";
import { deskAgent } from "./desk.ts";
import { Ledger } from "./ledger.ts";

const [port = "8080", file = "chat.db", pauseMs = "80"] = process.argv.slice(2);

const bundle = build({
  entryPoints: [fileURLToPath(new URL("./page.jsx", import.meta.url))],
  bundle: true,
  write: false,
  format: "esm",
  jsx: "automatic",
  // The page has the library as its users do, from the package; here that is the source.
  alias: { "cadenza/client": fileURLToPath(new URL("../../src/client.ts", import.meta.url)) },
  define: { "process.env.NODE_ENV": '"production"' },
});
const html = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Refund desk</title><link rel="icon" href="data:,">
<main id="page"></main><script type="module" src="/page.js"></script></html>`;

const ledger = new Ledger(`${file}.ledger`);
const runtime = new AgentRuntime({
  // A short lease, so that another process goes on soon after a kill.
  store: await openStore(file, { leaseMs: 1_500, heartbeatMs: 400, scanMs: 200 }),
  agents: [deskAgent(ledger, Number(pauseMs))],
});
const chat = createNodeListener(runtime, { basePath: "/chat" });

const server = createServer((request, response) => {
  if (request.url?.startsWith("/chat/")) return chat(request, response);
  if (request.url === "/page.js")
    return void send(
      response,
      "text/javascript",
      bundle.then((made) => made.outputFiles[0]?.text ?? ""),
    );
  if (request.url === "/facts") return void send(response, "application/json", JSON.stringify(ledger.facts));
  if (request.url === "/kill" && request.method === "POST") process.kill(process.pid, "SIGKILL");
  return void send(response, "text/html", html);
});

async function send(response: ServerResponse, type: string, body: string | Promise<string>): Promise<void> {
  response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(await body);
}

server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${port}`));
process.on("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
  void runtime.close({ drainMs: 0 });
});
