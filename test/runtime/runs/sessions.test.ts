import type { AgentContext, JsonValue, Message, Run } from "cadenza";
import { describe, expect, it } from "vitest";
import { recordRun } from "../../../src/durable/replay/cassette.ts";
import { deferred, never } from "../../harness/promises.ts";
import {
  drain,
  eventsOf,
  questionOf,
  refusal,
  reply,
  runAgent,
  setUp,
  textOf,
  textsOf,
} from "../../harness/runtimes.ts";
import { hookedStore, lastingStore, lateStore } from "../../harness/store-proxy.ts";
import { FLOATING, HAS_TIME, RUN_ONCE, TOO_LONG, unlessReplayed } from "../../harness/unless-replayed.ts";

const SESSION = "00000000-0000-4000-8000-0000000000a1";

/** An agent that emits the session's history and its input. */
async function* recall(input: readonly Message[], { session }: AgentContext): AsyncGenerator<unknown> {
  const before = (await session.history()).map(textOf).join(",");
  yield { parts: [{ content: `(${before}) ${input.map(textOf).join(",")}` }] };
}

const stores = [
  ["that answers at once", () => setUp()],
  ["that answers late", () => setUp({ store: lateStore() })],
] as const;

describe.each(stores)("a session, in a store %s,", (_title, make) => {
  it("holds the input and the output of the completed runs, in their order", async () => {
    const { runtime } = make();
    runtime.register("recall", recall);
    const create = (input: string) => runtime.createRun({ agent_name: "recall", input, session_id: SESSION });
    expect(await create("a")).toMatchObject({ session_id: SESSION });
    expect(textsOf(await create("b"))).toEqual(["(a,() a) b"]);
    const session = await runtime.getSession(SESSION);

    expect(session).toMatchObject({ id: SESSION, state: null });
    expect(session.history.map(({ role }) => role)).toEqual(["user", "agent/recall", "user", "agent/recall"]);
    expect(session.history.map(textOf)).toEqual(["a", "() a", "b", "(a,() a) b"]);
  });

  it("gives the last messages of its history, as many as are asked for", async () => {
    const { runtime } = make();
    runtime.register("lasts", async (_input, { session }) => {
      const counts = [0, 1, 3, 9, Number.POSITIVE_INFINITY, undefined];
      const lasts = await Promise.all(counts.map((last) => session.history({ last })));
      return lasts.map((messages) => messages.map(textOf).join("")).join();
    });
    runtime.register("echo", (input) => input.map(textOf).join("").toUpperCase());
    for (const input of ["a", "b"]) await runtime.createRun({ agent_name: "echo", input, session_id: SESSION });
    const run = await runtime.createRun({ agent_name: "lasts", input: "", session_id: SESSION });
    expect(textsOf(run)).toEqual([",B,AbB,aAbB,aAbB,aAbB"]);
  });

  it.each([-1, 1.5, "2", null])("gives no %s last messages", async (last) => {
    const { runtime } = make();
    runtime.register("odd", (_input, { session }) => session.history({ last } as { last: number }) as Promise<never>);
    const { error } = await runtime.createRun({ agent_name: "odd", input: "" });
    expect(error?.message).toContain("options.last");
  });

  it("holds nothing of a run that fails or is cancelled", async () => {
    const { runtime, clock } = make();
    runtime.register("fails", () => ["half", 5]).register("stays", () => never());
    expect(await runtime.createRun({ agent_name: "fails", input: "a", session_id: SESSION })).toMatchObject({
      status: "failed",
    });
    const { run_id } = await runtime.createRun({ agent_name: "stays", input: "b", session_id: SESSION, mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.advance(500);
    expect((await runtime.getSession(SESSION)).history).toEqual([]);
  });

  unlessReplayed(RUN_ONCE)(
    "loses nothing of runs at the same time; each sees the history as of its creation",
    async () => {
      const { runtime, clock } = make();
      const gate = deferred();
      const seen: number[] = [];
      runtime.register("slow", async (input, { session }) => {
        await gate.promise;
        seen.push((await session.history()).length);
        return input;
      });
      runtime.register("quick", (input) => input);
      await runtime.createRun({ agent_name: "quick", input: "first", session_id: SESSION });
      const slow = ["a", "b", "c"].map((input) =>
        runtime.createRun({ agent_name: "slow", input, session_id: SESSION }),
      );
      await clock.settle();
      await runtime.createRun({ agent_name: "quick", input: "second", session_id: SESSION });
      gate.resolve();
      await Promise.all(slow);

      expect(seen).toEqual([2, 2, 2]);
      const history = (await runtime.getSession(SESSION)).history.map(textOf);
      expect(history).toHaveLength(10);
      expect(history.slice(0, 4)).toEqual(["first", "first", "second", "second"]);
      expect(history.slice(4).sort()).toEqual(["a", "a", "b", "b", "c", "c"]);
    },
  );

  it("holds questions and answers at their positions", async () => {
    const { runtime } = make();
    runtime.register("asks", async function* (_input: unknown, { ask }: AgentContext) {
      await ask("one?");
      yield { parts: [{ content: "said" }] };
      await ask("two?");
      yield "done";
    } as () => AsyncGenerator);
    runtime.register("recall", recall);
    const run = await runtime.createRun({ agent_name: "asks", input: "start", session_id: SESSION });
    await runtime.resume({ run_id: run.run_id, await_resume: reply("yes") });
    await runtime.resume({ run_id: run.run_id, await_resume: { n: 2 } });
    const next = await runtime.createRun({ agent_name: "recall", input: "x", session_id: SESSION });
    expect(textsOf(next)).toEqual(['(start,one?,yes,said,two?,{"n":2},done) x']);
  });

  it("holds a question between the messages before it and those after its answer", async () => {
    const { runtime } = make();
    runtime.register("booking", async function* (_input: unknown, { ask }: AgentContext) {
      yield "Looking ";
      yield "for trains…";
      await ask("Book it?");
      yield "Booked.";
    } as () => AsyncGenerator);
    const { run_id } = await runtime.createRun({ agent_name: "booking", input: "Rome", session_id: SESSION });
    const run = await runtime.resume({ run_id, await_resume: reply("Yes") });
    const { history } = await runtime.getSession(SESSION);
    expect(history.map(textOf)).toEqual(["Rome", "Looking |for trains…", "Book it?", "Yes", "Booked."]);
    expect(run.output).toEqual([history[1], history[4]]);
    const completed = (await eventsOf(runtime, run_id)).flatMap((event) =>
      event.type === "message.completed" ? [event.message] : [],
    );
    expect(completed).toEqual(run.output);
  });

  unlessReplayed(TOO_LONG)("of one run is removed with it, unless another run joins it", async () => {
    const { runtime, clock } = make();
    runtime.register("recall", recall);
    const alone = await runtime.createRun({ agent_name: "recall", input: "a" });
    expect((await runtime.getSession(alone.session_id)).history.map(textOf)).toEqual(["a", "() a"]);
    const joined = await runtime.createRun({ agent_name: "recall", input: "b", session_id: alone.session_id });
    expect(textsOf(joined)).toEqual(["(a,() a) b"]);
    await clock.advance(10 * 3_600_000);
    expect((await refusal(runtime.getRun(alone.run_id))).code).toBe("run_not_found");
    expect((await runtime.getSession(alone.session_id)).history).toHaveLength(4);

    const other = await runtime.createRun({ agent_name: "recall", input: "c" });
    await clock.advance(10 * 3_600_000);
    expect((await refusal(runtime.getSession(other.session_id))).code).toBe("session_not_found");
  });

  it("of one run loses nothing when several runs join it at once", async () => {
    const { runtime } = make();
    runtime.register("recall", recall);
    const { session_id } = await runtime.createRun({ agent_name: "recall", input: "a" });
    const join = (input: string) => runtime.createRun({ agent_name: "recall", input, session_id });
    const joined = await Promise.all([join("b"), join("c"), join("d")]);
    for (const run of joined) expect(textsOf(run)[0]).toMatch(/^\(a,\(\) a/);
    const history = (await runtime.getSession(session_id)).history.map(textOf);
    expect(history).toHaveLength(8);
    expect(history.filter((text) => text === "a")).toHaveLength(1);
  });

  it("may be joined while its run is still in progress", async () => {
    const { runtime, clock } = make();
    const gate = deferred();
    runtime.register("slow", (input) => gate.promise.then(() => input)).register("quick", (input) => input);
    const slow = await runtime.createRun({ agent_name: "slow", input: "slow", mode: "async" });
    await clock.settle();
    await runtime.createRun({ agent_name: "quick", input: "quick", session_id: slow.session_id });
    gate.resolve();
    await clock.settle();
    const { history } = await runtime.getSession(slow.session_id);
    expect(history.map(textOf)).toEqual(["quick", "quick", "slow", "slow"]);
  });

  unlessReplayed(RUN_ONCE)("has a state that runs read and write", async () => {
    const { runtime } = make();
    const states: JsonValue[] = [];
    runtime.register("counts", async (_input, { session }) => {
      const state = await session.getState();
      states.push(state);
      const count = (state as { count: number } | null)?.count ?? 0;
      const next = { count: count + 1, list: [count] };
      await session.setState(next);
      next.list.push(99);
      states.push(await session.getState());
    });
    for (let i = 0; i < 2; i++) await runtime.createRun({ agent_name: "counts", input: [], session_id: SESSION });
    expect(states).toEqual([null, { count: 1, list: [0] }, { count: 1, list: [0] }, { count: 2, list: [1] }]);
    expect((await runtime.getSession(SESSION)).state).toEqual({ count: 2, list: [1] });
  });

  unlessReplayed(RUN_ONCE)("has its state stored when setState resolves", async () => {
    const writes = new Set(["create", "append"]);
    // Writes take effect later, and reads at once.
    const store = hookedStore(async (call, method) => {
      if (writes.has(method)) await new Promise((resolve) => setImmediate(resolve));
      return call();
    });
    const { runtime } = setUp({ store });
    const stored = async (): Promise<unknown> => (await runtime.getSession(SESSION)).state;
    const seen: unknown[] = [];
    runtime.register("sets", async (_input, { session }) => {
      for (let n = 1; n <= 4; n++) {
        await session.setState(n);
        seen.push(await stored());
      }
      const set = async (value: string) => {
        await session.setState(value);
        seen.push([value, await stored()]);
      };
      // The second is joined with what waits behind the first, and so is the third.
      await Promise.all([set("a"), set("b"), set("c")]);
    });
    await runtime.createRun({ agent_name: "sets", input: "", session_id: SESSION });
    expect(seen.slice(0, 4)).toEqual([1, 2, 3, 4]);
    const order = "abc";
    for (const [value, found] of seen.slice(4) as [string, string][])
      expect(order.indexOf(found), `${value} was set, ${found} is stored`).toBeGreaterThanOrEqual(order.indexOf(value));
    expect(seen).toHaveLength(7);
  });

  it("reads no message for its state", async () => {
    const called: string[] = [];
    const store = hookedStore((call, method) => {
      called.push(method);
      return call();
    });
    const { runtime } = setUp({ store });
    runtime.register("state", async (_input, { session }) => JSON.stringify(await session.getState()));
    const run = await runtime.createRun({ agent_name: "state", input: "x", session_id: SESSION });
    expect(textsOf(run)).toEqual(["null"]);
    expect(called).toContain("sessionHead");
    expect(called).not.toContain("session");
  });

  unlessReplayed(FLOATING)(
    "keeps the state that is set right before the end, also of a run with a session of its own",
    async () => {
      const { runtime } = make();
      runtime.register("sets", (input, { session }) => {
        void session.setState("set");
        return input;
      });
      for (const session_id of [SESSION, undefined]) {
        const run = await runtime.createRun({ agent_name: "sets", input: "a", session_id });
        expect(run.status).toBe("completed");
        expect(await runtime.getSession(run.session_id)).toMatchObject({ state: "set", history: { length: 2 } });
      }
    },
  );

  it("refuses a state that is not JSON", async () => {
    const { runtime } = make();
    const run = await runAgent(runtime, async (_input, { session }) => {
      for (const state of [undefined, () => 1, 1n, Symbol("s")])
        expect((await refusal(session.setState(state as unknown as JsonValue))).message).toMatch(/^state: expected/);
      return "refused";
    });
    expect(textsOf(run)).toEqual(["refused"]);
  });

  it("that does not exist is refused, and one whose run has not completed is empty", async () => {
    const { runtime, clock } = make();
    expect(await refusal(runtime.getSession(SESSION))).toMatchObject({
      code: "session_not_found",
      session_id: SESSION,
    });
    runtime.register("stays", () => never());
    const run = await runtime.createRun({ agent_name: "stays", input: "x", mode: "async" });
    await clock.settle();
    expect(await runtime.getSession(run.session_id)).toEqual({ id: run.session_id, history: [], state: null });
  });
});

describe("a session that a caller replaces", () => {
  const SECOND = "00000000-0000-4000-8000-0000000000a2";
  const replaced = { session: { history: [{ role: "user" as const, parts: [{ content: "other" }] }], state: 2 } };

  it.each(stores)("stays as it is if the run is refused, in a store %s", async (_title, make) => {
    const { runtime, clock } = make();
    const gate = deferred();
    runtime.register("one", { concurrency: { max: 1, whenFull: "reject" } }, async (input, { session }) => {
      if (input.map(textOf).join() === "wait") await gate.promise;
      await session.setState(1);
    });
    await runtime.createRun({ agent_name: "one", input: "a", session_id: SESSION });
    const before = await runtime.getSession(SESSION);
    expect(before).toMatchObject({ history: [{ role: "user" }], state: 1 });
    const waiting = runtime.createRun({ agent_name: "one", input: "wait", session_id: SECOND });
    await clock.settle();
    const refused = runtime.createRun({ agent_name: "one", input: "b", session_id: SESSION }, replaced);
    expect(await refusal(refused)).toMatchObject({ code: "limit_reached" });
    expect(await runtime.getSession(SESSION)).toEqual(before);
    gate.resolve();
    await waiting;
  });

  it.each(stores)("is there when its run begins, in a store %s", async (_title, make) => {
    const { runtime } = make();
    runtime.register("recall", recall).register("states", async (_input, { session }) => {
      const before = await session.getState();
      await session.setState(3);
      return JSON.stringify([before, await session.getState(), (await session.history()).map(textOf)]);
    });
    await runtime.createRun({ agent_name: "recall", input: "a", session_id: SESSION });
    const run = await runtime.createRun({ agent_name: "recall", input: "b", session_id: SESSION }, replaced);
    expect(textsOf(run)).toEqual(["(other) b"]);
    const session = await runtime.getSession(SESSION);
    expect([session.history.map(textOf), session.state]).toEqual([["other", "b", "(other) b"], 2]);
    const next = await runtime.createRun({ agent_name: "states", input: "c", session_id: SESSION }, replaced);
    expect(textsOf(next)).toEqual(['[2,3,["other"]]']);
    expect((await runtime.getSession(SESSION)).state).toBe(3);
  });

  it("stays as it is if the store has not taken the run", async () => {
    let fails = false;
    const store = hookedStore((call, method) => {
      if (fails && method === "create") throw new Error("the connection failed");
      return call();
    });
    const { runtime } = setUp({ store });
    runtime.register("recall", recall);
    await runtime.createRun({ agent_name: "recall", input: "a", session_id: SESSION });
    const before = await runtime.getSession(SESSION);
    fails = true;
    const refused = runtime.createRun({ agent_name: "recall", input: "b", session_id: SESSION }, replaced);
    expect(await refusal(refused)).toMatchObject({ code: "store_failed" });
    expect(await runtime.getSession(SESSION)).toEqual(before);
  });
});

describe("session ids", () => {
  it("are UUIDs in any spelling, and are written in the canonical one", async () => {
    const { runtime } = setUp();
    runtime.register("agent", (input) => input);
    const spelt = SESSION.toUpperCase().replaceAll("-", "");
    const run = await runtime.createRun({ agent_name: "agent", input: "x", session_id: spelt });
    expect(run.session_id).toBe(SESSION);
    expect((await runtime.getSession(spelt)).history).toHaveLength(2);
  });
});

describe("statistics", () => {
  it("are absent until a run counts", async () => {
    const { runtime, clock } = setUp();
    runtime.register("stays", () => never());
    const run = await runtime.createRun({ agent_name: "stays", input: "x", mode: "async" });
    await clock.settle();
    expect((await runtime.getAgent("stays")).status).toStrictEqual({});
    await runtime.cancel(run.run_id);
    await clock.advance(500);
    expect((await runtime.getAgent("stays")).status).toStrictEqual({});
  });

  unlessReplayed(TOO_LONG)(
    "are averages of active time, tokens and success; cancelled runs count for none",
    async () => {
      const { runtime, clock } = setUp();
      runtime.register("agent", async (input, { ask, usage }) => {
        const text = input.map(textOf).join();
        await new Promise<void>((resolve) => clock.setTimeout(resolve, 2_000));
        if (text === "asks") await ask("?");
        if (text !== "silent") usage.add({ inputTokens: 10, outputTokens: 5 });
        if (text === "fails") throw new Error("it broke");
      });
      const create = async (input: string): Promise<string> => {
        const run = await runtime.createRun({ agent_name: "agent", input, mode: "async" });
        await clock.advance(2_000);
        return run.run_id;
      };
      await create("ok");
      await create("silent");
      await create("fails");
      const asking = await create("asks");
      await clock.advance(60_000);
      await runtime.resume({ run_id: asking, await_resume: reply("ok") });

      expect((await runtime.getAgent("agent")).status).toStrictEqual({
        avg_run_tokens: 15,
        avg_run_time_seconds: 2,
        success_rate: 75,
      });
      const { agents } = await runtime.stats();
      expect(agents["agent"]).toMatchObject({
        completed: 3,
        failed: 1,
        cancelled: 0,
        active_ms: 8_000,
        waiting_ms: 60_000,
        reported: 3,
        input_tokens: 30,
        output_tokens: 15,
        total_tokens: 45,
      });
    },
  );
});

describe("usage", () => {
  const counts = (
    input_tokens: number,
    output_tokens: number,
    cached_input_tokens: number,
    cache_write_tokens: number,
    reasoning_tokens: number,
    total_tokens = input_tokens + output_tokens,
  ) => ({ input_tokens, output_tokens, total_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens });

  it.each<[title: string, usage: object, counted: object]>([
    ["AI SDK 4", { promptTokens: 100, completionTokens: 20, totalTokens: 120 }, counts(100, 20, 0, 0, 0)],
    [
      "AI SDK 5",
      { inputTokens: 100, outputTokens: 20, totalTokens: 120, reasoningTokens: 5, cachedInputTokens: 60 },
      counts(100, 20, 60, 0, 5),
    ],
    [
      "AI SDK 6",
      {
        inputTokens: 100,
        inputTokenDetails: { noCacheTokens: 30, cacheReadTokens: 60, cacheWriteTokens: 10 },
        outputTokens: 20,
        outputTokenDetails: { textTokens: 15, reasoningTokens: 5 },
        totalTokens: 120,
        reasoningTokens: 5,
        cachedInputTokens: 60,
        raw: { anything: 1 },
      },
      counts(100, 20, 60, 10, 5),
    ],
    [
      "AI SDK 6 without the figures that the provider left out",
      {
        inputTokens: 100,
        inputTokenDetails: { noCacheTokens: undefined, cacheReadTokens: undefined, cacheWriteTokens: undefined },
        outputTokens: undefined,
        totalTokens: undefined,
      },
      counts(100, 0, 0, 0, 0),
    ],
    [
      "AI SDK 7, as its providers count",
      {
        inputTokens: { total: 100, noCache: 30, cacheRead: 60, cacheWrite: 10 },
        outputTokens: { total: 20, text: 15, reasoning: 5 },
      },
      counts(100, 20, 60, 10, 5),
    ],
    [
      "OpenAI Chat Completions",
      {
        prompt_tokens: 100,
        completion_tokens: 20,
        total_tokens: 120,
        prompt_tokens_details: { cached_tokens: 60, audio_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 5 },
      },
      counts(100, 20, 60, 0, 5),
    ],
    [
      "OpenAI Responses",
      {
        input_tokens: 100,
        input_tokens_details: { cached_tokens: 60 },
        output_tokens: 20,
        output_tokens_details: { reasoning_tokens: 5 },
        total_tokens: 120,
      },
      counts(100, 20, 60, 0, 5),
    ],
    [
      "Anthropic Messages, whose input leaves out the cached tokens",
      { input_tokens: 30, cache_read_input_tokens: 60, cache_creation_input_tokens: 10, output_tokens: 20 },
      counts(100, 20, 60, 10, 0),
    ],
    [
      "Anthropic Messages without a cache",
      { input_tokens: 100, cache_read_input_tokens: null, cache_creation_input_tokens: null, output_tokens: 20 },
      counts(100, 20, 0, 0, 0),
    ],
    ["only a total", { totalTokens: 120 }, counts(0, 0, 0, 0, 0, 120)],
    ["invalid figures", { inputTokens: 7, outputTokens: Number.NaN, totalTokens: -1 }, counts(7, 0, 0, 0, 0)],
  ])("of %s is counted", async (_title, usage, counted) => {
    const { runtime } = setUp();
    let total: unknown;
    await runAgent(runtime, (_input, context) => {
      context.usage.add(usage);
      total = context.usage.total;
    });
    expect(total).toEqual(counted);
    expect((await runtime.stats()).agents["agent"]).toMatchObject({ reported: 1, ...counted });
  });

  it("that was normalised once stays the same", async () => {
    const { runtime } = setUp();
    await runAgent(runtime, (_input, { usage }) => {
      usage.add({ input_tokens: 30, cache_read_input_tokens: 60, cache_creation_input_tokens: 10, output_tokens: 20 });
      usage.add(usage.total ?? {});
    });
    expect((await runtime.stats()).agents["agent"]).toMatchObject(counts(200, 40, 120, 20, 0));
  });

  unlessReplayed(HAS_TIME)("adds up over calls, and through questions", async () => {
    const { runtime } = setUp();
    const totals: unknown[] = [];
    const run = await runAgent(runtime, async (_input, { usage, ask }) => {
      totals.push(usage.total);
      usage.add({ inputTokens: 1, outputTokens: 2 });
      await ask("?");
      usage.add({ inputTokens: 3, outputTokens: 4 });
      totals.push(usage.total);
    });
    await runtime.resume({ run_id: run.run_id, await_resume: {} });
    expect(totals).toEqual([null, counts(4, 6, 0, 0, 0)]);
    expect((await runtime.stats()).agents["agent"]).toMatchObject({ reported: 1, total_tokens: 10 });
  });

  it("of a run that fails or is cancelled counts too", async () => {
    const { runtime, clock } = setUp();
    runtime.register("agent", async (_input, { usage }) => {
      usage.add({ inputTokens: 1, outputTokens: 0 });
      await never();
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "x", mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.advance(500);
    expect((await runtime.getAgent("agent")).status).toEqual({ avg_run_tokens: 1 });
  });

  it.each([[undefined], [null], [5], ["100"], [{}], [{ tokens: 5 }], [{ inputTokens: "5" }]])(
    "of %j is refused, and says what was expected",
    async (usage) => {
      const { runtime } = setUp();
      const run = await runAgent(runtime, (_input, context) => context.usage.add(usage as object));
      expect(run).toMatchObject({ status: "failed", error: { data: { reason: "invalid_argument" } } });
      expect(run.error?.message).toMatch(/^usage: expected .*, received/);
    },
  );
});

describe("sub-runs", () => {
  it("give the run when it has ended, in a session of their own", async () => {
    const { runtime } = setUp();
    runtime.register("child", recall);
    const parent = await runAgent(runtime, async (_input, { run }) => {
      const child = await run("child", ["a", "b"]);
      return { child: { ...child } };
    });
    const [child] = await runtime.listRuns({ agent_name: "child" });
    expect(child).toMatchObject({ status: "completed", agent_name: "child" });
    expect(child?.session_id).not.toBe(parent.session_id);
    expect((await eventsOf(runtime, parent.run_id))[2]).toMatchObject({ generic: { child } });
  });

  it("that fail are given with their error", async () => {
    const { runtime } = setUp();
    runtime.register("child", () => {
      throw new Error("secret");
    });
    const parent = await runAgent(runtime, async (_input, { run }) => {
      const { status, error } = await run("child", "x");
      return `${status}: ${error?.message}`;
    });
    expect(textsOf(parent)).toEqual(["failed: The agent failed."]);
  });

  it("of an agent that is not registered, or with a bad input, reject", async () => {
    const { runtime } = setUp();
    runtime.register("child", () => "ok");
    const parent = await runAgent(runtime, async (_input, { run }) => {
      const missing = await refusal(run("missing", "x"));
      const bad = await refusal(run("child", 5 as unknown as string));
      return `${missing.code}, ${bad.code}: ${bad.message}`;
    });
    expect(textsOf(parent)[0]).toMatch(/^agent_not_found, invalid_argument: input: expected/);
  });

  it("ask through their parent, and are answered through it or directly", async () => {
    const { runtime } = setUp();
    runtime.register("child", async (_input, { ask }) => {
      const first = await ask("one?");
      const second = await ask("two?");
      return JSON.stringify([first, second]);
    });
    let run = await runAgent(runtime, async (_input, context) => (await context.run("child", "x")).output[0]);
    const [child] = await runtime.listRuns({ agent_name: "child" });
    expect(child?.status).toBe("awaiting");
    expect(textOf(questionOf(run).message)).toBe("one?");
    expect(questionOf(run).await_id).toContain("ask#1");

    const direct = await runtime.resume({ run_id: child?.run_id ?? "", await_resume: { n: 1 } });
    expect(textOf(questionOf(direct).message)).toBe("two?");
    run = await runtime.getRun(run.run_id);
    expect(textOf(questionOf(run).message)).toBe("two?");
    run = await runtime.resume({ run_id: run.run_id, await_resume: { n: 2 } });
    expect(textsOf(run)).toEqual(['[{"n":1},{"n":2}]']);
  });

  it("validate their answers by their own schema", async () => {
    const { runtime } = setUp();
    const { z } = await import("zod");
    runtime.register(
      "child",
      async (_input, { ask }) => `${(await ask("n?", { schema: z.object({ n: z.number() }) })).n}`,
    );
    const run = await runAgent(runtime, async (_input, context) => (await context.run("child", "x")).output[0]);
    const wrong = await refusal(runtime.resume({ run_id: run.run_id, await_resume: { n: "one" } }));
    expect(wrong.code).toBe("answer_rejected");
    expect(textsOf(await runtime.resume({ run_id: run.run_id, await_resume: { n: 1 } }))).toEqual(["1"]);
  });

  it("ask one after the other when there are several, and their parent asks too", async () => {
    const { runtime } = setUp();
    runtime.register("child", async (input, { ask }) => {
      await ask(`${input.map(textOf).join()}?`);
      return "ok";
    });
    let run = await runAgent(runtime, async (_input, context) => {
      const ended = await Promise.all([context.run("child", "a"), context.ask("own?"), context.run("child", "b")]);
      return `${ended.length}`;
    });
    const asked: string[] = [];
    while (run.status === "awaiting") {
      asked.push(textOf(questionOf(run).message));
      run = await runtime.resume({ run_id: run.run_id, await_resume: { ok: true } });
    }
    expect(asked.sort()).toEqual(["a?", "b?", "own?"]);
    expect(textsOf(run)).toEqual(["3"]);
  });

  it.each(stores)(
    "whose question expires with a default withdraw it from their parent, in a store %s",
    async (_title, make) => {
      const { runtime, clock } = make();
      runtime.register("child", async (_input, { ask }) => {
        const answers = Promise.all([ask("one?", { timeoutMs: 100, default: {} }), ask("two?")]);
        await answers;
        return "ok";
      });
      const run = await runAgent(runtime, async (_input, context) => (await context.run("child", "x")).status);
      expect(textOf(questionOf(run).message)).toBe("one?");
      await clock.advance(100);
      const next = await runtime.getRun(run.run_id);
      expect(textOf(questionOf(next).message)).toBe("two?");
      const ended = await runtime.resume({ run_id: run.run_id, await_resume: { ok: true } });
      expect(textsOf(ended)).toEqual(["completed"]);
    },
  );

  it("whose question expires fail, and their parent goes on", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", (_input, { ask }) => ask("?", { timeoutMs: 100 }));
    const run = await runAgent(runtime, async (_input, context) => (await context.run("child", "x")).status);
    await clock.advance(100);
    expect(textsOf(await runtime.getRun(run.run_id))).toEqual(["failed"]);
  });

  it("are cancelled with their parent, however deep", async () => {
    const { runtime, clock } = setUp();
    const cleaned: string[] = [];
    runtime.register("deep", async function* () {
      try {
        yield "a";
        await never();
      } finally {
        cleaned.push("deep");
      }
    });
    runtime.register("middle", async (_input, { ask }) => ask("?"));
    runtime.register("parent", (_input, { run }) => Promise.all([run("middle", "x"), run("between", "x")]));
    runtime.register("between", (_input, { run }) => run("deep", "x"));
    const { run_id } = await runtime.createRun({ agent_name: "parent", input: "x", mode: "async" });
    await clock.settle();
    expect(await runtime.getRun(run_id)).toMatchObject({ status: "awaiting" });
    await runtime.cancel(run_id);
    await clock.advance(2_000);
    expect((await runtime.listRuns()).map(({ agent_name, status }) => `${agent_name} ${status}`).sort()).toEqual([
      "between cancelled",
      "deep cancelled",
      "middle cancelled",
      "parent cancelled",
    ]);
  });

  it("that the agent does not await end with their parent", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", () => never());
    const parent = await runAgent(runtime, (_input, { run }) => {
      void run("child", "x");
      return "ok";
    });
    expect(parent.status).toBe("completed");
    await clock.advance(500);
    expect((await runtime.listRuns({ agent_name: "child" })).map(({ status }) => status)).not.toContain("in-progress");
  });

  it("may be cancelled by themselves: their parent gets the cancelled run", async () => {
    const { runtime, clock } = setUp();
    runtime.register("child", (_input, { ask }) => ask("?"));
    const run = await runAgent(runtime, async (_input, context) => (await context.run("child", "x")).status);
    const [child] = await runtime.listRuns({ agent_name: "child" });
    await runtime.cancel(child?.run_id ?? "");
    await clock.settle();
    const parent = await runtime.getRun(run.run_id);
    expect(parent).toMatchObject({ status: "completed", await_request: null });
    expect(textsOf(parent)).toEqual(["cancelled"]);
  });

  it("add their usage to their parent's, at any depth", async () => {
    const { runtime } = setUp();
    const add = ({ usage }: AgentContext): void => usage.add({ inputTokens: 10, outputTokens: 1 });
    runtime.register("leaf", async (_input, context) => add(context));
    runtime.register("child", async (_input, context) => {
      add(context);
      await context.run("leaf", "x");
    });
    let total: unknown;
    await runAgent(runtime, async (_input, context) => {
      await Promise.all([context.run("child", "x"), context.run("child", "x")]);
      total = context.usage.total;
    });
    expect(total).toMatchObject({ input_tokens: 40, output_tokens: 4, total_tokens: 44 });
    const { agents } = await runtime.stats();
    expect(agents).toMatchObject({
      agent: { total_tokens: 44 },
      child: { total_tokens: 44 },
      leaf: { total_tokens: 22 },
    });
  });

  it("belong to the tenant and the principal of their parent", async () => {
    const { runtime } = setUp();
    runtime.register("child", (_input, { principal }) => `${principal}`);
    runtime.register("parent", async (_input, { run }) => (await run("child", "x")).output[0]);
    const scope = runtime.scope({ tenant: "one", principal: "me" });
    expect(textsOf(await scope.createRun({ agent_name: "parent", input: "x" }))).toEqual(["me"]);
    expect(await scope.listRuns()).toHaveLength(2);
    expect(await runtime.listRuns()).toEqual([]);
  });

  it("can be read like any other run", async () => {
    const { runtime } = setUp();
    runtime.register("child", () => "a");
    await runAgent(runtime, (_input, { run }) => run("child", "x").then(() => undefined));
    const [child] = await runtime.listRuns({ agent_name: "child" });
    expect(await drain(runtime.events(child?.run_id ?? ""))).toHaveLength(6);
  });
});

/** An agent that tells how many messages it has seen, and waits before if it is asked to. A run that waits is evicted. */
function setUpChat() {
  const { runtime, clock, said } = setUp({ store: lastingStore(), durability: { evictAfterMs: 50 } });
  runtime.register("chat", { durable: true }, async (input, { session, ask }) => {
    const before = (await session.history()).length;
    if (input.map(textOf).includes("waits")) await ask("?");
    return `after ${before}`;
  });
  const settled = async (call: Promise<Run>): Promise<Run> => {
    await clock.advance(1_000);
    return call;
  };
  const history = ["x", "y", "z"].map((content) => ({ role: "user", parts: [{ content }] }));
  return {
    runtime,
    said,
    replaced: { session: { history } },
    create: (input: string, options = {}) =>
      settled(runtime.createRun({ agent_name: "chat", input, session_id: SESSION }, options)),
    answer: (run_id: string) => settled(runtime.resume({ run_id, await_resume: reply("yes") })),
  };
}

it("a session that was replaced while a run waits shows that run none of the new messages, and a warning is logged", async () => {
  const { runtime, said, replaced, create, answer } = setUpChat();
  await create("one");
  const { run_id } = await create("waits");
  expect(textsOf(await create("two", replaced))).toEqual(["after 3"]);

  expect(textsOf(await answer(run_id))).toEqual(["after 0"]);
  const line = "The history of a run was deleted, or replaced, with its session. The agent sees none.";
  const fields = { run_id, tenant: "", agent_name: "chat", session_id: SESSION };
  expect(said.filter(({ message }) => message === line)[0]).toEqual({ level: "warn", message: line, fields });
  expect((await runtime.getSession(SESSION)).history.slice(-2).map(textOf)).toEqual(["yes", "after 0"]);
});

it("a session shows the run that has replaced it, and those that join it later, the new messages after an eviction too", async () => {
  const { said, replaced, create, answer } = setUpChat();
  await create("one");
  const first = await create("waits", replaced);
  const second = await create("waits");
  expect(textsOf(await create("two"))).toEqual(["after 3"]);

  expect(textsOf(await answer(first.run_id))).toEqual(["after 3"]);
  expect(textsOf(await answer(second.run_id))).toEqual(["after 3"]);
  expect(said.filter(({ level }) => level === "warn")).toEqual([]);
});

it("a session that was deleted and made again is not in the cassette, nor in a fork, of a run that had joined it before", async () => {
  const { runtime, store } = setUp();
  runtime.register("recall", { durable: true }, recall);
  const create = (input: string) => runtime.createRun({ agent_name: "recall", input, session_id: SESSION });
  await create("a");
  const { run_id } = await create("b");
  const key = { tenant: "", run_id };
  const session = await store.session({ tenant: "", session_id: SESSION });
  expect((await recordRun(store, key))?.history.map(textOf)).toEqual(["a", "() a"]);
  await store.putSession({ tenant: "", session_id: SESSION }, { history: session?.history ?? [], state: null }, 0);

  expect((await recordRun(store, key))?.history).toEqual([]);
  const fork = await runtime.fork(run_id);
  expect(textsOf(await runtime.getRun(fork.run_id))).toEqual(["() b"]);
});
