import type { AgentContext, StreamedEvent } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { durable } from "cadenza/store";
import { expect, it } from "vitest";
import * as z from "zod";
import type { DurableRuntimeOptions } from "../../harness/durable-runtime.ts";
import { drain, refusal, textsOf, typesOf } from "../../harness/runtimes.ts";
import type { Hook, Method } from "../../harness/store-proxy.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* Agents that other processes execute: a process that accepts only, and sub-runs in other processes. */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };
const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

const asking = defineAgent("asking", {
  durable: true,
  version: "1",
  questions: { go: z.object({ yes: z.boolean() }) },
}).run(async (_input, { ask, step }) => {
  await step("work", () => "done");
  const { yes } = await ask("Go?", { name: "go" });
  return yes ? "Gone." : "Stayed.";
});
const echo = defineAgent("echo", { durable: true }, async function* (input) {
  yield* input;
});
const all = [asking, echo];

/** A process that only accepts, and what it asks of the store. */
function startWeb(replicas: Replicas, options: DurableRuntimeOptions = {}): Replica & { readonly calls: Set<Method> } {
  const calls = new Set<Method>();
  const hook: Hook = (call, method) => {
    calls.add(method);
    return call();
  };
  const web = replicas.start({ durability, work: false, ...options }, hook);
  web.runtime.register(...all);
  return Object.assign(web, { calls });
}

function startWorker(replicas: Replicas, options: DurableRuntimeOptions = {}): Replica {
  const worker = replicas.start({ durability, ...options });
  worker.runtime.register(...all);
  return worker;
}

/** The outcome of a call while time passes. */
async function within<T>({ clock }: Replicas, ms: number, call: Promise<T>): Promise<T> {
  call.catch(() => undefined);
  await clock.advance(ms);
  return call;
}

it.each(opened)(
  "a process that does not work accepts, streams, answers and cancels, and owns nothing ($on)",
  async ({ open }) => {
    const replicas = open();
    const web = startWeb(replicas);
    startWorker(replicas);
    const { runtime } = web;
    const create = (agent_name: string) => ({ agent_name, input: "Hello" });
    expect(textsOf(await within(replicas, 500, runtime.createRun(create("echo"))))).toEqual(["Hello"]);
    const streaming = drain(runtime.createRun({ ...create("echo"), mode: "stream" }));
    expect(typesOf(await within(replicas, 500, streaming))).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.completed",
    ]);
    const run = await within(replicas, 500, runtime.createRun(create("asking")));
    expect(run.status).toBe("awaiting");
    const { run_id } = run;
    const unfit = runtime.resume({ run_id, await_resume: { yes: "perhaps" } });
    const refused = await within(replicas, 1_000, refusal(unfit));
    expect([refused.code, refused.issues?.map(({ path }) => path)]).toEqual(["answer_rejected", [["yes"]]]);
    const answered = await within(replicas, 1_000, runtime.resume({ run_id, await_resume: { yes: true } }));
    expect([answered.status, textsOf(answered)]).toEqual(["completed", ["Gone."]]);
    const other = await runtime.createRun({ ...create("asking"), mode: "async" });
    expect(other.status).toBe("created");
    expect((await within(replicas, 1_500, runtime.cancel(other.run_id, { wait: true }))).status).toBe("cancelled");
    for (const method of ["take", "claim", "renew", "append"] as const) expect(web.calls).not.toContain(method);
    expect((await runtime.stats()).live).toEqual({});
    await runtime.close();
  },
);

it("a run that is accepted while no worker is there begins when there is one", async () => {
  const replicas = inMemory();
  const { runtime } = startWeb(replicas);
  const waiting = runtime.createRun({ agent_name: "echo", input: "Hello" });
  const later = await runtime.createRun(
    { agent_name: "echo", input: "Later", mode: "async" },
    { startAt: new Date(replicas.clock.now() + 60_000) },
  );
  await replicas.clock.advance(10_000);
  expect((await runtime.listRuns()).map(({ status }) => status)).toEqual(["created", "created"]);
  startWorker(replicas);
  expect(textsOf(await within(replicas, 500, waiting))).toEqual(["Hello"]);
  expect((await runtime.getRun(later.run_id)).status).toBe("created");
  await replicas.clock.advance(50_000);
  expect(textsOf(await runtime.getRun(later.run_id))).toEqual(["Later"]);
});

it("idempotency keys and sessions hold where a run is only accepted", async () => {
  const replicas = inMemory();
  const { runtime } = startWeb(replicas);
  startWorker(replicas);
  const create = (input: string, key: string, session_id?: string) =>
    runtime.createRun({ agent_name: "echo", input, session_id, mode: "async" }, { idempotencyKey: key });
  const both = await Promise.all([create("One", "a"), create("One", "a")]);
  expect(new Set(both.map(({ run_id }) => run_id)).size).toBe(1);
  expect((await refusal(create("Two", "a"))).code).toBe("idempotency_conflict");
  const session = "00000000-0000-4000-8000-00000000aaaa";
  for (const text of ["One", "Two"]) {
    await create(text, text, session);
    await replicas.clock.advance(500);
  }
  const { history } = await runtime.getSession(session);
  expect(history.map(({ role, parts }) => [role, parts[0]?.content])).toEqual([
    ["user", "One"],
    ["agent/echo", "One"],
    ["user", "Two"],
    ["agent/echo", "Two"],
  ]);
});

it("a durable agent that is only accepted survives its workers, a plain one fails with the first", async () => {
  const replicas = inMemory();
  const web = replicas.start({ durability, work: false });
  const never = () => new Promise<string>(() => undefined);
  web.runtime.declare({ name: "slow", durable: true }, { name: "plain" });
  const start = (work: () => string | Promise<string>): Replica => {
    const worker = replicas.start({ durability });
    worker.runtime.register("slow", { durable: true }, (_input, { step }) => step("work", work));
    worker.runtime.register("plain", work);
    return worker;
  };
  const first = start(never);
  const calls = ["slow", "plain"].map((agent_name) => web.runtime.createRun({ agent_name, input: "" }));
  await replicas.clock.advance(1_000);
  first.kill();
  start(() => "Done.");
  await replicas.clock.advance(3_000);
  const [slow, plain] = await Promise.all(calls);
  expect([slow?.status, plain?.status]).toEqual(["completed", "failed"]);
});

it.each(opened)("a declared agent runs as a sub-run in another process ($on)", async ({ open }) => {
  const replicas = open();
  const parents = replicas.start({ durability });
  parents.runtime.declare(asking);
  for (const durable of [true, false])
    parents.runtime.register(
      durable ? "parent" : "plain-parent",
      { durable },
      async (_input: unknown, { run }: AgentContext) => {
        const { status, output } = await run("asking", "Go.");
        return `${status} ${output[0]?.parts[0]?.content}`;
      },
    );
  const children = replicas.start({ durability });
  children.runtime.register(asking);
  for (const agent_name of ["parent", "plain-parent"]) {
    const run = await within(replicas, 1_000, parents.runtime.createRun({ agent_name, input: "" }));
    const { run_id, await_request } = run;
    expect([run.status, await_request?.message.parts[0]?.content]).toEqual(["awaiting", "Go?"]);
    const resumed = parents.runtime.resume({ run_id, await_resume: { yes: false } });
    const ended = await within(replicas, 2_000, resumed);
    expect([ended.status, textsOf(ended)]).toEqual(["completed", ["completed Stayed."]]);
    const cancelled = await within(replicas, 1_000, parents.runtime.createRun({ agent_name, input: "" }));
    await within(replicas, 2_000, parents.runtime.cancel(cancelled.run_id, { wait: true }));
    const [child = ""] = (await parents.runtime.details(cancelled.run_id)).children;
    expect((await children.runtime.getRun(child)).status).toBe("cancelled");
  }
});

it("a sub-run is created once although the store fails to take it, or its answer is lost", async () => {
  for (const isWritten of [false, true]) {
    const replicas = inMemory();
    let fails = 2;
    const parents = replicas.start({ durability }, (call, method, [, write]) => {
      const isChild = JSON.stringify(write)?.includes('"agent_name":"echo"') === true;
      if (method !== "create" || !isChild || fails-- <= 0) return call();
      if (isWritten) call();
      throw new Error("The store is down.");
    });
    parents.runtime.declare(echo);
    parents.runtime.register("parent", { durable: true }, async (_input, { run }) => (await run("echo", "Hi")).status);
    const children = replicas.start({ durability });
    children.runtime.register(echo);
    const creating = parents.runtime.createRun({ agent_name: "parent", input: "" });
    expect(textsOf(await within(replicas, 5_000, creating))).toEqual(["completed"]);
    expect(await children.runtime.listRuns({ agent_name: "echo" })).toHaveLength(1);
  }
});

it("a fork is executed elsewhere where its agent is only known", async () => {
  const replicas = inMemory();
  const { runtime } = startWeb(replicas);
  startWorker(replicas);
  const run = await within(replicas, 500, runtime.createRun({ agent_name: "asking", input: "" }));
  const { run_id } = run;
  await within(replicas, 1_000, runtime.resume({ run_id, await_resume: { yes: false } }));
  const fork = await within(replicas, 1_000, runtime.fork(run_id, { before: "ask#1" }));
  expect(fork.status).toBe("awaiting");
  const forked = runtime.resume({ run_id: fork.run_id, await_resume: { yes: true } });
  expect(textsOf(await within(replicas, 1_000, forked))).toEqual(["Gone."]);
});

it("a worker takes no more than it may execute, and accepts its own runs all the same", async () => {
  const replicas = inMemory();
  const counts = { now: 0, most: 0 };
  const busy = (name: string) =>
    defineAgent(name, { durable: true }, async (_input, { step }) =>
      step("work", async () => {
        counts.now += 1;
        counts.most = Math.max(counts.most, counts.now);
        await new Promise<void>((resolve) => replicas.clock.setTimeout(resolve, 1_000));
        counts.now -= 1;
        return "Done.";
      }),
    );
  const web = replicas.start({ durability, work: false });
  web.runtime.declare(busy("busy"), asking);
  const worker = replicas.start({ durability, work: { max: 3 } });
  worker.runtime.register(busy("busy"), asking);
  // Runs that wait take nothing of it.
  for (let n = 0; n < 5; n++) await web.runtime.createRun({ agent_name: "asking", input: "", mode: "async" });
  await replicas.clock.advance(500);
  const created: Promise<unknown>[] = [];
  for (let n = 0; n < 10; n++) created.push(web.runtime.createRun({ agent_name: "busy", input: "" }));
  await replicas.clock.advance(900);
  expect(counts).toEqual({ now: 3, most: 3 });
  created.push(worker.runtime.createRun({ agent_name: "busy", input: "" }));
  await replicas.clock.advance(50);
  expect(counts.now).toBe(4);
  await replicas.clock.advance(6_000);
  await Promise.all(created);
  expect(counts).toEqual({ now: 0, most: 4 });
});

it("a declared agent is listed, counted and known", async () => {
  const replicas = inMemory();
  const web = replicas.start({ durability, work: false });
  web.runtime.declare({ name: "echo", durable: true, description: "Says the same." }, asking);
  startWorker(replicas);
  await within(replicas, 500, web.runtime.createRun({ agent_name: "echo", input: "Hi" }));
  const [first, second] = await web.runtime.listAgents();
  expect([first?.name, first?.description, second?.name]).toEqual(["echo", "Says the same.", "asking"]);
  expect(first?.status?.success_rate).toBe(100);
  expect((await web.runtime.stats()).unregistered).toBe(0);
  const unknown = web.runtime.createRun({ agent_name: "other", input: "" });
  expect((await refusal(unknown)).code).toBe("agent_not_found");
});

it("what cannot be declared is refused", async () => {
  const { runtime } = inMemory().start({ durability });
  runtime.declare(echo);
  const code = (call: () => unknown): unknown => {
    try {
      call();
    } catch (error) {
      return (error as { code?: string }).code;
    }
    return "none";
  };
  expect(code(() => runtime.declare(echo))).toBe("agent_exists");
  expect(code(() => runtime.register(echo))).toBe("agent_exists");
  expect(code(() => runtime.register(echo, { replace: true }))).toBe("none");
  expect(code(() => runtime.declare({ name: "no name" }))).toBe("invalid_argument");
  expect(code(() => runtime.declare({ name: "other", fnn: 1 } as never))).toBe("invalid_argument");
  expect(code(() => new AgentRuntime().declare(echo))).toBe("invalid_argument");
  expect(code(() => new AgentRuntime({ work: false }))).toBe("invalid_argument");
  expect(code(() => new AgentRuntime({ work: { max: 0 } }))).toBe("invalid_argument");
  for (const max of [0, -1, 1.5, Number.NaN, "2"])
    expect(() => new AgentRuntime({ store: durable(lastingStore()), work: { max: max as number } })).toThrow(
      "options.work.max: expected a whole number from 1 to Infinity",
    );
  expect(code(() => new AgentRuntime({ work: true }))).toBe("none");
  expect((await runtime.createRun({ agent_name: "echo", input: "Here." })).status).toBe("completed");
});

it("a reader of a run elsewhere misses nothing when the worker dies", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const counting = defineAgent("counting", { durable: true }, async function* (_input, { step }) {
    for (let n = 0; n < 5; n++) {
      await step("pause", () => new Promise<void>((resolve) => clock.setTimeout(resolve, 300)));
      yield `${n}`;
    }
  });
  const web = replicas.start({ durability, work: false });
  web.runtime.declare(counting);
  const workers = [0, 1].map(() => replicas.start({ durability }));
  const [first] = workers;
  first?.runtime.register(counting);
  const events: StreamedEvent[] = [];
  const reading = (async () => {
    for await (const event of web.runtime.createRun({ agent_name: "counting", input: "", mode: "stream" }))
      events.push(event);
  })();
  await clock.advance(1_000);
  first?.kill();
  workers[1]?.runtime.register(counting);
  await clock.advance(5_000);
  await reading;
  const texts = events.flatMap((event) => (event.type === "message.part" ? [event.part.content] : []));
  expect([texts, events.at(-1)?.type]).toEqual([["0", "1", "2", "3", "4"], "run.completed"]);
});
