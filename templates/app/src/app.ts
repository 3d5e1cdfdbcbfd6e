import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer } from "node:http";
import { stripTypeScriptTypes } from "node:module";
import type { AgentRuntime } from "cadenza";
import { createAcpNodeListener } from "cadenza/http";
import { createInspectorNodeListener } from "cadenza/inspector";

/** The page, the API and the inspector, for this machine alone. */
export function createApp(runtime: AgentRuntime, inspectorToken: string) {
  const api = createAcpNodeListener(runtime, {
    basePath: "/api",
    extensions: true, // what the client of the page needs
    allowedHosts: ["localhost", "127.0.0.1"],
  });
  const inspector = createInspectorNodeListener(runtime, { basePath: "/inspector", token: inspectorToken });
  return createServer((request, response) => {
    const [path = "/"] = (request.url ?? "/").split("?");
    if (path.startsWith("/api/")) api(request, response);
    else if (path.startsWith("/inspector")) inspector(request, response);
    else sendPage(path, response);
  });
}

function sendPage(path: string, response: ServerResponse): void {
  const send = (type: string, body: string) =>
    void response.writeHead(200, { "content-type": `${type}; charset=utf-8`, "cache-control": "no-cache" }).end(body);
  if (path === "/") send("text/html", read("page/page.html"));
  else if (path === "/page.css") send("text/css", read("page/page.css"));
  else if (path === "/page.js") send("text/javascript", stripTypeScriptTypes(read("page/page.ts")));
  // The page imports the client as it is in the package.
  else if (/^\/cadenza\/(client|chunk-\w+)\.js$/.test(path))
    send("text/javascript", read(path.replace("/cadenza/", ""), client));
  else response.writeHead(404).end();
}

const here = new URL("./", import.meta.url).href;
const client = import.meta.resolve("cadenza/client");

function read(file: string, beside = here): string {
  return readFileSync(new URL(file, beside), "utf8");
}
