import type { AgentFunction, DurableContext, Run } from "cadenza";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { TimelineItem } from "cadenza/admin";
import { createAdmin } from "cadenza/admin";
import { durable } from "cadenza/store";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { z } from "zod";
import { TimelineFold } from "../../src/admin/timeline-fold.ts";
import { FakeClock } from "../harness/clock.ts";
import { persistent } from "../harness/store-proxy.ts";

const clerk = defineAgent("clerk", { durable: true }, async (_input, { ask, usage }) => {
  usage.add({ input_tokens: 3, output_tokens: 4 });
  const { amount } = await ask("How much?", { schema: z.object({ amount: z.number() }) });
  return `${amount} €`;
});

/** Everything that a log can tell, in one run. */
const everything = defineAgent("everything", { durable: true, version: "7" }, async function* (_input, context) {
  context.usage.add({ input_tokens: 10 });
  yield "Let us ";
  yield "see.";
  yield { stage: "begun" };
  let tries = 0;
  await context.step("flaky", () => (++tries === 1 ? Promise.reject(new Error("not yet")) : "there"), {
    retry: { attempts: 2, backoffMs: 1_000 },
  });
  await context.sleep(5_000);
  const price = await context.receive("price");
  await context.receive("never", { timeoutMs: 2_000 }).catch(() => undefined);
  yield `The price is ${price}.`;
  const asked = await context.run("clerk", "");
  await context.ask("In time?", { timeoutMs: 3_000, default: { ok: false } });
  await context.ask("Allowed?", { kind: "approval" }).catch(() => undefined);
  context.usage.add({ output_tokens: 100 });
  await context.step("pay", () => Promise.reject(new TypeError(`No account for ${asked.status}.`)));
});

async function told() {
  const clock = new FakeClock();
  const store = durable(persistent(new MemoryStore({ clock })));
  const runtime = new AgentRuntime({ store, clock, agents: [clerk, everything] });
  const admin = createAdmin(runtime);
  const { run_id } = await runtime.createRun({ agent_name: "everything", input: "Begin", mode: "async" });
  const until = async (text: string): Promise<void> => {
    for (let turn = 0; turn < 200; turn++) {
      const { items } = await admin.timeline(run_id);
      if (JSON.stringify(items).includes(text)) return;
      await clock.advance(100);
    }
    throw new Error(`The run did not come to ${text}.`);
  };
  await until('"key":"sleep#1"');
  await until('"name":"price"');
  await runtime.send({ to: run_id, name: "price", data: 40 });
  await until("How much?");
  const [question] = (await admin.questions()).items;
  await runtime.resume({
    run_id: question?.root_run_id ?? "",
    await_id: `run:clerk#1/${question?.await_id}`,
    await_resume: { amount: 40 },
    mode: "async",
  });
  await until("Allowed?");
  await runtime.resume({ run_id, await_id: "ask#2", decline: { reason: "Too much." } });
  return { runtime, admin, run_id };
}

it("a timeline tells all that a run did, in the order in which it began", async () => {
  const { runtime, admin, run_id } = await told();
  const { items, position, usage } = await admin.timeline(run_id);
  const stack = expect.stringContaining("timeline.test.ts");
  const failed = { name: "TypeError", message: "No account for completed.", code: null, stack };
  expect(items).toMatchObject([
    { type: "created", input: [{ parts: [{ content: "Begin" }] }] },
    { type: "started" },
    { type: "output", text: "Let us see.", count: 3, objects: [{ stage: "begun" }], source: null },
    {
      type: "step",
      key: "flaky#1",
      of: "agent",
      status: "completed",
      result: "there",
      attempts: [
        { attempt: 1, ended_at: expect.any(String), error: { name: "Error", message: "not yet", stack } },
        { attempt: 2, error: null },
      ],
      error: null,
      waits_for: null,
      retry_at: null,
    },
    { type: "sleep", key: "sleep#1", how: "elapsed" },
    { type: "receive", name: "price", how: "message", message: 12, until: null },
    { type: "message", position: 12, name: "price", data: 40 },
    { type: "receive", name: "never", how: "expired", message: null },
    { type: "output", text: "The price is 40." },
    { type: "sub_run", agent_name: "clerk", status: "completed", usage: { total_tokens: 7 } },
    { type: "question", key: "run:clerk#1/ask#1", of: { await_id: "ask#1" }, how: "answer", answer: { amount: 40 } },
    { type: "question", key: "ask#1", how: "default", schema: null },
    { type: "question", key: "ask#2", kind: "approval", how: "declined", reason: "Too much." },
    { type: "step", key: "pay#1", status: "failed", error: failed, attempts: [{ attempt: 1, error: failed }] },
    { type: "ended", outcome: "failed", error: { message: "The agent failed." }, key: "pay#1", cause: failed },
  ]);
  for (const item of items) {
    if (!("ended_at" in item)) continue;
    expect(item.ended_at === null || item.ended_at >= item.at).toBe(true);
  }
  expect(position).toBe(items.at(-1)?.position === undefined ? 0 : Number(items.at(-1)?.position) + 1);
  expect(usage).toMatchObject({ input_tokens: 13, output_tokens: 104, total_tokens: 117 });
  expect((await runtime.details(run_id)).usage).toEqual(usage);
  await runtime.close();
});

it("what a timeline tells since a position, put on what it told before, is what it tells at once", async () => {
  const { runtime, admin, run_id } = await told();
  const { items: entries } = await admin.log(run_id, { limit: 500 });
  await runtime.close();
  const toldOf = (count: number, since: number): readonly TimelineItem[] => {
    const fold = new TimelineFold();
    for (const entry of entries.slice(0, count)) fold.add(entry);
    return fold.items.filter((item) => item.last_position >= since);
  };
  const cuts = fc.uniqueArray(fc.nat(entries.length), { maxLength: 10 });
  await fc.assert(
    fc.property(cuts, (places) => {
      const shown = new Map<number, TimelineItem>();
      let since = 0;
      for (const place of places.sort((one, other) => one - other)) {
        for (const item of toldOf(place, since)) shown.set(item.position, item);
        since = place;
        expect([...shown.values()].sort((one, other) => one.position - other.position)).toEqual(toldOf(place, 0));
      }
    }),
  );
});

/** The items that a run of an agent shows, once it rests. */
async function itemsOf(
  fn: AgentFunction<DurableContext>,
  end?: (runtime: AgentRuntime, run_id: string) => Promise<unknown>,
) {
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ store: durable(persistent(new MemoryStore({ clock }))), clock });
  runtime.register("agent", { durable: true }, fn);
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
  await end?.(runtime, run_id);
  const admin = createAdmin(runtime);
  const { items } = await admin.timeline(run_id);
  const log = await admin.log(run_id, { limit: 500 });
  await runtime.close();
  return { items, entries: log.items };
}

it("what was open when a run ended is withdrawn, and reads of the session are no steps", async () => {
  const { items } = await itemsOf(
    async (_input, context) => {
      await context.session.getState();
      await Promise.all([context.ask("Open?"), context.sleep(60_000), context.receive("news")]);
    },
    (runtime, run_id) => runtime.cancel(run_id, { wait: true }),
  );
  expect(items.map(({ type }) => type)).toEqual([
    "created",
    "started",
    "question",
    "sleep",
    "receive",
    "cancel_requested",
    "ended",
  ]);
  expect(items.slice(2, 5)).toMatchObject([{ how: "withdrawn" }, { how: "withdrawn" }, { how: "withdrawn" }]);
});

it("calls of models and of the tools that they ask for are told apart from other steps", async () => {
  const calls = [{ type: "tool-call", toolCallId: "1", toolName: "search" }];
  const { items } = await itemsOf(async (_input, { step }) => {
    await step("search", () => "by the agent");
    await step("model", () => ({ model: "m", prompt: [], answer: calls }));
    await step("search 1", () => "by the model");
    await step("model", () => "another step of that name");
  });
  expect(items.flatMap((item) => (item.type === "step" ? [[item.key, item.of]] : []))).toEqual([
    ["search#1", "agent"],
    ["model#1", "model"],
    ["search 1#1", "tool"],
    ["model#2", "agent"],
  ]);
});

it("the error of a step is recorded once, and an agent that catches it sees where it was thrown", async () => {
  let caught: unknown;
  const { entries } = await itemsOf(async (_input, { step }) => {
    try {
      await step("fail", () => Promise.reject(new RangeError("Too far.")));
    } catch (error) {
      caught = error;
      throw error;
    }
  });
  expect(caught).toMatchObject({ name: "RangeError", stack: expect.stringContaining("timeline.test.ts") });
  expect(entries.at(-1)).toMatchObject({ type: "ended", key: "fail#1" });
  expect(entries.at(-1)).not.toHaveProperty("cause");
  const { entries: wrapped } = await itemsOf(async (_input, { step }) => {
    const failed = step("fail", () => Promise.reject(new RangeError("Too far.")));
    await failed.catch((cause) => Promise.reject(new Error("No way.", { cause })));
  });
  const stack = expect.stringMatching(/^Error: No way\.[\s\S]*Caused by: RangeError: Too far\./);
  expect(wrapped.at(-1)).toMatchObject({ key: "fail#1", cause: { message: "No way.", stack } });
});

it("a step that pauses after an attempt says why, and when the next one begins", async () => {
  const clock = new FakeClock();
  const runtime = new AgentRuntime({ store: durable(persistent(new MemoryStore({ clock }))), clock });
  let tries = 0;
  runtime.register("patient", { durable: true }, (_input, { step }) =>
    step("load", () => (++tries === 1 ? Promise.reject(new Error("busy")) : "there"), {
      retry: { attempts: 2, backoffMs: 60_000 },
    }),
  );
  const admin = createAdmin(runtime);
  const { run_id } = await runtime.createRun({ agent_name: "patient", input: "", mode: "async" });
  const step = async () => (await admin.timeline(run_id)).items.find(({ type }) => type === "step");
  await clock.advance(1_000);
  const paused = await step();
  const retry_at = paused?.type === "step" ? paused.retry_at : null;
  expect(Date.parse(retry_at ?? "")).toBeGreaterThan(clock.now());
  expect(paused).toMatchObject({
    status: "running",
    waits_for: `attempt 2, which begins at ${retry_at}, after the error "busy"`,
    attempts: [{ attempt: 1, ended_at: expect.any(String), error: { message: "busy" } }],
  });
  await clock.advance(60_000);
  expect(await step()).toMatchObject({
    ...{ status: "completed", retry_at: null, waits_for: null },
    attempts: [{ attempt: 1 }, { attempt: 2, error: null }],
  });
});

it("a step that stood in the queue of its limit says for how long", async () => {
  const clock = new FakeClock();
  const store = durable(persistent(new MemoryStore({ clock })));
  const runtime = new AgentRuntime({ store, clock, stepLimits: { search: { max: 1 } } });
  runtime.register("searches", { durable: true }, (_input, { step }) =>
    step("query", () => new Promise((resolve) => clock.setTimeout(() => resolve("found"), 2_000)), { limit: "search" }),
  );
  const admin = createAdmin(runtime);
  const create = () => runtime.createRun({ agent_name: "searches", input: "", mode: "async" });
  const runs = [await create(), await create()];
  await clock.advance(10_000);
  const queuedIn = async ({ run_id }: Run) => {
    const step = (await admin.timeline(run_id)).items.find(({ type }) => type === "step");
    return step?.type === "step" ? [step.queued_ms, step.attempts[0]?.queued_ms] : [];
  };
  const queued = [await queuedIn(runs[0] as Run), await queuedIn(runs[1] as Run)];
  expect(queued).toEqual([
    [undefined, undefined],
    [expect.closeTo(2_000, -3), queued[1]?.[0]],
  ]);
  await runtime.close({ drainMs: 0 });
});
