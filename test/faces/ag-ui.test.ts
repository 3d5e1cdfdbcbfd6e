import type { AgentSubscriber, BaseEvent, RunAgentParameters } from "@ag-ui/client";
import { EventSchemas } from "@ag-ui/core/schemas";
import type { AgentFunction, CadenzaError } from "cadenza";
import { AgentRuntime } from "cadenza";
import { createAgUiHandler } from "cadenza/ag-ui";
import type { HttpOptions } from "cadenza/http";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import * as z from "zod";
import { FakeClock } from "../harness/clock.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { ThreadAgent } from "./ag-ui-visitor.ts";

const approval = z.object({ approved: z.boolean() });

/** The official client, with its verifier, of one agent. It keeps the events of the last request. */
class Host {
  readonly clock = new FakeClock();
  readonly runtime: AgentRuntime;
  readonly agent: ThreadAgent;
  events: readonly (BaseEvent & Record<string, unknown>)[] = [];

  constructor(agent: AgentFunction, options: HttpOptions = {}) {
    const store = durable(lastingStore(this.clock), { scanMs: 50 });
    this.runtime = new AgentRuntime({ clock: this.clock, store }).register("desk", { durable: true }, agent);
    const handler = createAgUiHandler(this.runtime, options);
    this.send = async (url, init) => handler(new Request(url, init));
    this.agent = new ThreadAgent({ url: "http://localhost/desk", threadId: "thread" });
    this.agent.fetch = (_url, init) => this.send(this.agent.url, init);
  }

  readonly send: (url: string, init?: RequestInit) => Promise<Response>;

  async run(parameters: RunAgentParameters = {}): Promise<readonly string[]> {
    const events: (BaseEvent & Record<string, unknown>)[] = [];
    const subscriber: AgentSubscriber = {
      onEvent: ({ event }) => {
        EventSchemas.parse(event);
        events.push(event as (typeof events)[number]);
      },
    };
    await this.agent.runAgent(parameters, subscriber);
    this.events = events;
    return events.map(({ type }) => type);
  }

  say(content: string, parameters?: RunAgentParameters): Promise<readonly string[]> {
    this.agent.addMessage({ id: `m${this.agent.messages.length}`, role: "user", content });
    return this.run(parameters);
  }

  /** What is answered to a body of the thread. */
  async post(body: object): Promise<string> {
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify({ threadId: "thread", ...body }) };
    return (await this.send("http://localhost/desk", init)).text();
  }

  /** What is answered to a client that opens the thread. */
  async open(query: Record<string, string> = {}): Promise<string> {
    const asked = new URLSearchParams({ threadId: "thread", runId: "opened", ...query });
    return (await this.send(`http://localhost/desk?${asked}`)).text();
  }

  get last() {
    return this.events.at(-1);
  }
}

const text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
const segment = (...types: string[]): string[] => ["RUN_STARTED", ...types, "RUN_FINISHED"];

it("each kind of part is an event of its own, and text is a message", async () => {
  const host = new Host(async function* () {
    yield "Looking";
    yield "… ";
    yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
    yield { content: "Said.", metadata: { kind: "citation", url: "https://example.com" } };
    yield { content: "", metadata: { kind: "trajectory", message: "Hmm." } };
    yield {
      content: "",
      metadata: { kind: "trajectory", tool_name: "find", tool_input: { a: 1 }, tool_output: { b: 2 } },
    };
    yield { name: "progress", value: 3 };
    yield { total: 3 };
  });
  const tool = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"];
  const reasoning = ["START", "MESSAGE_START", "MESSAGE_CONTENT", "MESSAGE_END", "END"].map(
    (type) => `REASONING_${type}`,
  );
  expect(await host.say("hi")).toEqual(
    segment(
      ...["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"],
      ...["ACTIVITY_SNAPSHOT", ...text, "CUSTOM", ...reasoning, ...tool, "CUSTOM", "CUSTOM"],
    ),
  );
  expect(host.events.filter(({ type }) => type === "CUSTOM")).toMatchObject([
    { name: "citation", value: { url: "https://example.com" } },
    { name: "progress", value: 3 },
    { name: "generic", value: { total: 3 } },
  ]);
  expect(host.last).toMatchObject({ threadId: "thread", outcome: { type: "success" } });
  const [run] = await host.runtime.listRuns({});
  expect(host.events[0]).toMatchObject({ protocolVersion: "1.0", metadata: { run_id: run?.run_id } });
});

it("thoughts that follow each other are one block, and a state is told once, then by what has changed", async () => {
  const thought = (message: string) => ({ content: "", metadata: { kind: "trajectory", message } }) as const;
  const state = (value: object) => ({
    ...{ name: "state", content_type: "application/json" },
    content: JSON.stringify(value),
  });
  const host = new Host(async function* () {
    yield thought("Let me ");
    yield thought("think.");
    yield state({ step: 1, plan: { "a/b": 1, list: [1, 2] }, gone: true });
    yield "Done.";
    yield state({ step: 2, plan: { "a/b": 2, list: [1, 2] }, added: null });
    yield state({ step: 2, plan: { "a/b": 2, list: [1, 2] }, added: null });
  });
  const reasoning = ["START", "MESSAGE_START", "MESSAGE_CONTENT", "MESSAGE_CONTENT", "MESSAGE_END", "END"];
  expect(await host.say("hi")).toEqual(
    segment(...reasoning.map((type) => `REASONING_${type}`), "STATE_SNAPSHOT", ...text, "STATE_DELTA"),
  );
  expect(host.agent.state).toEqual({ step: 2, plan: { "a/b": 2, list: [1, 2] }, added: null });
  expect(host.agent.messages).toMatchObject([
    {},
    { role: "reasoning", content: "Let me think." },
    { content: "Done." },
  ]);
  const shown = host.agent.messages;
  host.agent.messages = [];
  host.agent.state = {};
  host.agent.isOpening = true;
  expect(await host.run()).toEqual(segment("MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"));
  expect(host.agent.messages).toEqual(shown);
  expect(host.agent.state).toMatchObject({ step: 2 });
});

it.each<[what: string, payload: unknown]>([
  ["a boolean", true],
  ["a number", 5],
  ["a list", ["a"]],
  ["null", null],
])("an interrupt is resolved with %s", async (_, payload) => {
  const host = new Host(async (_input, { ask }) => JSON.stringify(await ask("Well?", { schema: z.json() })));
  await host.say("hi");
  const [{ id: interruptId = "" } = {}] = host.agent.pendingInterrupts;
  await host.run({ resume: [{ interruptId, status: "resolved", payload }] });
  expect(host.agent.messages.at(-1)).toMatchObject({ role: "assistant", content: JSON.stringify(payload) });
});

const locate = {
  content: "Where?",
  tool_call_id: "call-1",
  tool_name: "getLocation",
  tool_input: { precise: true },
};
const tools = [{ name: "getLocation", description: "Tells the place.", parameters: { type: "object" } }];

it("a tool of the client is called by its name, and its result is the answer", async () => {
  const host = new Host(async function* (_input, { ask }) {
    const { city } = await ask(locate, { schema: z.object({ city: z.string() }) });
    yield `In ${city}.`;
  });
  const call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
  expect(await host.say("Where am I?", { tools })).toEqual(segment(...call));
  expect(host.events[1]).toMatchObject({ toolCallId: "call-1", toolCallName: "getLocation" });
  expect(host.last).toMatchObject({ outcome: { type: "success" } });
  expect(host.agent.pendingInterrupts).toEqual([]);
  host.agent.addMessage({ id: "r1", role: "tool", toolCallId: "call-1", content: '{"city":"Ulm"}' });
  await host.run({ tools });
  expect(host.agent.messages.at(-1)).toMatchObject({ role: "assistant", content: "In Ulm." });
  expect(await host.runtime.listRuns()).toHaveLength(1);
});

const call = (id: string) => ({ id, role: "assistant", toolCalls: [{ id, type: "function", function: {} }] });
const result = (toolCallId: string, content: string, more = {}) => ({
  ...{ id: `r-${toolCallId}`, role: "tool", toolCallId, content },
  ...more,
});
const city = z.object({ city: z.string() });

it("results of tools are found wherever the host has put them", async () => {
  const host = new Host(async function* (_input, { ask, emit }) {
    const asked = ["a", "b"].map((id) => ask({ ...locate, tool_call_id: id }, { schema: city }));
    await emit("A moment. ");
    yield (await Promise.all(asked)).map((found) => found.city).join();
  });
  await host.say("Where?", { tools });
  const said = { id: "a1", role: "assistant", content: "A moment. " };
  const asked = { id: "m0", role: "user", content: "Where?" };
  // CopilotKit puts each result behind its call.
  const messages = [asked, call("a"), result("a", '{"city":"Ulm"}'), call("b"), result("b", '{"city":"Bonn"}'), said];
  const answered = await host.post({ runId: "r2", messages, tools });
  expect(answered).toContain('"delta":"Ulm,Bonn"');
  expect(answered).not.toContain("TOOL_CALL_RESULT");
});

it("a result of an earlier run under the same id answers nothing", async () => {
  const host = new Host(async (_input, { ask }) => (await ask(locate, { schema: city })).city);
  await host.say("Where?", { tools });
  const first = [{ id: "m0", role: "user", content: "Where?" }, call("call-1"), result("call-1", '{"city":"Ulm"}')];
  expect(await host.post({ runId: "r2", messages: first, tools })).toContain('"delta":"Ulm"');
  const second = [
    ...first,
    { id: "a1", role: "assistant", content: "Ulm" },
    { id: "m1", role: "user", content: "And?" },
  ];
  await host.post({ runId: "r3", messages: second, tools });
  expect(await host.post({ runId: "r4", messages: [...second, call("x")], tools })).toContain("interrupts_open");
  expect((await host.runtime.listRuns({ status: "awaiting" })).length).toBe(1);
});

const failing: AgentFunction = async function* (_input, { ask }) {
  try {
    yield (await ask(locate, { schema: city })).city;
  } catch (error) {
    yield `Not found: ${(error as CadenzaError).reason}`;
  }
};

it.each<[what: string, given: object]>([
  ["with the field error", result("call-1", "", { error: "No GPS." })],
  ["as CopilotKit writes it", result("call-1", "Error: No GPS.")],
])("a tool that has failed, %s, gives no answer", async (_, given) => {
  const host = new Host(failing);
  await host.say("Where?", { tools });
  const messages = [{ id: "m0", role: "user", content: "Where?" }, call("call-1"), given];
  const declined = await host.post({ runId: "r2", messages, tools });
  expect(declined).toContain('"delta":"Not found: No GPS."');
  expect(await host.post({ runId: "r2", messages, tools })).toBe(declined);
  expect(await host.open({ tool: "getLocation" })).toContain('"content":"Error: No GPS."');
});

it("what the user says beside the result of a tool begins a run of its own, once the result was taken", async () => {
  const host = new Host(async function* (input, { ask, session }) {
    if (input[0]?.parts[0]?.content === "Where?") yield `In ${(await ask(locate, { schema: city })).city}.`;
    else yield `After ${(await session.history()).length}.`;
  });
  await host.say("Where?", { tools });
  const where = [{ id: "m0", role: "user", content: "Where?" }, call("call-1"), result("call-1", '{"city":"Ulm"}')];
  const messages = [...where, { id: "m1", role: "user", content: "And?" }];
  const both = await host.post({ runId: "r2", messages, tools });
  expect([...both.matchAll(/"type":"(RUN_[A-Z]+)|"delta":"([^"]+)/g)].map(([, type, delta]) => type ?? delta)).toEqual([
    ...["RUN_STARTED", "In Ulm.", "After 4.", "RUN_FINISHED"],
  ]);
  // Sent again, it is followed.
  expect(await host.post({ runId: "r3", messages, tools })).toContain('"delta":"After 4."');
  expect(await host.runtime.listRuns()).toHaveLength(2);
});

it("a result that does not fit leaves the question open, until the user goes on", async () => {
  const host = new Host(failing);
  await host.say("Where?", { tools });
  const where = [{ id: "m0", role: "user", content: "Where?" }, call("call-1"), result("call-1", '{"town":"Ulm"}')];
  expect(await host.post({ runId: "r2", messages: where, tools })).toContain("answer_rejected");
  const messages = [...where, { id: "m1", role: "user", content: "And?" }];
  expect(await host.post({ runId: "r3", messages, tools })).toContain('Not found: {\\"town\\":\\"Ulm\\"}');
});

it("what the user says beside a result is not lost when its client leaves", async () => {
  const host = new Host(async (input, { ask, sleep }) => {
    if (input[0]?.parts[0]?.content !== "Where?") return;
    await ask(locate, { schema: city });
    await sleep("1m");
  });
  await host.say("Where?", { tools });
  const where = [{ id: "m0", role: "user", content: "Where?" }, call("call-1"), result("call-1", '{"city":"Ulm"}')];
  const messages = [...where, { id: "m1", role: "user", content: "And?" }];
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ threadId: "thread", runId: "r2", messages, tools });
  const response = await host.send("http://localhost/desk", { method: "POST", headers, body });
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  await reader.read();
  await host.clock.settle();
  expect(await host.runtime.listRuns()).toHaveLength(1);
  await reader.cancel();
  await host.clock.settle();
  expect(await host.runtime.listRuns()).toMatchObject([{ status: "completed" }, { status: "in-progress" }]);
});

it("the result of a tool that was given elsewhere is shown, and no words of the user", async () => {
  const host = new Host(async (_input, { ask }) => void (await ask(locate)));
  await host.say("Where?");
  const [{ id: interruptId = "" } = {}] = host.agent.pendingInterrupts;
  await host.run({ resume: [{ interruptId, status: "resolved", payload: "Ulm" }] });
  expect(host.agent.messages.at(-1)).toMatchObject({ role: "tool", toolCallId: "call-1", content: "Ulm" });
  expect(await host.open()).toContain('"role":"tool","toolCallId":"call-1","content":"Ulm"');
});

it("a client that opens a thread names the tools that it executes itself", async () => {
  const host = new Host(async (_input, { ask }) => void (await ask(locate)));
  await host.say("Where?", { tools });
  expect(await host.open()).toContain('"outcome":{"type":"interrupt"');
  expect(await host.open({ tool: "getLocation" })).toContain('"outcome":{"type":"success"}');
});

it("clients that speak no version of the protocol know no cancelled runs", async () => {
  const host = new Host(async (_input, { ask }) => void (await ask("Well?")));
  await host.say("hi");
  const [{ id: interruptId = "" } = {}] = host.agent.pendingInterrupts;
  const resume = [{ interruptId, status: "cancelled" }];
  const error = expect.stringContaining('"outcome":{"type":"success"},"result":{"error":');
  expect(await host.post({ runId: "r2", messages: [], resume })).toEqual(error);
  await host.post({ runId: "r3", messages: [{ id: "m1", role: "user", content: "hi" }] });
  await host.runtime.cancel((await host.runtime.listRuns())[0]?.run_id ?? "");
  expect(await host.open()).toEqual(error);
  expect(await host.open({ protocolVersion: "1.0" })).toContain('"outcome":{"type":"cancelled"}}');
});

it("a tool that the client does not have is an interrupt, which names the call that was shown", async () => {
  const host = new Host(async (_input, { ask }) => JSON.stringify(await ask(locate)));
  await host.say("Where am I?");
  expect(host.agent.pendingInterrupts).toMatchObject([{ toolCallId: "call-1", message: "Where?" }]);
  expect(host.agent.messages).toMatchObject([{}, { toolCalls: [{ id: "call-1", function: { name: "getLocation" } }] }]);
});

it.each<[what: string, agent: AgentFunction, resume: object]>([
  ["declined", async (_input, { ask }) => void (await ask("Well?")), { status: "cancelled" }],
  [
    "answered, and its run fails",
    async (_input, { ask }) => {
      await ask("Well?");
      throw new Error("The train is full.");
    },
    { status: "resolved", payload: "Yes." },
  ],
])("a client goes on after an interrupt that was %s", async (_, agent, resume) => {
  const host = new Host(agent);
  await host.say("hi");
  const [{ id: interruptId = "" } = {}] = host.agent.pendingInterrupts;
  await host.run({ resume: [{ interruptId, ...resume } as never] });
  expect(host.last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
  expect(host.last?.["result"]).toMatchObject({ error: { message: expect.any(String) } });
  expect(host.events.at(-2)).toMatchObject({ type: "CUSTOM", name: "run_failed" });
  expect(await host.say("Again.")).toEqual(segment());
});

it("a thread that is opened again has the same messages, under the same ids", async () => {
  const host = new Host(async function* () {
    yield "Looking… ";
    yield { name: "chart.png", content_type: "image/png", content: "aGk=", content_encoding: "base64" };
    yield "Done.";
  });
  await host.say("hi");
  const shown = host.agent.messages;
  host.agent.messages = [];
  host.agent.isOpening = true;
  expect(await host.run()).toEqual(segment("MESSAGES_SNAPSHOT"));
  expect(host.agent.messages).toEqual(shown);
});

it("steps, sub-agents and tokens are told, and what an interrupted attempt has shown is a message of its own", async () => {
  let attempts = 0;
  const host = new Host(async function* (input, { step, run, usage }) {
    yield await step(
      "draft",
      async (draft) => {
        draft.emit(attempts === 0 ? "Torn" : "Whole");
        usage.add({ inputTokens: 3, outputTokens: 2 });
        if (attempts++ === 0) throw new Error("broken");
        return null;
      },
      { retry: { attempts: 2 } },
    );
    await run("echo", input);
  });
  host.runtime.register("echo", (input) => input);
  const step = ["STEP_STARTED", ...text, "STEP_FINISHED"];
  expect(await host.say("hi")).toEqual(segment(...step, ...step, "SUBAGENT_STARTED", "SUBAGENT_FINISHED"));
  const ids = host.events.flatMap(({ type, messageId }) => (type === "TEXT_MESSAGE_START" ? [messageId] : []));
  expect(new Set(ids).size).toBe(2);
  expect(host.last).toMatchObject({ usage: [{ inputTokens: 6, outputTokens: 4, totalTokens: 10 }] });
});

it("a resume covers all open interrupts, and the same again is safe", async () => {
  const host = new Host(async function* (_input, { ask }) {
    const answers = await Promise.all(
      ["A?", "B?"].map((question) => ask(question, { kind: "approval", schema: approval })),
    );
    yield answers.map(({ approved }) => approved).join();
  });
  expect(await host.say("hi")).toEqual(segment());
  const [one, other] = host.agent.pendingInterrupts;
  expect(one).toMatchObject({ reason: "confirmation", message: "A?", responseSchema: { required: ["approved"] } });
  const yes = (id = "") => ({ interruptId: id, status: "resolved" as const, payload: { approved: true } });
  const no = (id = "") => ({ ...yes(id), payload: { approved: false } });
  const raw = async (resume: object[], runId = "r2"): Promise<string> => {
    const body = JSON.stringify({ threadId: "thread", runId, messages: [], resume });
    const headers = { "content-type": "application/json" };
    return (await host.send("http://localhost/desk", { method: "POST", headers, body })).text();
  };
  expect(await raw([yes(one?.id)])).toContain("interrupts_open");
  expect(await raw([yes(one?.id), { ...yes(other?.id), payload: { approved: 1 } }])).toContain("answer_rejected");
  expect((await host.runtime.listRuns({ status: "awaiting" })).length).toBe(1);
  const answers = [yes(one?.id), no(other?.id)];
  const answered = await raw(answers);
  expect(answered).toContain('"delta":"true,false"');
  expect(await raw(answers)).toBe(answered);
  expect(await raw([no(one?.id), no(other?.id)])).toContain("answer_conflict");
});

it("a segment has the tokens that it has used", async () => {
  const host = new Host(async (_input, { ask, usage }) => {
    usage.add({ inputTokens: 1, outputTokens: 1 });
    const asked = [ask("Who?")];
    usage.add({ inputTokens: 2, outputTokens: 2 });
    asked.push(ask("Where?"));
    await Promise.all(asked);
    usage.add({ inputTokens: 4, outputTokens: 4, reasoningTokens: 3, cachedInputTokens: 2 });
    usage.add({ inputTokens: 8, outputTokens: 8 });
  });
  await host.say("hi");
  expect(host.last).toMatchObject({ usage: [{ inputTokens: 3, outputTokens: 3, totalTokens: 6 }] });
  const resume = host.agent.pendingInterrupts.map(({ id }) => ({
    interruptId: id,
    status: "resolved" as const,
    payload: "Ada",
  }));
  await host.run({ resume });
  const usage = { inputTokens: 12, outputTokens: 12, totalTokens: 24, reasoningTokens: 3, cachedInputTokens: 2 };
  expect(host.last).toMatchObject({ usage: [usage] });
});

it("an interrupt that is cancelled declines, and after its deadline shows what became of the run", async () => {
  const host = new Host(async function* (_input, { ask }) {
    yield JSON.stringify(await ask("Who?", { timeoutMs: 1_000, default: { name: "Ada" } }));
  });
  await host.say("hi");
  const [{ id = "", expiresAt } = {}] = host.agent.pendingInterrupts;
  expect(expiresAt).toBe(new Date(host.clock.now() + 1_000).toISOString());
  await host.clock.advance(2_000);
  const resume = [{ interruptId: id, status: "cancelled" as const }];
  const body = JSON.stringify({ threadId: "thread", runId: "r2", messages: [], resume });
  const headers = { "content-type": "application/json" };
  const late = await (await host.send("http://localhost/desk", { method: "POST", headers, body })).text();
  expect(late).toContain(JSON.stringify({ delta: JSON.stringify({ name: "Ada" }) }).slice(1, -1));
  expect(late).toContain('"outcome":{"type":"success"}');
});

it("the agent gets what the user said last, and what the host hands it", async () => {
  let seen: unknown;
  const host = new Host((input, { metadata }) => {
    seen = { input, metadata };
    return "Hello.";
  });
  host.agent.messages = [
    { id: "s1", role: "system", content: "Obey me." },
    { id: "u0", role: "user", content: "Before." },
    { id: "a0", role: "assistant", content: "Hello." },
    { id: "d1", role: "developer", content: "Obey me too." },
  ];
  host.agent.state = { page: 1 };
  const tools = [{ name: "paint", description: "Paints.", parameters: { type: "object" } }];
  const context = [{ description: "Where", value: "Home" }];
  await host.say("Now.", { runId: "r1", tools, context, forwardedProps: { a: 1 } });
  const said = { content_type: "text/plain", content: "Now.", content_encoding: "plain", chat_message_id: "m4" };
  const metadata = { runId: "r1", state: { page: 1 }, tools, context, forwardedProps: { a: 1 } };
  expect(seen).toMatchObject({ input: [{ role: "user", parts: [said] }], metadata });
  const { history } = await host.runtime.getSession(host.runtime.sessionId("thread"));
  expect(history.map(({ parts }) => parts.map(({ content }) => content).join())).toEqual(["Now.", "Hello."]);
});

it("a run that fails ends with its error, after its tokens", async () => {
  const host = new Host(async function* (_input, { usage }) {
    yield "Half ";
    usage.add({ inputTokens: 1, outputTokens: 1 });
    throw new Error("secret");
  });
  expect((await host.say("hi")).at(-1)).toBe("RUN_ERROR");
  expect(host.last).toMatchObject({ code: "agent_failed", usage: [{ totalTokens: 2 }] });
});

it("a closed connection cancels the run if the host says so", async () => {
  const host = new Host(
    async function* (_input, { ask, signal }) {
      yield "One ";
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      await ask("Never asked?");
    },
    { onDisconnect: "cancel" },
  );
  const said = host.say("hi").catch(() => {});
  await host.clock.settle();
  host.agent.abortRun();
  await said;
  await host.clock.settle();
  expect((await host.runtime.listRuns({})).map(({ status }) => status)).toEqual(["cancelled"]);
});

it.each([
  ["no object", []],
  ["no thread", { runId: "r", messages: [] }],
  ["no run id", { threadId: "t", messages: [] }],
  ["no messages", { threadId: "t", runId: "r" }],
  ["nothing of the user", { threadId: "t", runId: "r", messages: [{ id: "a", role: "assistant", content: "x" }] }],
  [
    "a part of an unknown kind",
    { threadId: "t", runId: "r", messages: [{ id: "a", role: "user", content: [{ type: "x" }] }] },
  ],
  [
    "a resume of nothing",
    { threadId: "t", runId: "r", messages: [], resume: [{ interruptId: "x", status: "resolved" }] },
  ],
])("a body with %s is refused with 422", async (_name, body) => {
  const host = new Host((input) => input);
  const headers = { "content-type": "application/json" };
  const response = await host.send("http://localhost/desk", { method: "POST", headers, body: JSON.stringify(body) });
  expect(response.status).toBe(422);
  expect(await response.json()).toMatchObject({ code: "invalid_input", data: { reason: "invalid_argument" } });
});
