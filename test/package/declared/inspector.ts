import { AgentRuntime } from "cadenza";
import { createInspectorHandler, createInspectorNodeListener } from "cadenza/inspector";

const runtime = new AgentRuntime();
export const handler = createInspectorHandler(runtime);
export const listener = createInspectorNodeListener(runtime);
