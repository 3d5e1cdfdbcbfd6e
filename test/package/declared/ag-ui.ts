import { AgentRuntime } from "cadenza";
import { createAgUiHandler, createAgUiNodeListener } from "cadenza/ag-ui";

const runtime = new AgentRuntime();
export const handler = createAgUiHandler(runtime);
export const listener = createAgUiNodeListener(runtime);
