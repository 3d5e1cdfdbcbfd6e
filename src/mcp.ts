export { createMcpHandler, createMcpNodeListener } from "./faces/mcp/handlers.ts";
export type { McpOptions } from "./faces/mcp/options.ts";
export { protectedResource } from "./faces/mcp/protected-resource.ts";
export { serveStdio } from "./faces/mcp/stdio.ts";
