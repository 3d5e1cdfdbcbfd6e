export { createHandler, type Handler } from "./http/fetch.ts";
export { createNodeListener, type NodeListener } from "./http/node.ts";
export type { NodeRequest, NodeResponse } from "./http/node-request.ts";
export type {
  Action,
  Authorize,
  AuthorizeRequest,
  Denial,
  Grant,
  HttpLimits,
  HttpOptions,
  SessionOptions,
} from "./http/options.ts";
