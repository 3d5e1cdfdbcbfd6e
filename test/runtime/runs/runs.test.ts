import type { Run } from "cadenza";
import { AgentRuntime, defineAgent } from "cadenza";
import { describe, expect, it } from "vitest";
import type { Deferred } from "../../harness/promises.ts";
import { deferred, never } from "../../harness/promises.ts";
import {
  drain,
  eventsOf,
  refusal,
  reply,
  runAgent,
  setUp,
  snapshot,
  textOf,
  textsOf,
  typesOf,
} from "../../harness/runtimes.ts";
import { HANDED_BACK, OUTSIDE, RUN_ONCE, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe("createRun", () => {
  it("in mode sync gives the run when it rests", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", (input) => input);
    const run = await runtime.createRun({ agent_name: "agent", input: "Hello" });

    expect(run).toStrictEqual({
      agent_name: "agent",
      run_id: expect.stringMatching(UUID),
      session_id: run.run_id,
      status: "completed",
      await_request: null,
      output: [
        {
          role: "agent/agent",
          parts: [{ content_type: "text/plain", content: "Hello", content_encoding: "plain" }],
          created_at: new Date(clock.now()).toISOString(),
          completed_at: new Date(clock.now()).toISOString(),
        },
      ],
      error: null,
      created_at: new Date(clock.now()).toISOString(),
      finished_at: new Date(clock.now()).toISOString(),
    });
    expect(await runtime.getRun(run.run_id)).toEqual(run);
  });

  it("in mode async gives the run as it was accepted, and the agent begins after that", async () => {
    const { runtime, clock } = setUp();
    let began = false;
    runtime.register("agent", () => {
      began = true;
      return "ok";
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    expect(run).toMatchObject({ status: "created", output: [], finished_at: null });
    expect(began).toBe(false);
    await clock.settle();
    expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "completed" });
  });

  it("in mode stream gives the events until the run rests, numbered from 1", async () => {
    const { runtime } = setUp();
    runtime.register("agent", async function* (_input, { ask }) {
      yield "a";
      await ask("?");
    });
    const events = await drain(runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" }));
    expect(typesOf(events)).toEqual([
      "run.created",
      "run.in-progress",
      "message.created",
      "message.part",
      "message.completed",
      "run.awaiting",
    ]);
    expect(events.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("in mode stream begins at once, also without a reader", async () => {
    const { runtime, clock } = setUp();
    let began = false;
    runtime.register("agent", async () => {
      began = true;
    });
    runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    await clock.settle();
    expect(began).toBe(true);
    expect(await runtime.listRuns()).toMatchObject([{ status: "completed" }]);
  });

  it.each([null, undefined])("takes the mode %s for sync", async (mode) => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    expect(await runtime.createRun({ agent_name: "agent", input: "x", mode })).toMatchObject({ status: "completed" });
  });

  it.each<[title: string, input: Parameters<AgentRuntime["createRun"]>[0]["input"], messages: readonly string[]]>([
    ["a text", "a", ["user: a"]],
    ["an empty list", [], []],
    ["a part", { content: "a" }, ["user: a"]],
    ["a message", { role: "agent", parts: [{ content: "a" }] }, ["agent: a"]],
    ["a message without a role", { parts: [{ content: "a" }] }, ["user: a"]],
    ["a message of an agent by name", { role: "agent/other", parts: [] }, ["agent/other: "]],
    ["texts side by side", ["a", "b"], ["user: a|b"]],
    [
      "a mixture",
      ["a", { content: "b" }, { parts: [{ content: "c" }] }, "d", { content_url: "https://example.org/e" }],
      ["user: a|b", "user: c", "user: d|https://example.org/e"],
    ],
  ])("takes %s as input", async (_title, input, messages) => {
    const { runtime } = setUp();
    let got: string[] = [];
    runtime.register("agent", async (given) => {
      got = given.map((message) => `${message.role}: ${textOf(message)}`);
    });
    await runtime.createRun({ agent_name: "agent", input });
    expect(got).toEqual(messages);
  });

  it("keeps its own copy of the input", async () => {
    const { runtime } = setUp();
    const metadata = { kind: "trajectory" as const, tool_input: { list: [1] } };
    const input = [{ parts: [{ content: "a", metadata }] }, "b"];
    let got: unknown;
    runtime.register("agent", async (given) => {
      await Promise.resolve();
      got = JSON.parse(JSON.stringify(given));
    });
    const running = runtime.createRun({ agent_name: "agent", input });
    metadata.tool_input.list.push(2);
    input.length = 0;
    await running;
    expect(got).toHaveLength(2);
    expect(got).toMatchObject([{ parts: [{ metadata: { tool_input: { list: [1] } } }] }, {}]);
  });

  it("with a signal ends the call, not the run", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("agent", () => gate.promise.then(() => "ok"));
    const controller = new AbortController();
    const waiting = runtime.createRun({ agent_name: "agent", input: "x" }, { signal: controller.signal });
    const caught = waiting.catch((error: unknown) => error);
    await clock.settle();
    controller.abort(new Error("no patience"));
    expect(await caught).toMatchObject({ message: "no patience" });

    gate.resolve();
    await clock.settle();
    expect(await runtime.listRuns()).toMatchObject([{ status: "completed" }]);
  });

  it("with a signal that has aborted already creates nothing", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", () => "ok");
    const signal = AbortSignal.abort(new Error("too late"));
    for (const mode of ["sync", "async"] as const)
      await expect(runtime.createRun({ agent_name: "agent", input: "x", mode }, { signal })).rejects.toThrow(
        "too late",
      );
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" }, { signal });
    await expect(stream.next()).rejects.toThrow("too late");
    await clock.settle();
    expect(await runtime.listRuns()).toEqual([]);
  });

  it("with a signal that aborts while the run is still being created ends the call too", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", () => never());
    const controller = new AbortController();
    const options = { signal: controller.signal, idempotencyKey: "key" };
    const waiting = runtime.createRun({ agent_name: "agent", input: "x" }, options);
    const caught = waiting.catch((error: unknown) => error);
    controller.abort(new Error("no patience"));
    await clock.settle();
    expect(await caught).toMatchObject({ message: "no patience" });
    expect(await runtime.listRuns()).toMatchObject([{ status: "in-progress" }]);
  });

  it("removes its listener from the signal when the run rests", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    const { signal } = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...parameters: Parameters<typeof addEventListener>) => {
      listeners += 1;
      addEventListener.apply(signal, parameters);
    };
    signal.removeEventListener = (...parameters: Parameters<typeof removeEventListener>) => {
      listeners -= 1;
      removeEventListener.apply(signal, parameters);
    };
    await runtime.createRun({ agent_name: "agent", input: "x" }, { signal });
    expect(listeners).toBe(0);
  });
});

describe("an idempotency key", () => {
  it("gives the same run again in every mode", async () => {
    const { runtime, clock } = setUp();
    let calls = 0;
    runtime.register("agent", () => `call ${++calls}`);
    const request = { agent_name: "agent", input: "x" };
    const options = { idempotencyKey: "key" };
    const first = await runtime.createRun({ ...request, mode: "async" }, options);
    await clock.settle();

    const sync = await runtime.createRun(request, options);
    expect(sync.run_id).toBe(first.run_id);
    expect(textsOf(sync)).toEqual(["call 1"]);
    expect(await runtime.createRun({ ...request, mode: "async" }, options)).toEqual(sync);
    const events = await drain(runtime.createRun({ ...request, mode: "stream" }, options));
    expect(events).toEqual(await eventsOf(runtime, first.run_id));
    expect(typesOf(events).at(-1)).toBe("run.completed");
    expect(calls).toBe(1);
  });

  it("gives the same run to calls at the same time", async () => {
    const { runtime } = setUp();
    let calls = 0;
    runtime.register("agent", () => `call ${++calls}`);
    const create = () => runtime.createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: "key" });
    const runs = await Promise.all([create(), create(), create()]);
    expect(new Set(runs.map(({ run_id }) => run_id)).size).toBe(1);
    expect(calls).toBe(1);
    expect(await runtime.listRuns()).toHaveLength(1);
  });

  it("re-reads and follows a run that is still in progress", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("agent", async function* () {
      yield "a";
      await gate.promise;
      yield "b";
    });
    const request = { agent_name: "agent", input: "x" };
    const first = runtime.createRun(request, { idempotencyKey: "key" });
    await clock.settle();
    const stream = drain(runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey: "key" }));
    const second = runtime.createRun(request, { idempotencyKey: "key" });
    await clock.settle();
    gate.resolve();
    expect(await second).toEqual(await first);
    expect(typesOf(await stream)).toEqual(typesOf(await eventsOf(runtime, (await first).run_id)));
  });

  it.each([
    ["another input", { input: "y" }],
    ["another agent", { agent_name: "other" }],
    ["a session", { session_id: "00000000-0000-4000-8000-000000000000" }],
  ])("with %s is a conflict, and creates nothing", async (_title, change) => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok").register("other", () => "ok");
    const options = { idempotencyKey: "key" };
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x" }, options);
    const before = await snapshot(runtime);
    const error = await refusal(runtime.createRun({ agent_name: "agent", input: "x", ...change }, options));
    expect(error).toMatchObject({ code: "idempotency_conflict", run_id });
    expect(await snapshot(runtime)).toEqual(before);
  });

  it("of one tenant does not affect another", async () => {
    const { runtime } = setUp();
    runtime.register("agent", () => "ok");
    const create = (tenant: string) =>
      runtime.scope({ tenant }).createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: "key" });
    expect((await create("a")).run_id).not.toBe((await create("b")).run_id);
    expect((await create("a")).run_id).toBe((await create("a")).run_id);
  });
});

describe("concurrency", () => {
  /** An agent whose runs the test ends. */
  function gated(concurrency: object) {
    const set = setUp();
    const gates = new Map<string, Deferred<void>>();
    const order: string[] = [];
    set.runtime.register("agent", { concurrency: concurrency as { max: number } }, async (input, { ask }) => {
      const name = input.map(textOf).join();
      order.push(name);
      if (name.startsWith("ask")) await ask("?");
      const gate = deferred();
      gates.set(name, gate);
      await gate.promise;
    });
    const create = async (input: string, session_id?: string): Promise<string> => {
      const run = await set.runtime.createRun({ agent_name: "agent", input, mode: "async", session_id });
      await set.clock.settle();
      return run.run_id;
    };
    const finish = async (name: string): Promise<void> => {
      gates.get(name)?.resolve();
      await set.clock.settle();
    };
    const status = async (run_id: string): Promise<string> => (await set.runtime.getRun(run_id)).status;
    return { ...set, order, create, finish, status };
  }

  unlessReplayed(RUN_ONCE)(
    "limits how many runs of an agent execute; the others stay created, and begin in their order",
    async () => {
      const { create, finish, order, status, runtime } = gated({ max: 2 });
      const runs = [await create("a"), await create("b"), await create("c"), await create("d")];
      expect(order).toEqual(["a", "b"]);
      expect(await Promise.all(runs.map(status))).toEqual(["in-progress", "in-progress", "created", "created"]);
      expect((await runtime.stats()).queued).toBe(2);
      await finish("b");
      expect(order).toEqual(["a", "b", "c"]);
      await finish("a");
      await finish("c");
      await finish("d");
      expect(await Promise.all(runs.map(status))).toEqual(Array(4).fill("completed"));
      expect((await runtime.stats()).queued).toBe(0);
    },
  );

  unlessReplayed(RUN_ONCE)("may be counted per session", async () => {
    const { create, order } = gated({ max: 1, per: "session" });
    const [one, two] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];
    await create("a", one);
    await create("b", one);
    await create("c", two);
    await create("d");
    await create("e");
    expect(order).toEqual(["a", "c", "d", "e"]);
  });

  unlessReplayed(RUN_ONCE)("keeps sessions of the same id apart that belong to different tenants", async () => {
    const { runtime, clock, order } = gated({ max: 1, per: "session" });
    const session_id = "00000000-0000-4000-8000-000000000001";
    for (const tenant of ["a", "b"])
      await runtime.scope({ tenant }).createRun({ agent_name: "agent", input: tenant, mode: "async", session_id });
    await clock.settle();
    expect(order).toEqual(["a", "b"]);
  });

  unlessReplayed(RUN_ONCE)("may be counted per tenant", async () => {
    const { runtime, clock, order, finish } = gated({ max: 1, per: "tenant" });
    const [one, two] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"];
    const create = async (tenant: string, input: string, session_id: string): Promise<void> => {
      await runtime.scope({ tenant }).createRun({ agent_name: "agent", input, mode: "async", session_id });
      await clock.settle();
    };
    await create("red", "a", one);
    await create("red", "b", two);
    await create("blue", "c", one);
    await create("", "d", one);
    expect(order).toEqual(["a", "c", "d"]);
    await finish("c");
    expect(order).toEqual(["a", "c", "d"]);
    await finish("a");
    expect(order).toEqual(["a", "c", "d", "b"]);
  });

  it("may refuse a run without a slot", async () => {
    const { create, runtime, finish } = gated({ max: 1, whenFull: "reject" });
    await create("a");
    const before = await snapshot(runtime);
    const error = await refusal(runtime.createRun({ agent_name: "agent", input: "b" }));
    expect(error).toMatchObject({ code: "limit_reached", limit: "concurrency", agent_name: "agent" });
    expect(await snapshot(runtime)).toEqual(before);
    await finish("a");
    await create("c");
    expect(await runtime.listRuns({ status: "in-progress" })).toHaveLength(1);
  });

  it("refuses runs that come at the same time beyond its slots", async () => {
    const { runtime, clock } = gated({ max: 1, whenFull: "reject" });
    const outcomes = Promise.allSettled(
      ["a", "b"].map((input) => runtime.createRun({ agent_name: "agent", input, mode: "async" })),
    );
    await clock.settle();
    expect((await outcomes).map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  });

  unlessReplayed(OUTSIDE)(
    "releases the slot while a run waits for an answer, and takes one again before it goes on",
    async () => {
      const { create, finish, order, status, runtime, clock } = gated({ max: 1 });
      const asking = await create("ask");
      const next = await create("b");
      expect([await status(asking), await status(next)]).toEqual(["awaiting", "in-progress"]);
      await runtime.resume({ run_id: asking, await_resume: reply("ok"), mode: "async" });
      await clock.settle();
      await finish("ask");
      expect(await status(asking)).toBe("in-progress");
      await finish("b");
      await finish("ask");
      expect(await status(asking)).toBe("completed");
      expect(order).toEqual(["ask", "b"]);
    },
  );

  it("keeps a session's slot while a run waits for an answer", async () => {
    const session = "00000000-0000-4000-8000-000000000001";
    const { create, status } = gated({ max: 1, per: "session" });
    const asking = await create("ask", session);
    const next = await create("b", session);
    expect([await status(asking), await status(next)]).toEqual(["awaiting", "created"]);
  });

  unlessReplayed(RUN_ONCE)("takes a slot again also when a question ends with its default", async () => {
    const { runtime, clock } = setUp();
    let atWork = 0;
    let most = 0;
    const work = async (): Promise<void> => {
      most = Math.max(most, ++atWork);
      await new Promise<void>((resolve) => clock.setTimeout(resolve, 100));
      atWork -= 1;
    };
    runtime.register("agent", { concurrency: { max: 1 } }, async (_input, { ask }) => {
      await ask("?", { timeoutMs: 50, default: {} });
      await work();
    });
    for (let i = 0; i < 3; i++) await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.advance(1_000);
    expect(await runtime.listRuns({ status: "completed" })).toHaveLength(3);
    expect(most).toBe(1);
  });

  unlessReplayed(RUN_ONCE)("a run that is cancelled in the queue leaves it at once", async () => {
    const { create, order, finish, runtime, clock, status } = gated({ max: 1 });
    await create("a");
    const queued = await create("b");
    const last = await create("c");
    await runtime.cancel(queued);
    await clock.settle();
    expect(await status(queued)).toBe("cancelled");
    expect((await runtime.stats()).queued).toBe(1);
    await finish("a");
    expect(order).toEqual(["a", "c"]);
    await finish("c");
    expect(await status(last)).toBe("completed");
    await create("d");
    expect(order).toEqual(["a", "c", "d"]);
  });

  it("cancelled runs do not use up the queue", async () => {
    const { runtime, clock } = setUp({ limits: { maxQueuedRuns: 2 } });
    runtime.register("agent", { concurrency: { max: 1 } }, () => never());
    await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    for (let i = 0; i < 5; i++) {
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
      await clock.settle();
      await runtime.cancel(run_id);
      await clock.settle();
    }
    expect((await runtime.stats()).queued).toBe(0);
  });

  it("a run that is cancelled while it waits for a slot to go on neither releases nor keeps one", async () => {
    const { create, finish, runtime, clock, status } = gated({ max: 1 });
    const asking = await create("ask");
    await create("b");
    await runtime.resume({ run_id: asking, await_resume: reply("ok"), mode: "async" });
    await runtime.cancel(asking);
    await clock.advance(500);
    expect(await status(asking)).toBe("cancelled");
    const next = await create("c");
    expect(await status(next)).toBe("created");
    await finish("b");
    expect(await status(next)).toBe("in-progress");
    await finish("c");
    expect(await status(next)).toBe("completed");
    expect(await status(await create("d"))).toBe("in-progress");
  });

  unlessReplayed(OUTSIDE)("a run that fails, is cancelled or times out releases its slot", async () => {
    const { runtime, clock } = setUp({ cancelGraceMs: 0 });
    let count = 0;
    runtime.register("agent", { concurrency: { max: 1 }, timeoutMs: 10 }, async () => {
      count += 1;
      if (count === 1) throw new Error("it broke");
      if (count < 4) await never();
    });
    const runs: Run[] = [];
    for (let i = 0; i < 4; i++) runs.push(await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" }));
    await clock.settle();
    await runtime.cancel(runs[1]?.run_id ?? "");
    await clock.advance(100);
    const statuses = await Promise.all(runs.map(async ({ run_id }) => (await runtime.getRun(run_id)).status));
    expect(statuses).toEqual(["failed", "cancelled", "failed", "completed"]);
  });

  it("does not count sub-runs: they need no slot", async () => {
    const { runtime } = setUp();
    runtime.register("child", { concurrency: { max: 1 } }, () => "ok");
    const run = await runAgent(runtime, async (_input, context) => {
      const children = await Promise.all([1, 2, 3].map(() => context.run("child", "x")));
      return children.map(({ status }) => status).join();
    });
    expect(textsOf(run)).toEqual(["completed,completed,completed"]);
  });

  it.each([
    { end: "completes", durable: false },
    { end: "fails", durable: false },
    { end: "completes", durable: true },
    { end: "fails", durable: true },
  ])("is free when the last sub-run of a run that waits $end (durable: $durable)", async ({ end, durable }) => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("child", { durable }, () => gate.promise);
    runtime.register("agent", { durable, concurrency: { max: 1 } }, async (input, { run, ask }) => {
      if (input.map(textOf).join() === "first") {
        run("child", "x").catch(() => undefined);
        await ask("Well?");
      }
      return "done";
    });
    const first = await runtime.createRun({ agent_name: "agent", input: "first" });
    const second = await runtime.createRun({ agent_name: "agent", input: "second", mode: "async" });
    await clock.settle();
    expect((await runtime.getRun(second.run_id)).status).toBe("created");
    if (end === "fails") gate.reject(new Error("The child failed."));
    else gate.resolve();
    await clock.settle();
    expect((await runtime.getRun(first.run_id)).status).toBe("awaiting");
    expect((await runtime.getRun(second.run_id)).status).toBe("completed");
  });
});

describe("the limits", () => {
  it("maxLiveRuns refuses one more run until another ends", async () => {
    const { runtime, clock } = setUp({ limits: { maxLiveRuns: 2 } });
    const gate = deferred();
    runtime.register("agent", () => gate.promise);
    const create = () => runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await Promise.all([create(), create()]);
    await clock.settle();
    const before = await snapshot(runtime);
    expect(await refusal(create())).toMatchObject({ code: "limit_reached", limit: "maxLiveRuns" });
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    expect(await refusal(stream)).toMatchObject({ limit: "maxLiveRuns" });
    expect(await snapshot(runtime)).toEqual(before);
    gate.resolve();
    await clock.settle();
    await create();
  });

  unlessReplayed(TOO_LONG)("maxLiveRuns counts sub-runs, so that an agent which runs itself ends", async () => {
    const { runtime } = setUp({ limits: { maxLiveRuns: 3_000, maxDepth: Number.POSITIVE_INFINITY } });
    runtime.register("agent", async (_input, { run }) => `${(await run("agent", "deeper")).status}`);
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    expect(run.status).toBe("completed");
    expect(await runtime.listRuns({ status: "failed" })).toMatchObject([
      { error: { data: { reason: "limit_reached" } } },
    ]);
    expect(await runtime.listRuns({ limit: 5_000 })).toHaveLength(3_000);
  });

  unlessReplayed("the store queues them")("maxQueuedRuns refuses one more run without a slot", async () => {
    const { runtime, clock } = setUp({ limits: { maxQueuedRuns: 1 } });
    runtime.register("agent", { concurrency: { max: 1 } }, () => never());
    const create = () => runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    for (let i = 0; i < 2; i++) {
      await create();
      await clock.settle();
    }
    expect(await refusal(create())).toMatchObject({ code: "limit_reached", limit: "maxQueuedRuns" });
    expect(await runtime.listRuns()).toHaveLength(2);
  });

  it("maxLogEntries fails the run, and says so", async () => {
    const { runtime } = setUp({ limits: { maxLogEntries: 50 } });
    const run = await runAgent(runtime, async function* () {
      for (;;) yield "again";
    });
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
    expect(run.error?.message).toContain("50 entries");
    expect(run.output[0]?.parts).toHaveLength(48);
  });

  it("maxPartBytes counts bytes, fails what is yielded and rejects what is emitted", async () => {
    const { runtime } = setUp({ limits: { maxPartBytes: 12 } });
    const fits = await runAgent(runtime, () => ["123456789012", "äöüäöü", { content: "😀😀😀" }, { a: "123" }, ""]);
    expect(fits.status).toBe("completed");
    const big = [
      "1234567890123",
      "äöüäöüä",
      { content: "1234567890123" },
      { parts: [{ content: "" }, { content: "1234567890123" }] },
      { content_url: "data:,1234567890" },
      { a: "1234567" },
    ];
    for (const value of big) {
      const run = await runAgent(runtime, () => value);
      expect(run).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
    }
    const emitting = await runAgent(runtime, async (_input, { emit }) => {
      expect(await refusal(emit("1234567890123"))).toMatchObject({ limit: "maxPartBytes" });
      return "went on";
    });
    expect(emitting).toMatchObject({ status: "completed" });
  });

  it("of Infinity do not limit anything", async () => {
    const { runtime } = setUp({
      limits: {
        maxLiveRuns: Number.POSITIVE_INFINITY,
        maxQueuedRuns: Number.POSITIVE_INFINITY,
        maxLogEntries: Number.POSITIVE_INFINITY,
        maxPartBytes: Number.POSITIVE_INFINITY,
        maxBacklog: Number.POSITIVE_INFINITY,
      },
    });
    expect(await runAgent(runtime, () => "ok")).toMatchObject({ status: "completed" });
  });
});

describe("retention", () => {
  it("removes the oldest ended runs beyond a number, with their idempotency keys, and never live ones", async () => {
    const { runtime, clock } = setUp({ retention: { maxRuns: 3 } });
    runtime.register("agent", () => "ok").register("asks", (_input, { ask }) => ask("?"));
    const waiting = await runtime.createRun({ agent_name: "asks", input: "x" });
    const runs: Run[] = [];
    for (let i = 0; i < 6; i++)
      runs.push(await runtime.createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: `${i}` }));
    await clock.settle();
    const listed = (await runtime.listRuns()).map(({ run_id }) => run_id);
    expect(listed).toEqual([
      ...runs
        .slice(3)
        .map(({ run_id }) => run_id)
        .reverse(),
      waiting.run_id,
    ]);
    expect((await refusal(runtime.getRun(runs[0]?.run_id ?? ""))).code).toBe("run_not_found");
    const again = await runtime.createRun({ agent_name: "agent", input: "x" }, { idempotencyKey: "0" });
    expect(again.run_id).not.toBe(runs[0]?.run_id);
    expect((await runtime.stats()).agents["agent"]).toMatchObject({ completed: 7 });
  });

  unlessReplayed(TOO_LONG)("removes ended runs after a time, and idle sessions after theirs", async () => {
    const { runtime, clock } = setUp({ retention: { maxAgeMs: 60_000, maxIdleSessionMs: 600_000 } });
    const session_id = "00000000-0000-4000-8000-000000000001";
    runtime.register("agent", () => "ok").register("asks", (_input, { ask }) => ask("?").then(() => "ok"));
    const ended = await runtime.createRun({ agent_name: "agent", input: "x", session_id });
    const waiting = await runtime.createRun({ agent_name: "asks", input: "x", session_id });

    await clock.advance(59_000);
    expect(await runtime.getRun(ended.run_id)).toEqual(ended);
    await clock.advance(10_000);
    expect((await refusal(runtime.getRun(ended.run_id))).code).toBe("run_not_found");
    expect((await runtime.getSession(session_id)).history).toHaveLength(2);

    await clock.advance(6_000_000);
    expect((await runtime.getSession(session_id)).history).toHaveLength(2);
    await runtime.resume({ run_id: waiting.run_id, await_resume: reply("yes") });
    expect((await runtime.getSession(session_id)).history).toHaveLength(6);
    await clock.advance(6_000_000);
    expect((await refusal(runtime.getSession(session_id))).code).toBe("session_not_found");
    expect(await runtime.listRuns()).toEqual([]);
  });

  unlessReplayed(TOO_LONG)("of Infinity keeps everything", async () => {
    const { runtime, clock } = setUp({
      retention: {
        maxRuns: Number.POSITIVE_INFINITY,
        maxAgeMs: Number.POSITIVE_INFINITY,
        maxIdleSessionMs: Number.POSITIVE_INFINITY,
      },
    });
    const run = await runAgent(runtime, () => "ok");
    await clock.advance(1e12);
    expect(await runtime.getRun(run.run_id)).toEqual(run);
    expect(clock.timers).toBe(0);
  });
});

describe("agents", () => {
  it("are registered by name, with a manifest", async () => {
    const { runtime } = setUp();
    runtime.register("plain", () => "ok");
    runtime.register(
      "described",
      {
        description: "Books trains.",
        metadata: { license: "MIT" },
        inputContentTypes: ["text/plain"],
        outputContentTypes: ["application/json"],
      },
      () => "ok",
    );
    expect(await runtime.getAgent("plain")).toStrictEqual({
      name: "plain",
      description: "",
      input_content_types: ["*/*"],
      output_content_types: ["*/*"],
      metadata: {},
      status: {},
    });
    expect(await runtime.listAgents()).toMatchObject([
      { name: "plain" },
      {
        name: "described",
        description: "Books trains.",
        metadata: { license: "MIT" },
        input_content_types: ["text/plain"],
        output_content_types: ["application/json"],
      },
    ]);
    expect(await refusal(runtime.getAgent("missing"))).toMatchObject({
      code: "agent_not_found",
      agent_name: "missing",
    });
    expect(await refusal(runtime.createRun({ agent_name: "missing", input: "x" }))).toMatchObject({
      code: "agent_not_found",
    });
  });

  it("may be made as a value and registered in several runtimes", async () => {
    const agent = defineAgent("shared", { description: "Shared." }, () => "ok");
    for (const runtime of [setUp().runtime, setUp().runtime]) {
      expect(runtime.register(agent)).toBe(runtime);
      expect(await runtime.createRun({ agent_name: "shared", input: "x" })).toMatchObject({ status: "completed" });
    }
  });

  it("of the same name are refused, unless they have another version or replace the first", async () => {
    const { runtime } = setUp();
    const run = async (): Promise<string[]> => textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }));
    runtime.register("agent", () => "one");
    expect(() => runtime.register("agent", () => "again")).toThrow(expect.objectContaining({ code: "agent_exists" }));
    expect(await run()).toEqual(["one"]);
    runtime.register("agent", { version: "2" }, () => "two");
    expect(await run()).toEqual(["two"]);
    expect(() => runtime.register("agent", { version: "2" }, () => "again")).toThrow(/Version "2" of agent "agent"/);
    runtime.register(
      defineAgent("agent", { version: "2" }, () => "two, reloaded"),
      { replace: true },
    );
    expect(await run()).toEqual(["two, reloaded"]);
    expect(await runtime.listAgents()).toHaveLength(1);
  });

  it("that are replaced finish the runs they have begun", async () => {
    const { runtime } = setUp();
    runtime.register("agent", async (_input, { ask }) => {
      await ask("?");
      return "the old one";
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "x" });
    runtime.register("agent", { replace: true }, () => "the new one");
    expect(textsOf(await runtime.resume({ run_id: run.run_id, await_resume: reply("ok") }))).toEqual(["the old one"]);
  });
});

describe("listRuns", () => {
  it("gives the newest first, by agent, session and status, a page at a time", async () => {
    const { runtime } = setUp();
    const session_id = "00000000-0000-4000-8000-000000000001";
    runtime.register("agent", () => "ok").register("asks", (_input, { ask }) => ask("?"));
    const a = await runtime.createRun({ agent_name: "agent", input: "x" });
    const b = await runtime.createRun({ agent_name: "agent", input: "x", session_id });
    const c = await runtime.createRun({ agent_name: "asks", input: "x", session_id });
    const ids = async (query?: Parameters<AgentRuntime["listRuns"]>[0]) =>
      (await runtime.listRuns(query)).map(({ run_id }) => run_id);

    expect(await runtime.listRuns({ output: true })).toEqual([c, b, a]);
    expect(await ids({ agent_name: "agent" })).toEqual([b.run_id, a.run_id]);
    expect(await ids({ session_id })).toEqual([c.run_id, b.run_id]);
    expect(await ids({ session_id: a.run_id })).toEqual([a.run_id]);
    expect(await ids({ status: "awaiting" })).toEqual([c.run_id]);
    expect(await ids({ limit: 1, offset: 1 })).toEqual([b.run_id]);
    expect(await ids({ limit: 0 })).toEqual([]);
    expect(await ids({ agent_name: "missing" })).toEqual([]);
  });

  it("lists each question once: runs that wait without their sub-runs, unless sub-runs are listed", async () => {
    const { runtime } = setUp();
    runtime.register("asks", (_input, { ask }) => ask("?"));
    runtime.register("parent", (_input, { run }) => run("asks", ""));
    const root = await runtime.createRun({ agent_name: "parent", input: "x" });
    const [child] = await runtime.listRuns({ agent_name: "asks" });
    const ids = async (query: Parameters<AgentRuntime["listRuns"]>[0]) =>
      (await runtime.listRuns(query)).map(({ run_id }) => run_id).sort();
    const both = [child?.run_id, root.run_id].sort();

    expect(child?.status).toBe("awaiting");
    expect(await ids({ status: "awaiting" })).toEqual([root.run_id]);
    expect(await ids({ status: "awaiting", limit: 1, offset: 1 })).toEqual([]);
    expect(await ids({ status: "awaiting", roots: false })).toEqual(both);
    expect(await ids({})).toEqual(both);
    expect(await ids({ roots: true })).toEqual([root.run_id]);
  });
});

describe("tenants", () => {
  it("cannot see each other's runs", async () => {
    const { runtime } = setUp();
    runtime.register("asks", (_input, { ask, principal }) => ask(`${JSON.stringify(principal)}?`));
    const one = runtime.scope({ tenant: "one", principal: { user: 1 } });
    const two = runtime.scope({ tenant: "two" });
    const run = await one.createRun({ agent_name: "asks", input: "x" });
    expect(textOf(run.await_request?.message ?? { parts: [] })).toBe('{"user":1}?');

    for (const other of [two, runtime, runtime.scope()]) {
      expect(await other.listRuns()).toEqual([]);
      expect((await refusal(other.getRun(run.run_id))).code).toBe("run_not_found");
      expect((await refusal(other.cancel(run.run_id))).code).toBe("run_not_found");
      expect((await refusal(other.resume({ run_id: run.run_id, await_resume: {} }))).code).toBe("run_not_found");
      expect((await refusal(other.events(run.run_id))).code).toBe("run_not_found");
      expect((await refusal(other.getSession(run.session_id))).code).toBe("session_not_found");
    }
    expect(await one.getRun(run.run_id)).toEqual(run);
    expect(
      await runtime.scope({ tenant: "one" }).resume({ run_id: run.run_id, await_resume: { ok: 1 } }),
    ).toMatchObject({
      status: "completed",
    });
    expect(await two.getAgent("asks")).toEqual(await one.getAgent("asks"));
  });

  it("have sessions of their own under the same id", async () => {
    const { runtime } = setUp();
    const session_id = "00000000-0000-4000-8000-000000000001";
    runtime.register("agent", () => undefined);
    for (const tenant of ["one", "two"])
      await runtime.scope({ tenant }).createRun({ agent_name: "agent", input: tenant, session_id });
    for (const tenant of ["one", "two"]) {
      const { history } = await runtime.scope({ tenant }).getSession(session_id);
      expect(history.map(textOf)).toEqual([tenant]);
    }
  });

  it("the principal of a run is a copy", async () => {
    const { runtime } = setUp();
    const principal = { roles: ["a"] };
    const scope = runtime.scope({ tenant: "one", principal });
    principal.roles.push("b");
    runtime.register("agent", (_input, context) => ({ principal: context.principal }));
    const run = await scope.createRun({ agent_name: "agent", input: "x" });
    expect(await drain(scope.events(run.run_id))).toContainEqual(
      expect.objectContaining({ generic: { principal: { roles: ["a"] } } }),
    );
  });
});

describe("close", () => {
  it("takes no new runs, and lets those in progress finish", async () => {
    const { runtime, clock } = setUp();
    const gate = deferred();
    runtime.register("agent", () => gate.promise.then(() => "finished"));
    const running = runtime.createRun({ agent_name: "agent", input: "x" });
    const closing = runtime.close({ drainMs: 1_000 });
    await clock.settle();
    for (const mode of ["sync", "async"] as const)
      expect((await refusal(runtime.createRun({ agent_name: "agent", input: "x", mode }))).code).toBe("runtime_closed");
    const stream = runtime.createRun({ agent_name: "agent", input: "x", mode: "stream" });
    expect((await refusal(stream)).code).toBe("runtime_closed");
    gate.resolve();
    expect(await closing).toEqual({ left: [] });
    expect(textsOf(await running)).toEqual(["finished"]);
  });

  unlessReplayed(HANDED_BACK)(
    "reports the runs that were left, and what they waited for; those that are not durable fail as interrupted",
    async () => {
      const { runtime, clock } = setUp();
      runtime.register("busy", () => never()).register("asks", (_input, { ask }) => ask("?"));
      runtime.register("queued", { concurrency: { max: 1 } }, () => never());
      runtime.register("steps", (_input, { step }) => step("fetch", () => never()));
      const asking = await runtime.createRun({ agent_name: "asks", input: "x" });
      const waiting = runtime.createRun({ agent_name: "busy", input: "x" });
      for (const agent_name of ["queued", "queued", "steps"])
        await runtime.createRun({ agent_name, input: "x", mode: "async" });
      const closing = runtime.close({ drainMs: 1_000 });
      await clock.advance(1_000);
      const { left } = await closing;

      expect(left.map(({ agent_name, status, waits_for }) => `${agent_name}, ${status}: ${waits_for}`).sort()).toEqual([
        "asks, awaiting: the answer to ask#1",
        "busy, in-progress: the agent",
        "queued, created: a slot",
        "queued, in-progress: the agent",
        "steps, in-progress: the agent",
      ]);
      expect(await waiting).toMatchObject({
        status: "failed",
        error: { code: "server_error", data: { reason: "interrupted" } },
      });
      expect(await runtime.getRun(asking.run_id)).toMatchObject({ status: "failed" });
      expect(await runtime.listRuns({ status: "failed" })).toHaveLength(5);
    },
  );

  unlessReplayed(HANDED_BACK)("does not wait with a drainMs of 0", async () => {
    const { runtime } = setUp();
    runtime.register("busy", () => never());
    const waiting = runtime.createRun({ agent_name: "busy", input: "x" });
    expect((await runtime.close({ drainMs: 0 })).left).toHaveLength(1);
    expect(await waiting).toMatchObject({ status: "failed" });
  });

  it("closes once: a second call gets the same promise", async () => {
    const { runtime } = setUp();
    const first = runtime.close();
    expect(runtime.close({ drainMs: 5 })).toBe(first);
    expect(await first).toEqual({ left: [] });
  });

  it("can be called again after it was refused for a bad argument", async () => {
    const { runtime } = setUp();
    expect((await refusal(runtime.close({ drainMs: Number.NaN }))).code).toBe("invalid_argument");
    expect(await runAgent(runtime, () => "ok")).toMatchObject({ status: "completed" });
    expect(await runtime.close()).toEqual({ left: [] });
  });

  it("leaves no timers, and no listeners", async () => {
    const { runtime, clock } = setUp();
    let heard = 0;
    runtime.on("run.failed", () => {
      heard += 1;
    });
    runtime.register("busy", { timeoutMs: 60_000 }, () => never());
    await runtime.createRun({ agent_name: "busy", input: "x", mode: "async" });
    await clock.settle();
    await runtime.close({ drainMs: 0 });
    await clock.settle();
    expect(clock.timers).toBe(0);
    expect(heard).toBeLessThanOrEqual(1);
  });
});

describe("a runtime", () => {
  it("needs no options", async () => {
    const runtime = new AgentRuntime();
    runtime.register("agent", (_input, { now, uuid, random }) => `${now()} ${uuid()} ${random()}`);
    const before = Date.now();
    const [text = ""] = textsOf(await runtime.createRun({ agent_name: "agent", input: "x" }));
    const [now, uuid, random] = text.split(" ");
    expect(Number(now)).toBeGreaterThanOrEqual(before);
    expect(Number(now)).toBeLessThanOrEqual(Date.now());
    expect(uuid).toMatch(UUID);
    expect(Number(random)).toBeLessThan(1);
    await runtime.close();
  });

  it("gives other random values in each run, and never the same ones twice", async () => {
    const { runtime } = setUp();
    const drawn: unknown[] = [];
    for (let i = 0; i < 3; i++)
      await runAgent(runtime, (_input, { random, uuid }) => {
        drawn.push(random(), random(), uuid(), uuid());
      });
    expect(new Set(drawn).size).toBe(12);
  });

  it("tells the agent its name, run and session", async () => {
    const { runtime } = setUp();
    let seen: object = {};
    const run = await runAgent(runtime, (_input, { run_id, agent_name, principal, session }) => {
      seen = { run_id, agent_name, principal, session_id: session.id };
    });
    expect(seen).toEqual({ run_id: run.run_id, agent_name: "agent", principal: null, session_id: run.session_id });
  });

  it("counts its live runs by status", async () => {
    const { runtime, clock } = setUp();
    runtime.register("busy", () => never()).register("asks", (_input, { ask }) => ask("?"));
    await runtime.createRun({ agent_name: "asks", input: "x" });
    await runtime.createRun({ agent_name: "busy", input: "x", mode: "async" });
    await clock.settle();
    expect(await runtime.stats()).toMatchObject({
      live: { awaiting: 1, "in-progress": 1 },
      queued: 0,
      dropped: 0,
      hung: 0,
      agents: { busy: { completed: 0 }, asks: { completed: 0 } },
    });
  });
});
