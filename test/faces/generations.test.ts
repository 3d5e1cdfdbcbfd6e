import { createA2aHandler } from "cadenza/a2a";
import { expect, it } from "vitest";
import * as z from "zod";
import { setUp } from "../harness/runtimes.ts";
import { RawMcp } from "./mcp-visitor.ts";

/** A run that begins anew after each answer, until one says that it shall not. */
function open() {
  const { runtime, clock } = setUp();
  runtime.register("chapters", async function* (_input, { ask, continueAsNew, generation }) {
    yield `Chapter ${generation}. `;
    const { more } = await ask("Go on?", { schema: z.object({ more: z.boolean() }) });
    if (more) return continueAsNew();
    return yield "The end.";
  });
  return { runtime, clock };
}

interface Task {
  readonly id: string;
  readonly status: { readonly state: string; readonly message?: { readonly messageId: string } };
  readonly artifacts: readonly { readonly artifactId: string; readonly parts: readonly { readonly text: string }[] }[];
  readonly history: readonly unknown[];
}

const shown = ({ artifacts }: Task): readonly string[] =>
  artifacts.map(({ artifactId, parts }) => `${artifactId}: ${parts.map(({ text }) => text).join("|")}`);

it("a task of A2A is one over all generations of its run", async () => {
  const { runtime } = open();
  const handler = createA2aHandler(runtime);
  const headers = { "content-type": "application/json", "a2a-version": "1.0" };
  const url = "http://localhost/chapters";
  const post = (path: string, part: object, taskId?: string): Promise<Response> => {
    const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [part], taskId };
    return handler(new Request(`${url}/${path}`, { method: "POST", headers, body: JSON.stringify({ message }) }));
  };
  const send = async (part: object, taskId?: string): Promise<Task> =>
    ((await (await post("message:send", part, taskId)).json()) as { task: Task }).task;

  const first = await send({ text: "Tell me." });
  const second = await send({ data: { more: true } }, first.id);
  expect(second.status.state).toBe("TASK_STATE_INPUT_REQUIRED");
  expect(second.status.message?.messageId).not.toBe(first.status.message?.messageId);
  const stream = await post("message:stream", { data: { more: false } }, first.id);
  const items = (await stream.text()).split("\n\n").filter((block) => block !== "");
  expect(items.at(-1)).toContain("TASK_STATE_COMPLETED");
  const done = (await (await handler(new Request(`${url}/tasks/${first.id}`, { headers }))).json()) as Task;
  expect(shown(done)).toEqual(["output-1: Chapter 1. ", "output-2: Chapter 2. ", "output-3: The end."]);
  expect(done.history).toHaveLength(5);

  // One who breaks off in the first generation gets all that follows.
  const again = new Request(`${url}/tasks/${first.id}:subscribe`, { headers: { ...headers, "last-event-id": "3" } });
  const ids = [...(await (await handler(again)).text()).matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
  expect(ids).toEqual(ids.toSorted((a, b) => a - b));
  expect(new Set(ids).size).toBe(ids.length);
});

it("a task of MCP is one over all generations of its run, and its result is what the last one said", async () => {
  const { runtime, clock } = open();
  const raw = new RawMcp(runtime, { tasks: true });
  const begun = await raw.ask("tools/call", { name: "chapters", arguments: { message: "Tell me." } });
  const taskId = String(begun.result?.["taskId"]);
  const { body, headers } = raw.request("subscriptions/listen", { notifications: { taskIds: [taskId] } });
  const told = raw.post(body, headers);
  const keys: string[] = [];
  for (const more of [true, true, false]) {
    await clock.settle();
    const { result } = await raw.ask("tasks/get", { taskId });
    expect(result).toMatchObject({ taskId, status: "input_required" });
    const [key = ""] = Object.keys(result?.["inputRequests"] as object);
    keys.push(key);
    const inputResponses = { [key]: { action: "accept", content: { more } } };
    expect(await raw.ask("tasks/update", { taskId, inputResponses })).toHaveProperty("result");
    // The answer to the question of a generation that is over answers no other one.
    await clock.settle();
    if (more) await raw.ask("tasks/update", { taskId, inputResponses });
  }
  // No key of a question is used twice.
  expect(keys).toEqual(["ask#1", "ask#2.1", "ask#3.1"]);
  await clock.settle();
  expect((await raw.ask("tasks/get", { taskId })).result).toMatchObject({
    status: "completed",
    result: { content: [{ type: "text", text: "Chapter 3. The end." }] },
  });
  const states = (await told).messages.flatMap(({ method, params }) =>
    method === "notifications/tasks" ? [(params as { status: string }).status] : [],
  );
  // A state that is over before it is read may be left out.
  const rests = states.filter((status) => status !== "working");
  expect(rests).toEqual(["input_required", "input_required", "input_required", "completed"]);
});

it("a call of MCP that repeats its state goes on in the next generation", async () => {
  const { runtime } = open();
  const raw = new RawMcp(runtime, { tasks: false });
  const call = { name: "chapters", arguments: { message: "Tell me." } };
  let { result } = await raw.ask("tools/call", call);
  for (const more of [true, false]) {
    const [key = ""] = Object.keys(result?.["inputRequests"] as object);
    const inputResponses = { [key]: { action: "accept", content: { more } } };
    ({ result } = await raw.ask("tools/call", { ...call, inputResponses, requestState: result?.["requestState"] }));
  }
  expect(result).toMatchObject({ resultType: "complete", content: [{ type: "text", text: "Chapter 2. The end." }] });
  expect(await runtime.listRuns()).toHaveLength(1);
});
