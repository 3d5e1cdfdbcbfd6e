import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createMCPClient } from "@ai-sdk/mcp";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import type { TaskExecutionEvent } from "@modelcontextprotocol/ext-tasks/client";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";
import { AgentRuntime, defineAgent } from "cadenza";
import { createMcpHandler, createMcpNodeListener } from "cadenza/mcp";
import { afterEach, expect, it } from "vitest";
import * as z from "zod";
import type { Mode } from "./mcp-visitor.ts";
import { MCP_URL, MODERN, messagesIn, modes } from "./mcp-visitor.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const approval = z.object({ approved: z.boolean() });

function refunds(): AgentRuntime {
  const runtime = new AgentRuntime();
  runtime.register(
    defineAgent("refund", { input: z.object({ amount: z.number() }) }).run(async function* ({ amount }, { ask }) {
      yield "Looking. ";
      yield (await ask(`Refund ${amount} €?`, { schema: approval })).approved ? "Refunded." : "Refused.";
    }),
  );
  closing.push(() => runtime.close());
  return runtime;
}

function clientOf(mode: Mode): Client {
  const versionNegotiation = modes[mode];
  const client = new Client(
    { name: "visitor", version: "1.0.0" },
    { capabilities: { elicitation: { form: {} } }, ...(versionNegotiation !== undefined && { versionNegotiation }) },
  );
  client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { approved: true } }));
  closing.push(() => client.close());
  return client;
}

const refund = { name: "refund", arguments: { amount: 40 } };
const refunded = { content: [{ type: "text", text: "Looking. Refunded." }] };

it.each(Object.keys(modes) as Mode[])("over a socket, the official client that finds the revision %s", async (mode) => {
  const server = createServer(createMcpNodeListener(refunds(), { basePath: "/mcp" }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => server.close());
  const client = clientOf(mode);
  const { port } = server.address() as AddressInfo;
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)));
  expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["refund"]);
  expect(await client.callTool(refund)).toMatchObject(refunded);
});

it.each(Object.keys(modes) as Mode[])("over stdio, the official client that finds the revision %s", async (mode) => {
  const client = clientOf(mode);
  const args = ["--import", "tsx", `${import.meta.dirname}/mcp-stdio-server.ts`];
  await client.connect(new StdioClientTransport({ command: process.execPath, args }));
  expect(await client.callTool(refund)).toMatchObject(refunded);
  const abort = new AbortController();
  const call = client.callTool({ name: "wait", arguments: { message: "" } }, { signal: abort.signal });
  abort.abort();
  await expect(call).rejects.toThrow();
  expect((await client.listTools()).tools).toHaveLength(2);
});

it("the official client of tasks follows a task, and answers its question", async () => {
  const handler = createMcpHandler(refunds(), { basePath: "/mcp", tasks: true, pollIntervalMs: 10 });
  const send = async (url: string | URL | Request, init?: RequestInit) => handler(new Request(url, init));
  const client = clientOf("pinned to 2026-07-28");
  await client.connect(new StreamableHTTPClientTransport(new URL(MCP_URL), { fetch: send as typeof fetch }));
  const session = createTaskSessionFromClient(client, {
    endpointId: "refunds",
    v2RequestFraming: {
      protocolVersion: MODERN,
      clientInfo: { name: "visitor", version: "1.0.0" },
      clientCapabilities: { elicitation: { form: {} } },
    },
    rawDispatch: async (request) => {
      const { method, params } = request as { method: string; params: Record<string, unknown> };
      const name = params["name"] ?? params["taskId"];
      const headers = {
        ...{ "content-type": "application/json", accept: "application/json, text/event-stream" },
        ...{ "mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": String(name) },
      };
      const response = await send(MCP_URL, {
        method: "POST",
        headers,
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...(request as object) }),
      });
      const { result, error } = messagesIn(await response.text()).at(-1) as never;
      return error === undefined ? { kind: "result", result } : { kind: "error", error };
    },
    onInputRequest: async () => ({ action: "accept", content: { approved: true } }) as never,
  });
  const execution = await session.callTool("refund", { amount: 40 });
  const states: string[] = [];
  const onEvent = (event: TaskExecutionEvent<unknown>): void => {
    if (event.type === "task") states.push(event.task.status);
  };
  const { outcome } = await execution.settle({ onEvent });
  expect(resultFromTaskOutcome(outcome)).toMatchObject(refunded);
  expect(states).toContain("input_required");
  await session.close();
});

it("tools of MCP are steps of an agent, with an approval", async () => {
  const handler = createMcpHandler(
    new AgentRuntime().register("weather", () => "Rain."),
    { basePath: "/mcp" },
  );
  const send = async (url: string | URL | Request, init?: RequestInit) => handler(new Request(url, init));
  const client = await createMCPClient({ transport: { type: "http", url: MCP_URL, fetch: send as typeof fetch } });
  closing.push(() => client.close());
  const tools = await client.tools();
  const runtime = new AgentRuntime().register("trip", async (_input, { ask, step }) => {
    const { approved } = await ask("Ask for the weather?", { kind: "approval", schema: approval });
    if (!approved) return "Stayed at home.";
    const result = await step("weather", async () =>
      tools["weather"]?.execute({ message: "Paris" }, { toolCallId: "1", messages: [] } as never),
    );
    return (result as { content: { text: string }[] }).content[0]?.text;
  });
  closing.push(() => runtime.close());
  const asked = await runtime.createRun({ agent_name: "trip", input: "" });
  expect(asked.status).toBe("awaiting");
  const done = await runtime.resume({ run_id: asked.run_id, await_resume: { approved: true } });
  expect(done.output[0]?.parts[0]?.content).toBe("Rain.");
});
