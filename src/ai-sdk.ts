export { type AgentToolInput, type AiSdk, aiSdk, idempotencyKeyOf } from "./ai-sdk/ai-sdk.ts";
export type { RecordedModel } from "./ai-sdk/model-types.ts";
export type { AiSdkOptions, RecordOptions } from "./ai-sdk/options.ts";
export type { ApprovalMessage, SdkResult, SdkStreamedResult } from "./ai-sdk/results.ts";
export type { SdkContext } from "./ai-sdk/sdk-context.ts";
export type { MessagesOptions, SdkMessage } from "./ai-sdk/sdk-messages.ts";
export type { AgentTool, Approval, ApproveOptions, ToolsOptions } from "./ai-sdk/tool-types.ts";
export { createChatHandler, createChatNodeListener } from "./faces/ui-stream/handlers.ts";
export type { ChatOptions } from "./faces/ui-stream/options.ts";
