import { AsyncLocalStorage } from "node:async_hooks";
import type { Interceptor } from "cadenza";
import { AgentError, AgentRuntime, defineAgent, textOf } from "cadenza";
import { describe, expect, it, onTestFinished } from "vitest";
import { replays } from "../../harness/always-replay.ts";
import { deferred } from "../../harness/promises.ts";
import { reply, setUp } from "../../harness/runtimes.ts";

/** An interceptor that writes down what begins and ends. */
function note(lines: string[], name = ""): Interceptor {
  const around =
    <Value>(what: string, next: () => Promise<Value>) =>
    async (): Promise<Value> => {
      lines.push(`${name}${what} begins`);
      const value = await next().catch((error: Error) => {
        lines.push(`${name}${what} throws ${error.message}`);
        throw error;
      });
      lines.push(`${name}${what}: ${value}`);
      return value;
    };
  return {
    run: ({ agent_name }, next) => around(`run ${agent_name}`, next)(),
    step: ({ key, attempt }, next) => around(`step ${key} ${attempt}`, next)(),
    ask: ({ await_id }, next) => around(`ask ${await_id}`, next)(),
  };
}

const forms = {
  "an async generator": async function* () {
    yield "a";
    yield "b";
  },
  "a generator": function* () {
    yield "a";
    yield "b";
  },
  "an async function": async () => ["a", "b"],
  "a function": () => ["a", "b"],
};

describe("an interceptor of runs", () => {
  it.each(Object.entries(forms))("is around %s, and its output is unchanged", async (_, fn) => {
    const lines: string[] = [];
    const { runtime } = setUp({ interceptors: [note(lines, "outer "), note(lines, "inner ")] });
    runtime.register("agent", fn as () => string[]);
    expect(textOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toBe("ab");
    if (replays) return;
    expect(lines).toEqual([
      "outer run agent begins",
      "inner run agent begins",
      "inner run agent: ended",
      "outer run agent: ended",
    ]);
  });

  it("decides by what it throws, and by what it catches", async () => {
    const { runtime } = setUp({
      interceptors: [
        {
          run: async ({ agent_name }, next) => {
            if (agent_name === "never") throw new AgentError("not_today", "Not today.");
            await next().catch((error: Error) => {
              if (agent_name === "mapped") throw new AgentError("mapped", error.message.toUpperCase());
            });
          },
        },
      ],
    });
    let called = 0;
    runtime.register("never", () => {
      called += 1;
      return "";
    });
    runtime.register("mapped", async () => {
      throw new Error("secret");
    });
    runtime.register("forgiven", async function* () {
      yield "so far";
      throw new Error("secret");
    });
    const runs = await Promise.all(
      ["never", "mapped", "forgiven"].map((agent_name) => runtime.createRun({ agent_name, input: "" })),
    );
    expect(runs.map(({ status, error }) => [status, error?.message ?? null])).toEqual([
      ["failed", "Not today."],
      ["failed", "SECRET"],
      ["completed", null],
    ]);
    expect(called).toBe(0);
  });

  it("keeps its async context in the agent, also after an answer, in steps, and for sub-runs", async () => {
    const storage = new AsyncLocalStorage<string>();
    onTestFinished(() => storage.disable());
    const { runtime } = setUp({
      interceptors: [{ run: ({ agent_name, run_id }, next) => storage.run(`${agent_name} ${run_id.length}`, next) }],
    });
    runtime.register("child", async (_input, { ask }) => {
      await ask("?");
      return `${storage.getStore()}`;
    });
    runtime.register("agent", async function* (_input, { step, run }) {
      yield `${storage.getStore()};`;
      yield { type: "message", message: "Well?" };
      yield `${storage.getStore()};`;
      // The first step after an agent was loaded again is begun by what has loaded it.
      yield replays ? "agent 36;" : await step("load", () => `${storage.getStore()};`);
      yield `${textOf(await run("child", ""))};`;
      yield `${storage.getStore()}`;
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    await storage.run("the caller", () => runtime.resume({ run_id, await_resume: reply("yes") }));
    const run = await storage.run("the caller", () => runtime.resume({ run_id, await_resume: reply("yes") }));
    expect(run.status).toBe("completed");
    expect(run.output.map(textOf).join("")).toBe("agent 36;agent 36;agent 36;child 36;agent 36");
  });

  it("runs `finally` blocks of a cancelled agent, and is told of an agent that does not stop", async () => {
    const lines: string[] = [];
    const { runtime, clock } = setUp({ interceptors: [note(lines)] });
    runtime.register("tidy", async function* (_input, { ask }) {
      try {
        yield "x";
        await ask("?");
      } finally {
        yield "cleaned";
      }
    });
    runtime.register("stubborn", async () => new Promise(() => undefined));
    const tidy = await runtime.createRun({ agent_name: "tidy", input: "" });
    await runtime.cancel(tidy.run_id);
    const stubborn = await runtime.createRun({ agent_name: "stubborn", input: "", mode: "async" });
    await clock.settle();
    await runtime.cancel(stubborn.run_id);
    await clock.advance(1_000);
    expect(textOf(await runtime.getRun(tidy.run_id))).toContain("cleaned");
    expect(await runtime.getRun(stubborn.run_id)).toMatchObject({ status: "cancelled" });
    expect(lines).toContain("run stubborn: left");
  });

  it("gets facts about the run", async () => {
    const infos: unknown[] = [];
    const { runtime } = setUp({
      interceptors: [
        {
          run: async ({ signal, ...info }, next) => {
            infos.push({ ...info, aborted: signal.aborted });
            await next();
          },
        },
      ],
    });
    runtime.register("child", { version: "2" }, () => "");
    runtime.register("agent", async (_input, { run }) => run("child", "").then(textOf));
    const scope = runtime.scope({ tenant: "t", principal: { id: 1 } });
    const { run_id, session_id } = await scope.createRun({ agent_name: "agent", input: "" }, { metadata: "m" });
    const durable = replays;
    expect(infos[0]).toEqual({
      ...{ tenant: "t", run_id, agent_name: "agent", version: null, durable, session_id, parent_run_id: null },
      ...{ principal: { id: 1 }, metadata: "m", isFirst: true, aborted: false, carrier: {} },
      input: [expect.objectContaining({ role: "user" })],
    });
    expect(infos).toContainEqual(
      expect.objectContaining({ agent_name: "child", version: "2", parent_run_id: run_id, isFirst: true }),
    );
  });
});

describe("an interceptor of new runs", () => {
  it("gives texts that the run carries to each call of its agent, in the context of its creator", async () => {
    const users = new AsyncLocalStorage<string>();
    onTestFinished(() => users.disable());
    const carried: unknown[] = [];
    const { runtime } = setUp({
      interceptors: [
        { create: ({ agent_name }) => ({ agent_name, user: users.getStore() ?? "none" }) },
        { create: ({ parent_run_id }) => (parent_run_id === null ? undefined : { user: "a parent" }) },
        {
          run: async ({ carrier }, next) => {
            carried.push(carrier);
            await next();
          },
        },
      ],
    });
    runtime.register("child", () => "");
    runtime.register("agent", async (_input, { run }) => run("child", "").then(textOf));
    await users.run("Ada", () => runtime.createRun({ agent_name: "agent", input: "" }));
    expect(carried).toContainEqual({ agent_name: "agent", user: "Ada" });
    expect(carried).toContainEqual({ agent_name: "child", user: "a parent" });
  });

  it.each([
    { does: "throws", create: () => JSON.parse("?") },
    { does: "gives no texts", create: () => ({ count: 1 }) as never },
    { does: "rejects", create: () => Promise.reject(new Error("The tracer is away.")) as never },
    { does: "resolves later", create: () => Promise.resolve({ trace: "1" }) as never },
  ])("that $does does no harm, and the logger is told", async ({ create }) => {
    const { runtime, said } = setUp({ interceptors: [{ create }] });
    runtime.register("agent", () => "fine");
    expect(textOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toBe("fine");
    expect(said).toMatchObject([{ level: "warn", message: "An interceptor of new runs failed." }]);
  });
});

describe("an interceptor of steps", () => {
  it("is around each attempt, and gives what is recorded", async () => {
    const lines: string[] = [];
    const { runtime } = setUp({
      interceptors: [
        { step: async ({ name }, next) => (name === "n" ? ((await next()) as number) * 2 : next()) },
        { step: note(lines).step },
      ],
    });
    let tries = 0;
    runtime.register("agent", async (_input, { step }) => {
      const n = await step("n", () => 21);
      const text = await step("shaky", () => (++tries < 3 ? Promise.reject(new Error("no")) : "ok"), {
        retry: { attempts: 3 },
      });
      return `${n} ${text}`;
    });
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(textOf(run)).toBe("42 ok");
    expect(lines).toEqual([
      ...["step n#1 1 begins", "step n#1 1: 21"],
      ...["step shaky#1 1 begins", "step shaky#1 1 throws no"],
      ...["step shaky#1 2 begins", "step shaky#1 2 throws no"],
      ...["step shaky#1 3 begins", "step shaky#1 3: ok"],
    ]);
  });

  it("makes an attempt fail by what it throws, and may keep the body from being called", async () => {
    const { runtime } = setUp({ interceptors: [{ step: async () => Promise.reject(new Error("closed")) }] });
    let called = 0;
    runtime.register("agent", async (_input, { step }) => {
      try {
        return await step("load", () => `${++called}`);
      } catch (error) {
        return (error as Error).message;
      }
    });
    expect(textOf(await runtime.createRun({ agent_name: "agent", input: "" }))).toBe("closed");
    expect(called).toBe(0);
  });
});

describe("an interceptor of questions", () => {
  it("is told what becomes of each question", async () => {
    const lines: string[] = [];
    const { runtime, clock } = setUp({ interceptors: [{ ask: note(lines).ask }] });
    runtime.register("agent", async function* (_input, { ask }) {
      const controller = new AbortController();
      const withdrawn = ask("?", { signal: controller.signal }).catch(() => undefined);
      await ask("?", { name: "approval", kind: "approval" });
      controller.abort();
      await withdrawn;
      await ask("?").catch(() => undefined);
      await ask("?", { timeoutMs: 5, default: {} });
      yield { type: "message", message: "?" };
      await ask("?");
    });
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    await runtime.resume({ run_id, await_id: "ask#2", await_resume: {} });
    await clock.settle();
    await runtime.resume({ run_id, await_id: "ask#3", decline: {} });
    await clock.advance(10);
    await runtime.resume({ run_id, await_id: "await#1", await_resume: {} });
    await runtime.cancel(run_id);
    await clock.advance(1_000);
    const ended = ["ask ask#1: withdrawn", "ask ask#2: answered", "ask ask#3: declined", "ask ask#4: expired"];
    for (const line of [...ended, "ask await#1: answered", "ask ask#5: withdrawn"])
      expect(lines.filter((one) => one === line)).toEqual([line]);
  });

  it("does not delay the agent, and its errors go to the logger", async () => {
    const never = deferred();
    const { runtime, said } = setUp({
      interceptors: [
        { ask: () => never.promise as Promise<never> },
        { ask: async () => Promise.reject(new Error("no")) },
      ],
    });
    const { runtime: failing, said: logged } = setUp({
      interceptors: [{ ask: async () => Promise.reject(new Error("no")) }],
    });
    for (const each of [runtime, failing]) {
      each.register("agent", async (_input, { ask }) => JSON.stringify(await ask("?")));
      const { run_id } = await each.createRun({ agent_name: "agent", input: "" });
      expect(textOf(await each.resume({ run_id, await_resume: { n: 1 } }))).toBe('{"n":1}');
    }
    expect(said.filter(({ level }) => level === "warn")).toEqual([]);
    expect(logged.filter(({ level }) => level === "warn").map(({ message }) => message)).toContain(
      "An interceptor of questions failed.",
    );
  });
});

it("invalid interceptors are refused", () => {
  for (const interceptors of [{}, ["x"], [{ run: 5 }], [{ tool: () => undefined }]])
    expect(() => new AgentRuntime({ interceptors: interceptors as never })).toThrow(/options\.interceptors/);
  expect(defineAgent("a", () => "").name).toBe("a");
});
