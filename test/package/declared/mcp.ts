import { AgentRuntime } from "cadenza";
import type { McpOptions, StdioOptions, StdioStreams } from "cadenza/mcp";
import { createMcpHandler, createMcpNodeListener, protectedResource, serveStdio } from "cadenza/mcp";

const runtime = new AgentRuntime();
const options: McpOptions = { tasks: true };
export const handler = createMcpHandler(runtime, options);
export const listener = createMcpNodeListener(runtime, options);
export const serve = (streams: StdioStreams, stdio: StdioOptions): Promise<void> => serveStdio(runtime, streams, stdio);
export const { path } = protectedResource({
  resource: "https://example.com/mcp",
  authorizationServers: ["https://login.example.com"],
});
