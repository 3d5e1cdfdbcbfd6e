export { createAcpHandler, createAcpNodeListener } from "./faces/acp/handlers.ts";
export type { AcpOptions } from "./faces/acp/options.ts";
export type { Handler } from "./http/fetch.ts";
export type { NodeListener } from "./http/node.ts";
export type { Authorize, AuthorizeRequest, Denial, Grant, HttpOptions } from "./http/options.ts";
