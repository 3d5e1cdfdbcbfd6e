import { AgentRuntime } from "cadenza";
import { createChatHandler, createChatNodeListener } from "cadenza/ai-sdk";

const runtime = new AgentRuntime();
export const handler = createChatHandler(runtime);
export const listener = createChatNodeListener(runtime);
