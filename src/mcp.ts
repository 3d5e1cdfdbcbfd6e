export { createMcpHandler, createMcpNodeListener } from "./faces/mcp/handlers.ts";
export type { McpOptions } from "./faces/mcp/options.ts";
export type { ProtectedResource, ProtectedResourceOptions } from "./faces/mcp/protected-resource.ts";
export { protectedResource } from "./faces/mcp/protected-resource.ts";
export type { StdioOptions, StdioOutput, StdioStreams } from "./faces/mcp/stdio.ts";
export { serveStdio } from "./faces/mcp/stdio.ts";
