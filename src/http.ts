export { createHandler, type Handler } from "./http/fetch.ts";
export { createNodeListener, type NodeListener, type NodeRequest, type NodeResponse } from "./http/node.ts";
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
