export { type AiSdk, aiSdk, idempotencyKeyOf } from "./ai-sdk/ai-sdk.ts";
export type { AiSdkOptions } from "./ai-sdk/options.ts";
export type { SdkMessage } from "./ai-sdk/sdk-messages.ts";
export type { ApproveOptions } from "./ai-sdk/tool-types.ts";
export { createChatHandler, createChatNodeListener } from "./faces/ui-stream/handlers.ts";
export type { ChatOptions } from "./faces/ui-stream/options.ts";
