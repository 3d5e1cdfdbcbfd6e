import type { IncomingMessage } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { AgentContext, AgentFunction, Interceptor, Logger, Run } from "cadenza";
import { AgentError, AgentRuntime, awaitMessage, defineAgent, MemoryStore } from "cadenza";
import { createAcpHandler, createAcpNodeListener } from "cadenza/http";
import { SqliteStore } from "cadenza/sqlite";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { FakeClock } from "../../harness/clock.ts";
import { ForeignMethods, ofIterators, ofValues } from "../../harness/foreign-methods.ts";
import { never } from "../../harness/promises.ts";
import { drivers } from "../../harness/sqlite-files.ts";

const GRACE_MS = 50;
const LIMIT_MS = 1_000;

/** What an agent does once it is answered. */
type Act = (context: AgentContext) => unknown;

const acts: Readonly<Record<string, Act>> = {
  waits: () => never(),
  fails: () => Promise.reject(new Error("broken")),
  ends: () => "done",
};

/** The four forms of agent function. Each yields or asks first, and then acts. */
const forms: Readonly<Record<string, (foreign: ForeignMethods, act: Act) => AgentFunction>> = {
  "a plain generator": (foreign, act) => {
    const agent = function* (_input: unknown, context: AgentContext) {
      yield foreign.add("a yielded list", ["a", "b"], ofValues);
      yield awaitMessage("Well?");
      yield act(context);
    };
    foreign.add("the generator", agent.prototype as object, ofIterators);
    return agent as AgentFunction;
  },
  "an async generator": (foreign, act) => {
    const agent = async function* (_input: unknown, context: AgentContext) {
      yield foreign.add("a yielded part", { content: "a" }, ofValues);
      yield awaitMessage("Well?");
      yield act(context);
    };
    foreign.add("the generator", agent.prototype as object, ofIterators);
    return agent as AgentFunction;
  },
  "an async function": (_foreign, act) => async (_input, context) => {
    await context.ask("Well?");
    return act(context) as never;
  },
  "a plain function": (_foreign, act) => (_input, context) => context.ask("Well?").then(() => act(context)) as never,
};

/** How a run ends: what is done to it while it waits, and how it has ended then. */
const ends: readonly (readonly [what: string, act: string, status: Run["status"], end: End])[] = [
  ["cancelled while it asks", "ends", "cancelled", ({ runtime, run_id }) => runtime.cancel(run_id)],
  [
    "cancelled while it works",
    "waits",
    "cancelled",
    async (run) => {
      await answer(run);
      await run.runtime.cancel(run.run_id);
    },
  ],
  [
    "timed out",
    "waits",
    "failed",
    async (run) => {
      await answer(run);
      run.clock.advance(LIMIT_MS);
    },
  ],
  ["failed", "fails", "failed", answer],
  ["answered", "ends", "completed", answer],
  ["left when its runtime is closed", "ends", "failed", ({ runtime }) => runtime.close({ drainMs: 0 })],
];

interface Begun {
  readonly runtime: AgentRuntime;
  readonly clock: FakeClock;
  readonly run_id: string;
}

type End = (run: Begun) => Promise<unknown>;

function answer({ runtime, run_id }: Begun): Promise<unknown> {
  return runtime.resume({ run_id, await_resume: { yes: true }, mode: "async" });
}

describe.each(Object.entries(forms))("%s, where everything inherits methods of its own,", (_form, agentOf) => {
  it.each(ends)("is %s, and no such method is called", async (_what, act, status, end) => {
    const foreign = new ForeignMethods();
    const clock = new FakeClock();
    const store = foreign.add("the store", new MemoryStore({ clock }), ["watch"]);
    const runtime = new AgentRuntime({
      clock: foreign.add("the clock", clock),
      store: foreign.add("the durable store", durable(store), ["watch"]),
      logger: foreign.add("the logger", silent()),
      interceptors: [foreign.add("an interceptor", passing())],
      cancelGraceMs: GRACE_MS,
      timeoutMs: LIMIT_MS,
    });
    runtime.register("agent", agentOf(foreign, acts[act] ?? never));
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
    await clock.settle();
    await end({ runtime, clock, run_id });
    await clock.settle();
    await clock.advance(GRACE_MS);
    await clock.settle();

    expect(foreign.called).toEqual([]);
    expect((await store.find({ tenant: "", run_id }))?.head.status).toBe(status);
    await runtime.close();
    expect(foreign.called).toEqual([]);
  });
});

it("no such method of a schema, an error or what a step gives is called", async () => {
  const foreign = new ForeignMethods();
  const runtime = new AgentRuntime();
  const schema = foreign.add("a schema", { "~standard": z.object({ a: z.number() })["~standard"] });
  const agent = defineAgent("agent", { input: schema, output: schema }).run(async (input, { ask, step, receive }) => {
    await step("gives", () => foreign.add("a result", { a: 1 }, ofValues));
    await step("fails", () => Promise.reject(foreign.add("an error", new Error("broken")))).catch(() => {});
    const given = await ask("Well?", { schema });
    await receive("news", { schema, timeoutMs: 0, default: null });
    if (given.a !== input.a) throw foreign.add("an error of the agent", new AgentError("other", "Another value."));
    return given;
  });
  runtime.register(agent);
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: JSON.stringify({ a: 1 }) });
  const ended = await runtime.resume({ run_id, await_resume: { a: 2 } });
  await runtime.close();

  expect(foreign.called).toEqual([]);
  expect(ended).toMatchObject({ status: "failed", error: { message: "Another value." } });
});

it.each(drivers)("no such method of a handle of $name is called", async ({ open }) => {
  const foreign = new ForeignMethods();
  const db = foreign.add("the handle", open(":memory:"));
  const runtime = new AgentRuntime({ store: new SqliteStore(db, { closeDatabase: true }) });
  runtime.register("agent", async () => "done");

  expect(await runtime.createRun({ agent_name: "agent", input: "" })).toMatchObject({ status: "completed" });
  await runtime.close();
  expect(foreign.called).toEqual([]);
});

describe("no such method of a request or response is called, and no such property is read,", () => {
  it("by the handler", async () => {
    const foreign = new ForeignMethods();
    const runtime = withEcho();
    const request = foreign.add("the request", new Request("http://service.test/runs", createEcho));
    const response = await createAcpHandler(runtime)(request);

    expect(await response.json()).toMatchObject({ status: "completed" });
    expect(foreign.called).toEqual([]);
    await runtime.close();
  });

  it("by the listener", async () => {
    const foreign = new ForeignMethods();
    const runtime = withEcho();
    const listener = createAcpNodeListener(runtime);
    const server = createServer((request: IncomingMessage, response) =>
      listener(foreign.add("the request", request), foreign.add("the response", response)),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/runs`, createEcho);

    expect(await response.json()).toMatchObject({ status: "completed", output: [{ parts: [{ content: "hello" }] }] });
    expect(foreign.called).toEqual([]);
    await runtime.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
});

const createEcho = {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({
    agent_name: "echo",
    mode: "sync",
    input: [{ role: "user", parts: [{ content_type: "text/plain", content: "hello" }] }],
  }),
};

function withEcho(): AgentRuntime {
  const runtime = new AgentRuntime();
  runtime.register("echo", async (input) => input[0]?.parts[0]?.content ?? "");
  return runtime;
}

function silent(): Logger {
  return { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
}

function passing(): Interceptor {
  return { run: (_run, next) => next(), step: (_step, next) => next(), ask: (_ask, next) => next() };
}
