import type { AgentRuntime } from "cadenza";
import { defineAgent } from "cadenza";
import { createMcpHandler, protectedResource, serveStdio } from "cadenza/mcp";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { nextTurn } from "../harness/promises.ts";
import { setUp } from "../harness/runtimes.ts";
import { Desk } from "./desk.ts";
import type { Filled, Form, Mode } from "./mcp-visitor.ts";
import { McpVisitor, modes, RawMcp, said } from "./mcp-visitor.ts";

const SECRET = "a secret of at least thirty-two characters";
/** The id of the question of `ask` and `deadline`, which has a name. */
const QUESTION = "ask#1";

function handlerOf(desk: Desk) {
  return () => createMcpHandler(desk.runtime, { basePath: "/mcp", secret: SECRET, ...desk.host });
}

function visit(desk: Desk, mode: Mode, fill?: (form: Form) => Filled | Promise<Filled>): Promise<McpVisitor> {
  let handler: ReturnType<ReturnType<typeof handlerOf>> | undefined;
  let runtime: AgentRuntime | undefined;
  return new McpVisitor(
    () => {
      if (handler === undefined || runtime !== desk.runtime) handler = handlerOf(desk)();
      runtime = desk.runtime;
      return handler;
    },
    mode,
    fill,
  ).connect();
}

/** The run of a call, which may wait for the cryptography of the machine before it begins. */
async function begunRun({ runtime }: Desk): Promise<string> {
  for (;;) {
    const [run] = await runtime.listRuns();
    if (run !== undefined) return run.run_id;
    await nextTurn();
  }
}

const accept =
  (content: Record<string, unknown>): (() => Filled) =>
  () => ({ action: "accept", content });

describe.each(Object.keys(modes) as Mode[])("with the official client that finds the revision %s", (mode) => {
  it("lists agents as tools, with their schemas", async () => {
    const { runtime } = setUp();
    const input = z.object({ amount: z.number() });
    const output = z.object({ paid: z.boolean() });
    runtime.register(
      defineAgent("refund", { description: "Refunds.", input, output }).run(({ amount }) => ({ paid: amount > 0 })),
    );
    runtime.register("echo", (input) => input);
    const handler = createMcpHandler(runtime, { basePath: "/mcp" });
    const { client } = await new McpVisitor(() => handler, mode).connect();
    const { tools } = await client.listTools();
    expect(tools.map(({ name, description }) => [name, description])).toEqual([
      ["refund", "Refunds."],
      ["echo", "The agent echo."],
    ]);
    expect(tools[0]?.inputSchema).toMatchObject({ type: "object", required: ["amount"] });
    expect(tools[0]?.outputSchema).toMatchObject({ type: "object", required: ["paid"] });
    const result = await client.callTool({ name: "refund", arguments: { amount: 40 } });
    expect(result).toMatchObject({
      structuredContent: { paid: true },
      content: [{ type: "text", text: '{"paid":true}' }],
    });
    await client.close();
  });

  it("a stream is progress, and one text in the result", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode);
    const told: unknown[] = [];
    const result = await user.call("stream", { onprogress: ({ message }) => told.push(message) });
    expect(said(result)).toBe("One two three.");
    expect(told).toEqual(["One ", "two ", "three."]);
  });

  it("a question is a form", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode, accept({ approved: true }));
    expect(said(await user.call("ask"))).toBe("Looking. Refunded.");
    expect(user.forms).toMatchObject([
      {
        message: "Refund 40 €?",
        requestedSchema: { properties: { approved: { type: "boolean" } }, required: ["approved"] },
      },
    ]);
  });

  it("an answer that does not fit is asked for again, with the reason", async () => {
    const desk = new Desk();
    const answers = [{ approved: "maybe" }, { approved: false }];
    const user = await visit(desk, mode, () => ({ action: "accept", content: answers.shift() ?? {} }));
    expect(said(await user.call("ask"))).toBe("Looking. Refused.");
    expect(user.forms).toHaveLength(2);
    expect(user.forms[1]?.message).toMatch(/^Refund 40 €\?\n\n.*approved/s);
  });

  it("a client that repeats an answer that does not fit is asked ten times", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode, accept({ approved: "maybe" }));
    const outcome = await user.call("ask").then(said, (error: Error) => error.message);
    expect(outcome).toMatch(/10 (answers|rounds)/);
    expect(user.forms).toHaveLength(10);
    await desk.clock.settle();
    // From 2026-07-28 on the client gives up by itself, and may come back.
    const [run] = await desk.runtime.listRuns();
    expect(run?.status).toBe(mode === "by default" ? "cancelled" : "awaiting");
  });

  it("arguments that do not match the schema are a result, which says what a model can mend", async () => {
    const { runtime } = setUp();
    const input = z.object({ amount: z.number() });
    runtime.register(defineAgent("refund", { input }).run(() => "Refunded."));
    runtime.register("echo", (said) => said);
    const handler = createMcpHandler(runtime, { basePath: "/mcp", tasks: true });
    const { client } = await new McpVisitor(() => handler, mode).connect();
    const refused = { isError: true, content: [{ type: "text", text: expect.stringMatching(/ amount: .*number/) }] };
    expect(await client.callTool({ name: "refund", arguments: { amount: "all" } })).toMatchObject(refused);
    const missing = { isError: true, content: [{ type: "text", text: "message: expected a string." }] };
    expect(await client.callTool({ name: "echo" })).toMatchObject(missing);
    expect(await runtime.listRuns()).toEqual([]);
    await client.close();
  });

  it("an answer in words is one field", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode, accept({ answer: "Ada" }));
    expect(said(await user.call("words"))).toBe("Hello Ada.");
  });

  it.each(["decline", "cancel"] as const)("a user who chooses %s declines", async (action) => {
    const desk = new Desk();
    const user = await visit(desk, mode, () => ({ action }));
    expect(said(await user.call("decline"))).toBe("Not answered: answer_declined.");
  });

  it("a client without forms is told so, and the run is cancelled", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode);
    const outcome = await user.call("ask").then(
      (result) => ({ isError: result.isError }),
      (error: { code?: number }) => ({ code: error.code }),
    );
    expect(outcome).toEqual(mode === "by default" ? { isError: true } : { code: -32021 });
    await desk.clock.settle();
    expect((await desk.runtime.listRuns()).map(({ status }) => status)).toEqual(["cancelled"]);
  });

  it("a failure is a result that says so", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode);
    expect(await user.call("fail")).toMatchObject({
      isError: true,
      content: [{ type: "text", text: "The train is full." }],
    });
  });

  it("a call that is given up is cancelled", async () => {
    const desk = new Desk();
    const user = await visit(desk, mode);
    const abort = new AbortController();
    const call = user.call("slow", { signal: abort.signal });
    call.catch(() => {});
    const run_id = await begunRun(desk);
    abort.abort();
    await expect(call).rejects.toThrow();
    const types: string[] = [];
    for await (const { type } of desk.runtime.events(run_id, { until: "end" })) types.push(type);
    expect(types.at(-1)).toBe("run.cancelled");
  });
});

const task = { tasks: true, secret: SECRET };
type RpcBody = { readonly params: object };

/** A task that was made of a call. */
async function begin(raw: RawMcp, message: string): Promise<string> {
  const { result } = await raw.ask("tools/call", { name: "desk", arguments: { message } });
  expect(result).toMatchObject({ resultType: "task", ttlMs: null });
  return String(result?.["taskId"]);
}

describe("a run as a task", () => {
  it("is readable at once, and tells its result", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, task);
    const taskId = await begin(raw, "stream");
    await desk.clock.settle();
    const { result } = await raw.ask("tasks/get", { taskId });
    expect(result).toMatchObject({
      status: "completed",
      result: { content: [{ type: "text", text: "One two three." }] },
    });
  });

  it("waits for an answer through a restart, and is answered at another process", async () => {
    const desk = new Desk();
    const taskId = await begin(new RawMcp(desk.runtime, task), "ask");
    await desk.clock.settle();
    await desk.restart();
    const raw = new RawMcp(desk.runtime, task);
    const { result } = await raw.ask("tasks/get", { taskId });
    expect(result).toMatchObject({
      status: "input_required",
      inputRequests: { [QUESTION]: { method: "elicitation/create" } },
    });
    const refused = { [QUESTION]: { action: "accept", content: { approved: 3 } } };
    expect((await raw.ask("tasks/update", { taskId, inputResponses: refused })).error?.code).toBe(-32602);
    const given = { [QUESTION]: { action: "accept", content: { approved: true } }, unknown: { action: "accept" } };
    expect((await raw.ask("tasks/update", { taskId, inputResponses: given })).result).toMatchObject({
      resultType: "complete",
    });
    await desk.clock.settle();
    expect((await raw.ask("tasks/get", { taskId })).result).toMatchObject({
      status: "completed",
      result: { content: [{ type: "text", text: "Looking. Refunded." }] },
    });
  });

  it("is cancelled, and stays so", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, task);
    const taskId = await begin(raw, "slow");
    await desk.clock.settle();
    for (let time = 0; time < 2; time++) {
      expect((await raw.ask("tasks/cancel", { taskId })).result).toMatchObject({ resultType: "complete" });
      await desk.clock.settle();
    }
    expect((await raw.ask("tasks/get", { taskId })).result).toMatchObject({ status: "cancelled" });
  });

  it("has the failure that its agent has declared as a result", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, task);
    const taskId = await begin(raw, "fail");
    await desk.clock.settle();
    expect((await raw.ask("tasks/get", { taskId })).result).toMatchObject({
      status: "completed",
      result: { isError: true },
    });
  });

  it("says why it has failed", async () => {
    const { runtime, clock } = setUp();
    runtime.register("desk", () => Promise.reject(new Error("broken")));
    const raw = new RawMcp(runtime, task);
    const taskId = await begin(raw, "");
    await clock.settle();
    const message = "The agent failed.";
    const { result } = await raw.ask("tasks/get", { taskId });
    expect(result).toMatchObject({ status: "failed", statusMessage: message, error: { code: -32603, message } });
  });

  it("is followed by a request that says what of", async () => {
    const raw = new RawMcp(new Desk().runtime, task);
    expect((await raw.ask("subscriptions/listen")).error?.message).toBe("notifications: expected an object.");
  });

  it("goes on with the default of its question at the deadline", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, task);
    const taskId = await begin(raw, "deadline");
    await desk.clock.settle();
    await desk.clock.advance(60_000);
    expect((await raw.ask("tasks/get", { taskId })).result).toMatchObject({
      status: "completed",
      result: { content: [{ type: "text", text: "Refused in the end." }] },
    });
  });

  it("tells a subscriber each of its states, and then ends the subscription", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, task);
    const taskId = await begin(raw, "ask");
    await desk.clock.settle();
    const { body, headers } = raw.request("subscriptions/listen", { notifications: { taskIds: [taskId] } });
    const told = raw.post(body, headers);
    await desk.clock.settle();
    const answer = { [QUESTION]: { action: "accept", content: { approved: true } } };
    await raw.ask("tasks/update", { taskId, inputResponses: answer });
    await desk.clock.settle();
    const { messages } = await told;
    const id = (body as { id: number }).id;
    expect(messages.map(({ method, params }) => [method, (params as { status?: string } | undefined)?.status])).toEqual(
      [
        ["notifications/subscriptions/acknowledged", undefined],
        ["notifications/tasks", "input_required"],
        ["notifications/tasks", "working"],
        ["notifications/tasks", "completed"],
        [undefined, undefined],
      ],
    );
    for (const { params, result } of messages)
      expect(params ?? result).toMatchObject({ _meta: { "io.modelcontextprotocol/subscriptionId": id } });
    expect(messages.at(-1)).toMatchObject({ id, result: { resultType: "complete" } });
  });

  it("is refused to a client that has not declared the extension", async () => {
    const desk = new Desk();
    const taskId = await begin(new RawMcp(desk.runtime, task), "ask");
    const raw = new RawMcp(desk.runtime, task, { elicitation: {} });
    for (const method of ["tasks/get", "tasks/update", "tasks/cancel"])
      expect((await raw.ask(method, { taskId })).error).toMatchObject({
        code: -32021,
        data: { requiredCapabilities: { extensions: { "io.modelcontextprotocol/tasks": {} } } },
      });
    expect((await raw.ask("subscriptions/listen", { notifications: { taskIds: [taskId] } })).error?.code).toBe(-32021);
  });
});

describe("how an agent is called as a task", () => {
  const ask = { name: "desk", arguments: { message: "ask" } };
  const elicitation = { form: {} };
  const accepting = (approved: unknown) => ({ approval: { action: "accept", content: { approved } } });

  it("required: a client without the extension is refused, and begins no run", async () => {
    const desk = new Desk();
    const options = { secret: SECRET, tasks: { desk: "required" } } as const;
    expect((await new RawMcp(desk.runtime, options, { elicitation }).ask("tools/call", ask)).error).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { extensions: { "io.modelcontextprotocol/tasks": {} } } },
    });
    const handler = createMcpHandler(desk.runtime, { basePath: "/mcp", ...options });
    const older = await new McpVisitor(() => handler, "by default", accept({ approved: true })).connect();
    expect(await older.call("ask")).toMatchObject({ isError: true, content: [{ text: /as a task/ }] });
    expect(await desk.runtime.listRuns()).toEqual([]);
    const { result } = await new RawMcp(desk.runtime, options).ask("tools/call", ask);
    expect(result).toMatchObject({ resultType: "task" });
  });

  it("answered: the call asks the first questions, and is a task once they are answered", async () => {
    const desk = new Desk();
    const options = { secret: SECRET, tasks: { desk: "answered" } } as const;
    const raw = new RawMcp(desk.runtime, options);
    const { result } = await raw.ask("tools/call", ask);
    expect(result).toMatchObject({ resultType: "input_required" });
    const { requestState } = result ?? {};
    const refused = await raw.ask("tools/call", { ...ask, inputResponses: accepting(1), requestState });
    expect(refused.result).toMatchObject({ resultType: "input_required" });
    const answered = await raw.ask("tools/call", { ...ask, inputResponses: accepting(true), requestState });
    expect(answered.result).toMatchObject({ resultType: "task", taskId: expect.any(String) });
    expect(answered.result).not.toHaveProperty("requestState");
    await desk.clock.settle();
    const { result: task } = await raw.ask("tasks/get", { taskId: answered.result?.["taskId"] });
    expect(task).toMatchObject({ status: "completed", result: { content: [{ text: "Looking. Refunded." }] } });
  });

  it("answered: a client without the extension gets the result of the call", async () => {
    const { runtime } = new Desk();
    const raw = new RawMcp(runtime, { tasks: { desk: "answered" } }, { elicitation });
    const { result } = await raw.ask("tools/call", ask);
    const { requestState } = result ?? {};
    const done = await raw.ask("tools/call", { ...ask, inputResponses: accepting(true), requestState });
    expect(done.result).toMatchObject({ content: [{ text: "Looking. Refunded." }] });
  });

  it.each<[string, object | undefined, string]>([
    ["optional", { desk: "optional" }, "task"],
    ["one of a list", ["desk"] as never, "task"],
    ["one that an object does not name", { other: "optional" }, "input_required"],
    ["one with the name of a method of objects", { toString: "optional" }, "input_required"],
  ])("%s", async (_title, tasks, resultType) => {
    const raw = new RawMcp(new Desk().runtime, { tasks: tasks as never });
    expect((await raw.ask("tools/call", ask)).result).toMatchObject({ resultType });
  });

  it.each([["yes"], [1], [null], [{ desk: "always" }], [{ desk: true }], [["desk", 1]]])("refuses %j", (tasks) => {
    expect(() => createMcpHandler(new Desk().runtime, { tasks: tasks as never })).toThrow(/^tasks: expected/);
  });
});

/** A token with one character changed, or one more or less: all of them. */
function changesOf(token: string): readonly string[] {
  const changed = Array.from(token, (character, at) => {
    return `${token.slice(0, at)}${character === "a" ? "b" : "a"}${token.slice(at + 1)}`;
  });
  return [...changed, token.slice(1), token.slice(0, -1), `${token}a`, token.toUpperCase()];
}

describe("a call that waits for an answer", () => {
  const ask = { name: "desk", arguments: { message: "ask" } };
  const answer = { inputResponses: { approval: { action: "accept", content: { approved: true } } } };

  it("goes on at another process, which has the same secret", async () => {
    const desk = new Desk();
    const { result } = await new RawMcp(desk.runtime, { secret: SECRET, tasks: false }).ask("tools/call", ask);
    expect(result).toMatchObject({ resultType: "input_required" });
    await desk.restart();
    const raw = new RawMcp(desk.runtime, { secret: ["another secret of thirty-two characters", SECRET], tasks: false });
    const done = await raw.ask("tools/call", { ...ask, ...answer, requestState: result?.["requestState"] });
    expect(done.result).toMatchObject({ content: [{ type: "text", text: "Looking. Refunded." }] });
    const again = await raw.ask("tools/call", { ...ask, ...answer, requestState: result?.["requestState"] });
    expect(again.result).toMatchObject({ content: [{ type: "text", text: "Looking. Refunded." }] });
  });

  it("asks again where the answer is refused, as for the first time", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, { secret: SECRET, tasks: false });
    const { result } = await raw.ask("tools/call", ask);
    const inputResponses = { approval: { action: "accept", content: { approved: "maybe" } } };
    const again = await raw.ask("tools/call", { ...ask, inputResponses, requestState: result?.["requestState"] });
    expect(again.result).toMatchObject({ resultType: "input_required", _meta: result?.["_meta"] });
    expect(result?.["_meta"]).toEqual({ "io.modelcontextprotocol/serverInfo": { name: "cadenza", version: "1.0.0" } });
  });

  it("asks again where the answer is missing, or one of no question", async () => {
    const desk = new Desk();
    const raw = new RawMcp(desk.runtime, { secret: SECRET, tasks: false });
    const { result } = await raw.ask("tools/call", ask);
    for (const inputResponses of [undefined, {}, { "other#1": { action: "accept" } }]) {
      const again = await raw.ask("tools/call", { ...ask, inputResponses, requestState: result?.["requestState"] });
      expect(again.result).toMatchObject({ resultType: "input_required", inputRequests: { approval: {} } });
    }
    expect(await desk.runtime.listRuns()).toHaveLength(1);
  });

  it("takes answers without its state for the questions that the run asks first, and leaves out others", async () => {
    const { runtime } = new Desk();
    const raw = new RawMcp(runtime, { tasks: false });
    const inputResponses = { ...answer.inputResponses, other: { action: "accept", content: {} } };
    const { result } = await raw.ask("tools/call", { ...ask, inputResponses });
    expect(result).toMatchObject({ content: [{ text: "Looking. Refunded." }] });
    const wrong = { approval: { action: "accept", content: { approved: "maybe" } } };
    const again = await raw.ask("tools/call", { ...ask, inputResponses: wrong });
    expect(again.result).toMatchObject({ resultType: "input_required", inputRequests: { approval: {} } });
    const { result: stream } = await raw.ask("tools/call", {
      ...{ name: "desk", arguments: { message: "stream" } },
      inputResponses,
    });
    expect(stream).toMatchObject({ resultType: "complete", content: [{ text: "One two three." }] });
  });

  it("asks questions by names that are numbers, each under its own", async () => {
    const { runtime } = setUp();
    runtime.register("desk", async function* (_input, { ask }) {
      const asked = ["2", "1"].map((name) => ask(`No. ${name}?`, { name, schema: z.object({ n: z.number() }) }));
      for (const { n } of await Promise.all(asked)) yield `${n} `;
    });
    const raw = new RawMcp(runtime);
    const call = { name: "desk", arguments: { message: "" } };
    const { result } = await raw.ask("tools/call", call);
    expect(result?.["inputRequests"]).toMatchObject({
      1: { params: { message: "No. 1?" } },
      2: { params: { message: "No. 2?" } },
    });
    const inputResponses = { 1: { action: "accept", content: { n: 1 } }, 2: { action: "accept", content: { n: 2 } } };
    const done = await raw.ask("tools/call", { ...call, inputResponses, requestState: result?.["requestState"] });
    expect(done.result).toMatchObject({ content: [{ text: "2 1 " }] });
  });

  it("is refused with a state that was changed, has expired, or was made for another tool or user", async () => {
    const desk = new Desk();
    desk.runtime.register("other", (input) => input);
    const of = (principal: string) =>
      new RawMcp(desk.runtime, { secret: SECRET, tasks: false, stateTtlMs: 1_000, authorize: () => ({ principal }) });
    const ada = of("ada");
    const { result } = await ada.ask("tools/call", ask);
    const state = String(result?.["requestState"]);
    const refused = async (raw: RawMcp, requestState: unknown, call: object = ask) =>
      expect((await raw.ask("tools/call", { ...call, ...answer, requestState })).error).toMatchObject({
        code: -32602,
        data: { reason: "invalid_request_state" },
      });
    for (const changed of changesOf(state)) await refused(ada, changed);
    for (const forged of ["", "a~b", state.slice(1), `${state}A`, 17, null, {}]) await refused(ada, forged);
    await refused(ada, state, { name: "other", arguments: { message: "ask" } });
    await refused(of("bob"), state);
    await desk.clock.advance(1_001);
    await refused(ada, state);
    expect((await desk.runtime.listRuns()).map(({ status }) => status)).toEqual(["awaiting"]);
  });
});

describe("a message that is no request of MCP", () => {
  const raw = () => new RawMcp(new Desk().runtime, { secret: SECRET });

  it.each([
    ["no JSON", "{", -32700, null],
    ["a list", [], -32600, null],
    ["no version of JSON-RPC", { id: 1, method: "ping" }, -32600, 1],
    ["an id that is an object", { jsonrpc: "2.0", id: {}, method: "ping" }, -32600, null],
    ["a response without a result", { jsonrpc: "2.0", id: 1 }, -32600, 1],
    ["params that are a list", { jsonrpc: "2.0", id: 1, method: "ping", params: [] }, -32602, 1],
  ] as const)("%s", async (_title, body, code, id) => {
    const { status, messages } = await raw().post(body);
    expect([status, messages[0]]).toMatchObject([400, { id, error: { code } }]);
  });

  it.each([
    ["of no revision", { "mcp-protocol-version": "2099-01-01" }, -32600],
    ["without headers", { "mcp-method": "", "mcp-name": "" }, -32020],
    ["with the method of another one", { "mcp-method": "tools/list" }, -32020],
    ["with the name of another tool", { "mcp-name": "other" }, -32020],
  ] as const)("a request %s", async (title, changed, code) => {
    const one = raw();
    const { body, headers } = one.request("tools/call", { name: "desk", arguments: { message: "stream" } });
    const sent = title === "of no revision" ? { jsonrpc: "2.0", id: 1, method: "ping" } : body;
    const { status, messages } = await one.post(sent, { ...headers, ...changed });
    expect([status, messages[0]]).toMatchObject([400, { error: { code } }]);
  });

  it("an unknown method, tool or task is refused by name, and what belongs to others as if it were unknown", async () => {
    const desk = new Desk();
    const of = (tenant: string, principal: string) =>
      new RawMcp(desk.runtime, { ...task, authorize: () => ({ tenant, principal, owns: true }) });
    const ada = of("blue", "ada");
    const taskId = await begin(ada, "ask");
    await desk.clock.settle();
    expect((await ada.ask("prompts/list")).error?.code).toBe(-32601);
    const { body, headers } = ada.request("tasks/result");
    const { status, messages } = await ada.post({ ...body, params: { ...(body as RpcBody).params, taskId } }, headers);
    expect([status, messages[0]]).toMatchObject([404, { error: { code: -32601 } }]);
    expect((await ada.ask("tools/call", { name: "missing" })).error?.code).toBe(-32602);
    const unknown = "00000000-0000-4000-8000-000000000000";
    for (const other of [of("blue", "bob"), of("red", "ada")])
      for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
        const [theirs, none] = [await other.ask(method, { taskId }), await other.ask(method, { taskId: unknown })];
        expect(theirs.error?.code).toBe(-32602);
        expect(JSON.stringify(theirs.error).replaceAll(taskId, unknown)).toBe(JSON.stringify(none.error));
      }
    expect((await ada.ask("tasks/get", { taskId })).result).toMatchObject({ status: "input_required" });
  });

  it("an answer of another user to a question is refused as that to an unknown one", async () => {
    const desk = new Desk();
    const of = (principal: string) =>
      new RawMcp(desk.runtime, { ...task, authorize: () => ({ principal, owns: true }) });
    const taskId = await begin(of("ada"), "ask");
    await desk.clock.settle();
    const answer = (id: string) =>
      of("bob").post({ jsonrpc: "2.0", id, result: { action: "accept", content: { approved: true } } });
    const unknown = "00000000-0000-4000-8000-000000000000";
    const [theirs, none] = [await answer(`${taskId}/${QUESTION}`), await answer(`${unknown}/${QUESTION}`)];
    expect(theirs.status).toBe(400);
    expect(JSON.stringify(theirs).replaceAll(taskId, unknown)).toBe(JSON.stringify(none));
    expect((await desk.runtime.getRun(taskId)).status).toBe("awaiting");
  });

  it("the session of another user, or one that was changed, is not found", async () => {
    const desk = new Desk();
    const handler = createMcpHandler(desk.runtime, {
      secret: SECRET,
      authorize: ({ headers }) => ({ principal: headers["x-user"] ?? "" }),
    });
    const post = (user: string, method: string, session?: string) =>
      handler(
        new Request("http://localhost/", {
          method: "POST",
          headers: {
            "content-type": "application/json",
            "x-user": user,
            ...(session && { "mcp-session-id": session }),
          },
          body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { capabilities: { elicitation: {} } } }),
        }),
      );
    const session = (await post("ada", "initialize")).headers.get("mcp-session-id") ?? "";
    expect((await post("ada", "ping", session)).status).toBe(200);
    expect((await post("bob", "ping", session)).status).toBe(404);
    for (const id of [...changesOf(session), "none"]) expect((await post("ada", "ping", id)).status).toBe(404);
  });
});

it("progress is told for a token that is a text or a number", async () => {
  const { runtime } = setUp();
  runtime.register("desk", async function* () {
    yield "One ";
  });
  const raw = new RawMcp(runtime);
  for (const [progressToken, told] of [
    ["", 1],
    [0, 1],
    [{ a: 1 }, 0],
    [null, 0],
  ] as const) {
    const { body, headers } = raw.request("tools/call", { name: "desk", arguments: { message: "" } });
    const { params } = body as { params: { _meta: object } };
    const { messages } = await raw.post(
      { ...body, params: { ...params, _meta: { ...params._meta, progressToken } } },
      headers,
    );
    expect(messages.filter(({ method }) => method === "notifications/progress")).toHaveLength(told);
  }
});

it("progress begins with 0 where the agent does, and rises", async () => {
  const { runtime } = setUp();
  runtime.register("desk", async function* (_input, { emit }) {
    for (const progress of [0, 1, 1, 0]) await emit({ progress, total: 2 } as never);
    yield "Done.";
  });
  const raw = new RawMcp(runtime);
  const { body, headers } = raw.request("tools/call", { name: "desk", arguments: { message: "" } });
  const { params } = body as { params: { _meta: object } };
  const { messages } = await raw.post(
    { ...body, params: { ...params, _meta: { ...params._meta, progressToken: 1 } } },
    headers,
  );
  const told = messages.filter(({ method }) => method === "notifications/progress");
  const [zero, one, text] = told.map(({ params }) => (params as { readonly progress: number }).progress);
  expect([told.length, zero, one]).toEqual([3, 0, 1]);
  expect(text).toBeGreaterThan(1);
});

/** A standard output that keeps what is written. */
function keptOutput() {
  const written: string[] = [];
  const write = (text: string, done: () => void): void => {
    written.push(text);
    done();
  };
  return { written, stdout: { write } };
}

it("over standard input the last message needs no line break, and is answered before the end", async () => {
  const { runtime } = setUp();
  const { written, stdout } = keptOutput();
  const stdin = (async function* () {
    yield '{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"tools/list"}';
  })();
  await serveStdio(runtime, { stdin, stdout });
  expect(written.map((text) => JSON.parse(text))).toMatchObject([
    { id: 1, result: {} },
    { id: 2, result: { tools: [] } },
  ]);
});

it.each([
  { result: null, status: "awaiting" },
  { result: { action: "decline" }, status: "completed" },
])("a response of $result to a form leaves its run $status", async ({ result, status }) => {
  const { runtime, clock } = setUp();
  runtime.register("asks", (_input, { ask }) => ask("Well?").then(String, () => "declined"));
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  await new RawMcp(runtime).post({ jsonrpc: "2.0", id: `${run_id}/ask#1`, result });
  await clock.settle();
  expect((await runtime.getRun(run_id)).status).toBe(status);
});

it("over standard input all calls are cancelled at its end, also two with one id", async () => {
  const { runtime } = setUp();
  runtime.register(
    "waits",
    (_input, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)),
  );
  const { body } = new RawMcp(runtime).request("tools/call", { name: "waits", arguments: { message: "" } });
  const { stdout } = keptOutput();
  const stdin = (async function* () {
    for (let times = 0; times < 2; times++) {
      yield `${JSON.stringify({ ...body, id: 1 })}\n`;
      while ((await runtime.listRuns()).length <= times) await nextTurn();
    }
  })();
  await serveStdio(runtime, { stdin, stdout });
  await expect.poll(() => runtime.listRuns({ status: "cancelled" })).toHaveLength(2);
});

it("over standard input a message that is too large is refused as such", async () => {
  const { runtime } = setUp();
  const { written, stdout } = keptOutput();
  const stdin = (async function* () {
    yield `${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping", params: { text: "x".repeat(1_000) } })}\n`;
  })();
  await serveStdio(runtime, { stdin, stdout }, { limits: { maxBodyBytes: 500 } });
  expect(written.map((text) => JSON.parse(text))).toMatchObject([
    { id: null, error: { data: { reason: "body_too_large" } } },
  ]);
});

it.each([
  ["https://example.com/mcp", "/mcp"],
  ["https://example.com/mcp?team=blue", "/mcp?team=blue"],
  ["https://example.com/?team=blue", "?team=blue"],
])("the address of the metadata of a protected resource has the path and the query of %s", (resource, rest) => {
  const { headers, metadata } = protectedResource({ resource, authorizationServers: ["https://login.example.com"] });
  const address = `https://example.com/.well-known/oauth-protected-resource${rest}`;
  expect(headers["www-authenticate"]).toBe(`Bearer resource_metadata="${address}"`);
  expect(metadata["resource"]).toBe(resource);
});

it("a state that is no text is refused as one of another call", async () => {
  const { runtime } = setUp();
  runtime.register("desk", () => "Done.");
  const raw = new RawMcp(runtime);
  const call = { name: "desk", arguments: { message: "" } };
  for (const requestState of [null, 1, {}, { toString: 1 }, [], ""]) {
    const { body, headers } = raw.request("tools/call", { ...call, requestState });
    const { status, messages } = await raw.post(body, headers);
    expect([status, messages[0]]).toMatchObject([200, { error: { data: { reason: "invalid_request_state" } } }]);
  }
});

it("over standard input a line that is no message is refused, and a notification gets no response", async () => {
  const { runtime } = setUp();
  const lines = ["{", "null", "[]", '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', "5"];
  const valid = ['{"jsonrpc":"2.0","method":"notifications/initialized"}', '{"jsonrpc":"2.0","id":2,"method":"ping"}'];
  const { written, stdout } = keptOutput();
  const stdin = (async function* () {
    for (const line of [...lines, ...valid]) {
      yield `${line}\n`;
      await nextTurn();
    }
  })();
  await serveStdio(runtime, { stdin, stdout });
  const answers = written.map((text) => JSON.parse(text) as { id: unknown; error?: { code: number } });
  expect(answers.map(({ id, error }) => [id, error?.code])).toEqual([
    [null, -32700],
    ...[
      [null, -32600],
      [null, -32600],
      [null, -32600],
      [null, -32600],
    ],
    [2, undefined],
  ]);
});

describe("headers for arguments, which the schema of a tool names", () => {
  const input = z.object({
    region: z.string().nullish().meta({ "x-mcp-header": "Region" }),
    count: z.number().optional().meta({ "x-mcp-header": "Count" }),
    to: z.object({ isSure: z.boolean().meta({ "x-mcp-header": "Sure" }) }).optional(),
  });
  const encoded = `=?base64?${Buffer.from("Zürich").toString("base64")}?=`;

  it.each<[title: string, values: object, headers: Record<string, string>, isTaken: boolean]>([
    ["one that repeats the argument", { region: "eu" }, { "mcp-param-region": "eu" }, true],
    ["one in base64", { region: "Zürich" }, { "mcp-param-region": encoded }, true],
    [
      "numbers and booleans",
      { count: 10, to: { isSure: true } },
      { "mcp-param-count": "1e1", "mcp-param-sure": "true" },
      true,
    ],
    ["none, for arguments that are missing or null", { region: null }, {}, true],
    ["no known name", { region: "eu" }, { "mcp-param-region": "eu", "mcp-param-other": "x" }, true],
    ["one of another value", { region: "eu" }, { "mcp-param-region": "us" }, false],
    ["none, for an argument", { region: "eu" }, {}, false],
    ["one for a missing argument", {}, { "mcp-param-region": "null" }, false],
    ["broken base64", { region: "eu" }, { "mcp-param-region": "=?base64?ZQ?=" }, false],
    ["no number", { count: 0 }, { "mcp-param-count": "" }, false],
    [
      "a text, for an object that no text can be made of",
      { region: { toString: 1 } },
      { "mcp-param-region": "eu" },
      false,
    ],
    ["none, deep inside", { to: { isSure: false } }, {}, false],
  ])("%s", async (_title, values, headers, isTaken) => {
    const { runtime } = setUp();
    runtime.register(defineAgent("desk", { input }).run(() => "Done."));
    const raw = new RawMcp(runtime);
    const sent = raw.request("tools/call", { name: "desk", arguments: values });
    const { status, messages } = await raw.post(sent.body, { ...sent.headers, ...headers });
    if (isTaken) expect(messages.at(-1)).toMatchObject({ result: { content: [{ text: "Done." }] } });
    else expect([status, messages[0]]).toMatchObject([400, { error: { code: -32020 } }]);
    expect(await runtime.listRuns()).toHaveLength(isTaken ? 1 : 0);
  });
});

describe("what an agent emits or a client sends ends no process", () => {
  const half = `${"long text ".repeat(3)}\ud800y`;

  it.each<[string, object]>([
    ["a file with half of an emoji", { name: "note.txt", content: half }],
    [
      "a file whose name has half of an emoji",
      { name: "\ud800", content_type: "a/b", content: "aGk=", content_encoding: "base64" },
    ],
    ["JSON that is none", { name: "data", content_type: "application/json", content: "{" }],
    ["JSON that is nested too deeply", { name: "data", content_type: "application/json", content: "[".repeat(20_000) }],
    ["an address", { content_url: "https://example.com/a.png", content_type: "image/png" }],
  ])("%s", async (_what, part) => {
    const { runtime } = setUp();
    runtime.register("desk", async function* () {
      yield part;
    });
    const { result } = await new RawMcp(runtime).ask("tools/call", { name: "desk", arguments: { message: "" } });
    expect(result).toMatchObject({ resultType: "complete", content: [{}] });
  });

  it.each<[string, string]>([
    ["too many levels", `{"message":${"[".repeat(100)}${"]".repeat(100)}}`],
    ["a key __proto__", '{"message":"x","__proto__":{"isAdmin":true}}'],
    ["a list", "[]"],
  ])("arguments with %s", async (_what, written) => {
    const { runtime } = setUp();
    runtime.register("desk", (input) => input);
    const raw = new RawMcp(runtime);
    const { body, headers } = raw.request("tools/call", { name: "desk", arguments: "HERE" });
    const { messages } = await raw.post(JSON.stringify(body).replace('"HERE"', written), headers);
    expect(messages[0]).toMatchObject({ error: { code: expect.any(Number) } });
    expect(await runtime.listRuns()).toEqual([]);
  });

  it("a question with a form of fields that have odd names, and one of no form", async () => {
    const { runtime } = setUp();
    runtime.register("desk", async (_input, { ask }) => {
      const flat = z.object({ ["__proto__"]: z.string(), constructor: z.number() });
      const deep = z.object({ a: z.object({ b: z.string() }) });
      await Promise.all([ask("Flat?", { schema: flat }), ask("Deep?", { schema: deep })]);
    });
    const { result } = await new RawMcp(runtime).ask("tools/call", { name: "desk", arguments: { message: "" } });
    const forms = Object.values(result?.["inputRequests"] as Record<string, { params: Form }>);
    expect(forms.map(({ params }) => params.message)).toEqual(["Flat?", "Deep?"]);
    expect(forms[1]?.params.requestedSchema).toMatchObject({ properties: { answer: { type: "string" } } });
  });
});
