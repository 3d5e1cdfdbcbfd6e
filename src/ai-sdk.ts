export { createHandler, createNodeListener } from "./faces/ai-sdk/page/handlers.ts";
export type { ChatOptions } from "./faces/ai-sdk/page/options.ts";
