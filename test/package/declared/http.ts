import { AgentRuntime } from "cadenza";
import { createAcpHandler, createAcpNodeListener } from "cadenza/http";

const runtime = new AgentRuntime();
export const handler = createAcpHandler(runtime);
export const listener = createAcpNodeListener(runtime);
