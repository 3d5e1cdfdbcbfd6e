import type { AgentContext } from "cadenza";
import { defineAgent } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";

const echo = defineAgent("echo", (input) => input);
export const sdkOf = (context: AgentContext) => aiSdk(context);
export const toolOf = (context: AgentContext) => sdkOf(context).agentTool(echo, { description: "Says it again." });
export const messagesOf = async (context: AgentContext) => sdkOf(context).messages(await context.session.history());
