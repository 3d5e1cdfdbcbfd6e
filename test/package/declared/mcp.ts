import { AgentRuntime } from "cadenza";
import type { McpOptions } from "cadenza/mcp";
import { createMcpHandler, createMcpNodeListener, protectedResource, serveStdio } from "cadenza/mcp";

const runtime = new AgentRuntime();
const options: McpOptions = { tasks: true };
export const handler = createMcpHandler(runtime, options);
export const listener = createMcpNodeListener(runtime, options);
export const serve = (...how: [Parameters<typeof serveStdio>[1], Parameters<typeof serveStdio>[2]]): Promise<void> =>
  serveStdio(runtime, ...how);
export const { path } = protectedResource({
  resource: "https://example.com/mcp",
  authorizationServers: ["https://login.example.com"],
});
