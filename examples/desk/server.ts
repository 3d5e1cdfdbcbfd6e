/**
 * A desk for the users of two companies: `npm run demo -- desk`, then open `/?user=ada` or `/?user=bob`. The page shows two
 * sub-agents at work, and asks with a form. Arguments: the port, the file of the store, the pause between two words in
 * milliseconds.
 */
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { openStore } from "../durable-approval/store.ts";
import { bundleOf, pageOf } from "../page-bundle.ts";
import { deskAgents } from "./agents.ts";

const [port = "8080", file = ".cadenza/desk.db", pauseMs = "80"] = process.argv.slice(2);

/** Who has which token, and the company whose runs they see. */
const users = new Map([
  ["ada", "acme"],
  ["bob", "umbrella"],
]);

const bundle = bundleOf(fileURLToPath(new URL("./page.jsx", import.meta.url)));
const html = pageOf("Travel desk");

const runtime = new AgentRuntime({
  // A short lease, so that another process goes on soon after a crash.
  store: await openStore(file, { leaseMs: 1_500, heartbeatMs: 400, scanMs: 200 }),
  agents: deskAgents(Number(pauseMs)),
});
const agents = createAcpNodeListener(runtime, {
  basePath: "/agents",
  extensions: true,
  authorize: ({ headers }) => {
    const user = headers["authorization"]?.replace("Bearer ", "") ?? "";
    const tenant = users.get(user);
    return tenant === undefined ? { status: 401 } : { tenant, principal: { user } };
  },
});

const server = createServer((request, response) => {
  if (request.url?.startsWith("/agents/")) return agents(request, response);
  if (request.url === "/page.js") return void send(response, "text/javascript", bundle);
  if (request.url === "/up") return void send(response, "application/json", "true");
  return void send(response, "text/html", html);
});

async function send(response: ServerResponse, type: string, body: string | Promise<string>): Promise<void> {
  response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(await body);
}

server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/?user=ada`));
process.on("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
  void runtime.close({ drainMs: 0 });
});
