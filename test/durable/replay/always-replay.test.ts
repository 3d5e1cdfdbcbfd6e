import type { AgentContext, StandardSchema } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { expect, it } from "vitest";
import { onDurableStore } from "../../harness/durable-runtime.ts";
import { deferred, nextTurn } from "../../harness/promises.ts";
import { textsOf } from "../../harness/runtimes.ts";
import { hookedStore, lateStore } from "../../harness/store-proxy.ts";
import { inMemory } from "../../harness/world/replicas.ts";

/* With `alwaysReplay` the agent is replayed after each commit, before it is handed a result, an answer or an event. */

const stores = { "at once": () => new MemoryStore(), later: () => lateStore() };

it.each(Object.entries(stores))(
  "an answer that is given at once reaches a replayed agent (the store answers %s)",
  async (_name, store) => {
    const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, store: store() }));
    let charged = 0;
    runtime.register("order", { durable: true }, async function* (_input, { ask, step }) {
      charged += 1;
      await ask("Ship?");
      await step("ship", () => 1);
      yield "done";
    });
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    const run = await runtime.resume({ run_id, await_resume: { ok: true } });
    expect(textsOf(run)).toEqual(["done"]);
    expect(charged).toBeGreaterThan(1);
  },
);

it.each(Object.entries(stores))(
  "after each commit the agent is replayed, before it is handed anything (the store answers %s)",
  async (_name, store) => {
    const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, store: store() }));
    const calls: string[][] = [];
    runtime.register("order", { durable: true }, async (_input, { step, ask, emit }) => {
      const seen: string[] = [];
      calls.push(seen);
      seen.push(String(await step("one", () => "1")));
      await emit("said");
      seen.push(String(await ask("Go on?").then(() => "answered")));
      seen.push(String(await step("two", () => "2")));
      seen.push(String(await step("three", () => "3")));
    });
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    // Each agent gets one result more than the one before it, since the commit after that result replays the agent.
    const lengths = calls.map((seen) => seen.length);
    expect(lengths.at(-1)).toBe(4);
    for (const [index, length] of lengths.entries()) expect(length - (lengths[index - 1] ?? 0)).toBeLessThanOrEqual(1);
    expect(new Set(lengths)).toEqual(new Set([0, 1, 2, 3, 4]));
  },
);

it("a step whose body ends during a replay, while the next one fails, is executed once", async () => {
  const bodies: number[] = [];
  const last = 30;
  for (let turns = 0; turns <= last; turns++) {
    let fails = false;
    const store = hookedStore((call, method) => {
      if (fails && method === "read") throw new Error("The log cannot be read.");
      return call();
    }, new MemoryStore());
    const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, store }));
    let count = 0;
    runtime.register("agent", { durable: true }, async (_input, { step }) => {
      for (const name of ["one", "two", "three", "four"]) await step(name, () => name);
      await step("long", async () => {
        count += 1;
        for (let turn = 0; turn < turns; turn++) await nextTurn();
        fails = true;
      });
      fails = false;
      await step("last", () => "last");
    });
    const { status } = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(status).toBe("completed");
    bodies.push(count);
    await runtime.close();
  }
  expect(bodies).toEqual(bodies.map(() => 1));
});

it.each(Object.entries(stores))(
  "an event from outside right after a commit reaches a replayed agent (the store answers %s)",
  async (_name, store) => {
    const runtime = new AgentRuntime(
      onDurableStore({ durability: { alwaysReplay: true }, store: store(), cancelGraceMs: 5_000 }),
    );
    let calls = 0;
    const closed: number[] = [];
    const agent = async function* (_input: unknown, { ask }: AgentContext) {
      const call = ++calls;
      try {
        yield "before";
        await ask("Go on?");
      } finally {
        closed.push(call);
      }
    };
    runtime.register("agent", { durable: true }, agent);
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    await runtime.cancel(run_id);
    for await (const _ of runtime.events(run_id, { until: "end" }));
    expect((await runtime.getRun(run_id)).status).toBe("cancelled");
    expect(closed).toEqual([calls]);
    expect(calls).toBeGreaterThan(1);
  },
);

it("an agent that goes on by itself is replayed as soon as all that it did is stored", async () => {
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true } }));
  let charged = 0;
  runtime.register("chatty", { durable: true }, async function* (_input, { step }) {
    for (let n = 0; n < 300; n++) yield `${n} `;
    charged += 1;
    yield "charged";
    await step("end", () => undefined);
  });
  const run = await runtime.createRun({ agent_name: "chatty", input: "" });
  expect(run.status).toBe("completed");
  expect(charged).toBeGreaterThan(1);
});

it("an agent that is replayed while its run waits for a slot goes on when there is one", async () => {
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true } }));
  const atWork = new Set<string>();
  let most = 0;
  let finish = (): void => {};
  runtime.register("worker", { durable: true, concurrency: { max: 1 } }, async ([input], { ask, step, run_id }) => {
    const work = async (wait?: Promise<void>): Promise<void> => {
      atWork.add(run_id);
      most = Math.max(most, atWork.size);
      await wait;
      atWork.delete(run_id);
    };
    if (input?.parts[0]?.content === "asks") {
      await ask("Go on?");
      await step("work", () => work());
    } else await step("work", () => work(new Promise((resolve) => (finish = resolve))));
  });
  const asking = await runtime.createRun({ agent_name: "worker", input: "asks" });
  const long = await runtime.createRun({ agent_name: "worker", input: "works", mode: "async" });
  for (let turn = 0; turn < 50; turn++) await nextTurn();
  expect(atWork).toEqual(new Set([long.run_id]));
  await runtime.resume({ run_id: asking.run_id, await_resume: { ok: true }, mode: "async" });
  for (let turn = 0; turn < 50; turn++) await nextTurn();
  finish();
  for await (const _ of runtime.events(asking.run_id, { until: "end" }));
  expect([(await runtime.getRun(asking.run_id)).status, most]).toEqual(["completed", 1]);
});

it("what the body of a step uses counts, although its agent was replayed meanwhile", async () => {
  const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true } }));
  runtime.register("writer", { durable: true }, async (_input, { step, usage }) => {
    await step("write", async () => {
      for (let turn = 0; turn < 5; turn++) await nextTurn();
      usage.add({ input_tokens: 1, output_tokens: 2 });
    });
  });
  const { run_id } = await runtime.createRun({ agent_name: "writer", input: "" });
  expect((await runtime.details(run_id)).usage).toMatchObject({ input_tokens: 1, output_tokens: 2 });
});

it("an agent that was left while a schema was asked about its answer does nothing any more", async () => {
  const replicas = inMemory();
  const { runtime } = replicas.start({ durability: { leaseMs: 60_000, alwaysReplay: true } });
  const { clock } = replicas;
  let gate: Promise<void> | undefined;
  const validate = (value: unknown) => (gate === undefined ? { value } : gate.then(() => ({ value })));
  const schema: StandardSchema = { "~standard": { version: 1, vendor: "test", validate } };
  let calls = 0;
  runtime.register("agent", { durable: true }, async (_input, { ask, emit }) => {
    calls += 1;
    await ask("One?", { schema });
    await emit("one");
    await ask("Two?");
    await emit("two");
  });
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.settle();
  await runtime.resume({ run_id, await_id: "ask#1", await_resume: {}, mode: "async" });
  await clock.settle();
  const { promise, resolve } = deferred();
  gate = promise;
  const before = calls;
  for (const data of ["first", "second"]) {
    await runtime.send({ to: run_id, name: "mail", data });
    await clock.settle();
  }
  expect(calls).toBeGreaterThan(before + 1);
  resolve();
  await clock.settle();
  expect((await runtime.stats()).blocked).toEqual([]);
  await runtime.resume({ run_id, await_id: "ask#2", await_resume: {}, mode: "async" });
  await clock.settle();
  const run = await runtime.getRun(run_id);
  expect([run.status, ...textsOf(run)]).toEqual(["completed", "one", "two"]);
});
