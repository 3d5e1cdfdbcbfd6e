import { createMCPClient } from "@ai-sdk/mcp";
import { generateText, stepCountIs } from "ai";
import { AgentRuntime, defineAgent, textOf } from "cadenza";
import { aiSdk } from "cadenza/ai-sdk";
import { createMcpHandler } from "cadenza/mcp";
import { durable } from "cadenza/store";
import { afterEach, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { answer, pretend } from "./models.ts";

/* The tools of an MCP server, as steps with approvals of an agent. */

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** A server with a tool that counts its calls. */
async function weatherServer() {
  const calls: unknown[] = [];
  const server = new AgentRuntime().register("weather", (input) => {
    calls.push(input[0]?.parts[0]?.content);
    return "Rain.";
  });
  const handler = createMcpHandler(server, { basePath: "/mcp" });
  const fetch = async (url: string | URL | Request, init?: RequestInit): Promise<Response> =>
    handler(new Request(url, init));
  const transport = { type: "http", url: "http://localhost/mcp", fetch: fetch as typeof globalThis.fetch } as const;
  const client = await createMCPClient({ transport });
  closing.push(() => client.close());
  return { calls, tools: await client.tools() };
}

it.each([
  [true, "Take an umbrella.", 1],
  [false, "I may not look.", 0],
] as const)("a call with the approval %s goes on after a restart, once", async (approved, says, times) => {
  const { calls, tools } = await weatherServer();
  const clock = new FakeClock();
  const kept = lastingStore(clock);
  let turns = 0;
  const model = pretend("v3", () => {
    turns += 1;
    return turns === 1 ? answer("", { id: "call-1", name: "weather", input: { message: "Paris" } }) : answer(says);
  });
  const trip = defineAgent("trip", { durable: true }, async (input, context) => {
    const sdk = aiSdk(context);
    const { text } = await generateText({
      model: sdk.model(model),
      tools: sdk.tools(tools, { approve: { weather: true } }),
      messages: sdk.messages(input),
      stopWhen: stepCountIs(5),
    });
    return text;
  });
  const start = (): AgentRuntime => new AgentRuntime({ clock, store: durable(kept, { scanMs: 50 }), agents: [trip] });
  const first = start();
  const run = await first.createRun({ agent_name: "trip", input: "Do I need an umbrella?" });
  expect([run.status, calls]).toEqual(["awaiting", []]);
  expect((await first.details(run.run_id)).await_requests).toMatchObject([{ kind: "approval" }]);
  await first.close({ drainMs: 0 });

  const second = start();
  closing.push(() => second.close({ drainMs: 0 }));
  const done = await second.resume({ run_id: run.run_id, await_resume: { approved } });
  expect([done.status, textOf(done)]).toEqual(["completed", says]);
  // The model is not asked again for what it has said before the restart.
  expect([calls, turns]).toEqual([Array.from({ length: times }, () => "Paris"), 2]);
});
