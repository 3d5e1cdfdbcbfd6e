export { type AgentToolInput, type AiSdk, aiSdk, idempotencyKeyOf } from "./faces/ai-sdk/agent/ai-sdk.ts";
export type { RecordedModel } from "./faces/ai-sdk/agent/model-types.ts";
export type { AiSdkOptions, RecordOptions } from "./faces/ai-sdk/agent/options.ts";
export type { ApprovalMessage, SdkResult, SdkStreamedResult } from "./faces/ai-sdk/agent/results.ts";
export type { SdkContext } from "./faces/ai-sdk/agent/sdk-context.ts";
export type { MessagesOptions, SdkMessage } from "./faces/ai-sdk/agent/sdk-messages.ts";
export type { AgentTool, Approval, ApproveOptions, ToolsOptions } from "./faces/ai-sdk/agent/tool-types.ts";
export { createHandler, createNodeListener } from "./faces/ai-sdk/page/handlers.ts";
export type { ChatOptions } from "./faces/ai-sdk/page/options.ts";
