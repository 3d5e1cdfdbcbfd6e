import { AgentRuntime } from "cadenza";
import { createA2aHandler, createA2aNodeListener } from "cadenza/a2a";

const runtime = new AgentRuntime();
const options = { root: "echo" };
export const handler = createA2aHandler(runtime, options);
export const listener = createA2aNodeListener(runtime, options);
