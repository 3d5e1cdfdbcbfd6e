/**
 * One agent, one run, six protocols: begun in `useChat`, read over ACP, followed by the typed client and in AG-UI, answered
 * over A2A, cancelled over MCP. Each client is the official one of its protocol. `npx tsx examples/faces.ts`
 */
import { createRequire } from "node:module";
import { Role, taskStateToJSON } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, RestTransportFactory } from "@a2a-js/sdk/client";
import type { AgentSubscriber } from "@ag-ui/client";
import { HttpAgent } from "@ag-ui/client";
import { Client as McpClient, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";
import type * as AcpSdk from "acp-sdk";
import type { ChatState, UIMessage } from "ai";
import { AbstractChat, DefaultChatTransport } from "ai";
import { AgentRuntime } from "cadenza";
import { createA2aHandler } from "cadenza/a2a";
import { createAgUiHandler } from "cadenza/ag-ui";
import { createChatHandler } from "cadenza/ai-sdk";
import { createClient } from "cadenza/client";
import { createAcpHandler } from "cadenza/http";
import { createMcpHandler } from "cadenza/mcp";
import * as z from "zod";

const runtime = new AgentRuntime();
runtime.register("desk", async function* (_input, { ask, sleep }) {
  yield "I have found your order. ";
  const { approved } = await ask("Refund 40 €?", { kind: "approval", schema: z.object({ approved: z.boolean() }) });
  if (!approved) return yield "Then not.";
  yield "I wait for the bank. ";
  await sleep(3_600_000);
  return yield "Refunded.";
});

// One handler for each protocol. A server has them at one address: see docs/guides/mounting.md.
const handlers = {
  chat: createChatHandler(runtime, { basePath: "/chat" }),
  acp: createAcpHandler(runtime, { basePath: "/acp", extensions: true }),
  a2a: createA2aHandler(runtime, { basePath: "/a2a" }),
  agUi: createAgUiHandler(runtime, { basePath: "/ag-ui" }),
  mcp: createMcpHandler(runtime, { basePath: "/mcp" }),
};
const host = "http://localhost";
const through =
  (face: keyof typeof handlers): typeof fetch =>
  (url, init) =>
    handlers[face](new Request(url, init));
const say = (who: string, what: string): void => console.log(`${who.padEnd(8)} ${what}`);
const CHAT = "chat-17";

// useChat: a customer begins the run. React has the state in a page, and here it is an object.
const state: ChatState<UIMessage> = {
  ...{ status: "ready", error: undefined, messages: [] },
  pushMessage: (message) => void state.messages.push(message),
  popMessage: () => void state.messages.pop(),
  replaceMessage: (index, message) => void state.messages.splice(index, 1, structuredClone(message)),
  snapshot: (thing) => structuredClone(thing),
};
class Chat extends AbstractChat<UIMessage> {}
const transport = new DefaultChatTransport<UIMessage>({ api: `${host}/chat/desk`, fetch: through("chat") });
const page = new Chat({ id: CHAT, state, transport });
await page.sendMessage({ text: "I want my money back." });
const answer = page.messages.at(-1);
for (const part of answer?.parts ?? []) {
  if (part.type === "text") say("useChat", part.text);
  if (part.type === "dynamic-tool") say("useChat", `asks: ${(part.input as { question: string }).question}`);
}
const run_id = answer?.id ?? "";

// ACP: a monitor looks at the run. The ES module of the client does not load.
const { Client: AcpClient } = createRequire(import.meta.url)("acp-sdk") as typeof AcpSdk;
const monitor = new AcpClient({ baseUrl: `${host}/acp`, fetch: through("acp") });
say("ACP", `the run is ${(await monitor.runStatus(run_id)).status}`);

// A2A: another agent answers the question.
const fetchImpl = through("a2a");
const factory = new ClientFactory({
  transports: [new RestTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const peer = await factory.createFromUrl(`${host}/a2a/desk/`, ".well-known/agent-card.json");
const task = await peer.getTask({ tenant: "", id: run_id });
say("A2A", `the task is ${task.status && taskStateToJSON(task.status.state)}, and is answered`);
await peer.sendMessage({
  ...{ tenant: "", metadata: undefined },
  configuration: {
    ...{ acceptedOutputModes: [], taskPushNotificationConfig: undefined, historyLength: undefined },
    returnImmediately: true,
  },
  message: {
    ...{ messageId: "m1", contextId: "", taskId: run_id, role: Role.ROLE_USER, metadata: undefined, extensions: [] },
    ...{ referenceTaskIds: [] },
    parts: [
      { content: { $case: "data", value: { approved: true } }, metadata: undefined, filename: "", mediaType: "" },
    ],
  },
});

// The typed client: a page follows the run to its end.
const client = createClient({ url: `${host}/acp`, fetch: through("acp") });
const followed = (async () => {
  for await (const event of client.attach("desk", run_id).events())
    if (event.type === "message.part" || event.type === "run.cancelled")
      say("client", event.type === "message.part" ? (event.part.content ?? "") : event.type);
})();

// AG-UI: a host opens the thread, whose open run follows.
const thread = new HttpAgent({
  ...{ url: `${host}/ag-ui/desk?threadId=${CHAT}&runId=r1`, threadId: CHAT },
  fetch: (url) => handlers.agUi(new Request(url)),
});
let shown: Promise<unknown> = Promise.resolve();
await new Promise<void>((resolve) => {
  const subscriber: AgentSubscriber = {
    onTextMessageContentEvent: ({ event }) => {
      say("AG-UI", event.delta);
      if (event.delta.includes("bank")) resolve();
    },
    onRunFinishedEvent: () => say("AG-UI", "the run has finished"),
  };
  shown = thread.runAgent({}, subscriber);
});

// MCP: an assistant cancels the task.
const revision = "2026-07-28";
const clientInfo = { name: "assistant", version: "1.0.0" };
const assistant = new McpClient(clientInfo, { versionNegotiation: { mode: { pin: revision } } });
await assistant.connect(new StreamableHTTPClientTransport(new URL(`${host}/mcp`), { fetch: through("mcp") as never }));
const session = createTaskSessionFromClient(assistant, {
  endpointId: host,
  v2RequestFraming: { protocolVersion: revision, clientInfo, clientCapabilities: {} },
  rawDispatch: async (request) => {
    const { method, params } = request as { method: string; params: { taskId: string } };
    const headers = {
      ...{ "content-type": "application/json", "mcp-protocol-version": revision },
      ...{ "mcp-method": method, "mcp-name": params.taskId },
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    const response = await through("mcp")(`${host}/mcp`, { method: "POST", headers, body });
    const { result } = (await response.json()) as { result: never };
    return { kind: "result", result };
  },
});
say("MCP", "cancels the task");
await session.cancelTask(run_id as never);
await Promise.all([followed, shown]);
say("ACP", `the run is ${(await monitor.runStatus(run_id)).status}`);
await session.close();
await assistant.close();
await runtime.close();
