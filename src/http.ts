export { createAcpHandler, createAcpNodeListener } from "./faces/acp/handlers.ts";
export type { HttpOptions, SessionOptions } from "./faces/acp/options.ts";
export type { Handler } from "./http/fetch.ts";
export type { NodeListener } from "./http/node.ts";
export type { NodeRequest, NodeResponse } from "./http/node-request.ts";
export type {
  Action,
  Authorize,
  AuthorizeRequest,
  Denial,
  FaceOptions,
  Grant,
  HttpLimits,
} from "./http/options.ts";
