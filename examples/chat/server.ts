/** A chat page, and the agent behind it. A request to `/kill` ends the process as `kill -9` does. */
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { createChatNodeListener } from "cadenza/ai-sdk";
import { openStore } from "../durable-approval/store.ts";
import { bundleOf, pageOf } from "../page-bundle.ts";
import { deskAgent } from "./desk.ts";
import { Ledger } from "./ledger.ts";
import { realModel } from "./model.ts";

const [port = "8080", file = ".cadenza/chat.db", pauseMs = "80"] = process.argv.slice(2);

const bundle = bundleOf(fileURLToPath(new URL("./page.jsx", import.meta.url)));
const html = pageOf("Refund desk");

const ledger = new Ledger(`${file}.ledger`);
const { model, line } = await realModel(process.env);
const runtime = new AgentRuntime({
  // A short lease, so that another process goes on soon after a kill.
  store: await openStore(file, { leaseMs: 1_500, heartbeatMs: 400, scanMs: 200 }),
  agents: [deskAgent(ledger, Number(pauseMs), model)],
  interceptors: [
    {
      // The key of a step is the same when it begins again.
      step: ({ name, run_id, key }, next) => {
        if (name === "model") ledger.add("model call", `${run_id} ${key}`);
        return next();
      },
    },
  ],
});
const chat = createChatNodeListener(runtime, { basePath: "/chat" });

const server = createServer((request, response) => {
  if (request.url?.startsWith("/chat/")) return chat(request, response);
  if (request.url === "/page.js") return void send(response, "text/javascript", bundle);
  if (request.url === "/facts") return void send(response, "application/json", JSON.stringify(ledger.facts));
  // A button of this page, and of no other.
  const isOwn = request.headers["sec-fetch-site"] === "same-origin";
  if (request.url === "/kill" && request.method === "POST" && isOwn) process.kill(process.pid, "SIGKILL");
  return void send(response, "text/html", html);
});

async function send(response: ServerResponse, type: string, body: string | Promise<string>): Promise<void> {
  response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(await body);
}

server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${port}\n${line}`));
process.on("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
  void runtime.close({ drainMs: 0 });
});
