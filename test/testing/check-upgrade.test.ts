import { AsyncLocalStorage } from "node:async_hooks";
import { runInThisContext } from "node:vm";
import type { AgentFunction, DurableContext, Interceptor } from "cadenza";
import { AgentRuntime, defineAgent, MemoryStore } from "cadenza";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { checkUpgrade, record } from "cadenza/testing";
import { describe, expect, it } from "vitest";
import * as z from "zod";
import { refusal } from "../harness/runtimes.ts";

/* What `checkUpgrade` finds in the open runs of a store. */

const done = () => "done";
const PATIENCE_MS = 30;

type Code = (input: Parameters<AgentFunction>[0], context: DurableContext) => unknown;

function agentOf(code: Code, version?: string) {
  return defineAgent("order", { durable: true, ...(version !== undefined && { version }) }, code as never);
}

/** A store with a run of the code, which waits for the answer to its first question or has ended. */
async function storeWith(code: Code, version?: string): Promise<{ readonly store: Store; readonly run_id: string }> {
  const store = new MemoryStore();
  const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(code, version));
  const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
  return { store, run_id };
}

const before: Code = async (_input, { step, ask }) => {
  await step("reserve", done);
  await ask("Ship it?", { schema: z.object({ ok: z.boolean() }) });
  return "shipped";
};

const after: Readonly<Record<string, readonly [code: Code, expected?: string, asked?: string]>> = {
  "the same code": [before],
  "code with more behind the question": [
    async (input, context) => {
      await before(input, context);
      await context.step("mail", done);
    },
  ],
  "another body": [
    async (_input, { step, ask }) => {
      await step("reserve", () => "other");
      await ask("Ship?");
    },
  ],
  "a step in front": [
    async (_input, { step, ask }) => {
      await step("weigh", done);
      await step("reserve", done);
      await ask("Ship it?");
    },
    "the result of reserve#1",
    "weigh#1",
  ],
  "a step in front with a patch": [
    async (_input, { step, ask, patched }) => {
      if (patched("weigh")) await step("weigh", done);
      await step("reserve", done);
      await ask("Ship it?");
    },
  ],
  "no question": [async (_input, { step }) => step("reserve", done), "ask#1", "the agent returned"],
  "an error": [
    async (_input, { step }) => {
      await step("reserve", done);
      throw new Error("It broke.");
    },
    "ask#1",
    "the agent threw: It broke.",
  ],
  "an output in front of the question": [
    async function* (_input, { step, ask }) {
      await step("reserve", done);
      yield "Soon. ";
      await ask("Ship it?");
    },
    "ask#1 after 0 emitted values",
    "ask#1 after 1",
  ],
  "a wait that is no operation": [() => new Promise(() => undefined), "the result of reserve#1", "nothing"],
};

describe("a run that waits for an answer", () => {
  it.each(Object.entries(after))("is checked against %s", async (_name, [code, expected, asked]) => {
    const { store, run_id } = await storeWith(before);
    const check = await checkUpgrade({ agents: [agentOf(code)], store, patienceMs: PATIENCE_MS });
    const found = check.blocked.map((one) => [one.run_id, one.expected, one.asked]);
    expect(found).toEqual(expected === undefined ? [] : [[run_id, expected, asked]]);
    expect(check.ok).toBe(expected === undefined);
  });

  it("is told with the line of the code", async () => {
    const { store } = await storeWith(before);
    const code: Code = async (_input, { step, ask }) => {
      await step("weigh", done);
      await ask("Ship it?");
    };
    const check = await checkUpgrade({ agents: [agentOf(code)], store, patienceMs: PATIENCE_MS });
    const [line] = /check-upgrade\.test\.ts:\d+:\d+$/.exec(check.blocked[0]?.at ?? "") ?? [];
    expect(line).toBeDefined();
    expect(check.blocked[0]?.help).toContain('Do weigh#1 only where context.patched("…") is true');
  });
});

describe("the help", () => {
  const found: Code = async (_input, { step, ask, emit }) => {
    await step("find", done);
    await emit("Found");
    await ask("Ship it?");
  };

  it.each<readonly [is: string, code: Code, help: string]>([
    [
      "a rename",
      async (_input, { step }) => step("seek", done),
      'Do seek#1 only where context.patched("…") is true, and keep find#1 where it is false. Or give the new code another version.',
    ],
    [
      "a step in front of an output",
      async (_input, { step, ask, emit }) => {
        await step("find", done);
        await step("weigh", done);
        await emit("Found");
        await ask("Ship it?");
      },
      'Do weigh#1 only where context.patched("…") is true, and keep the text "Found" where it is false. Or give the new code another version.',
    ],
  ])("for %s says what to guard", async (_is, code, help) => {
    const { store } = await storeWith(found);
    const { blocked } = await checkUpgrade({ agents: [agentOf(code)], store, patienceMs: PATIENCE_MS });
    expect(blocked.map((one) => one.help)).toEqual([help]);
  });

  it("that the code follows lets the run go on", async () => {
    const { store, run_id } = await storeWith(found);
    const code: Code = async (_input, { step, ask, emit, patched }) => {
      await (patched("seek") ? step("seek", done) : step("find", done));
      if (patched("weigh")) await step("weigh", done);
      await emit("Found");
      await ask("Ship it?");
      return "Shipped";
    };
    const agent = agentOf(code);
    expect((await checkUpgrade({ agents: [agent], store, patienceMs: PATIENCE_MS })).blocked).toEqual([]);
    const runtime = new AgentRuntime({ store: durable(store) }).register(agent);
    expect((await runtime.resume({ run_id, await_resume: { ok: true } })).status).toBe("completed");
  });
});

describe("a run with two open questions", () => {
  const asks =
    (...texts: readonly string[]): Code =>
    (_input, { ask }) =>
      Promise.all(texts.map((text) => ask(text)));
  const [swapped, swap] = [
    ["ask#2", "ask#2 asking ask#1"],
    ["Refund it?", "Ship it?"],
  ];

  it.each([
    { name: "the same questions", texts: ["Ship it?", "Refund it?"] },
    { name: "another text of one", texts: ["Ship all?", "Refund it?"] },
    { name: "the text of one in both", texts: ["Refund it?", "Refund it?"] },
    { name: "other texts of both", texts: ["Refund it?", "Ship all?"] },
    { name: "questions that have changed places", texts: swap, found: swapped },
    { name: "one more between those that have", texts: ["Refund it?", "Ship it?", "Keep it?"], found: swapped },
  ])("meets code with $name as the check says", async ({ texts, found }) => {
    const { store, run_id } = await storeWith(asks("Ship it?", "Refund it?"));
    const agent = agentOf(asks(...texts));
    const check = await checkUpgrade({ agents: [agent], store, patienceMs: PATIENCE_MS });
    expect(check.blocked.map(({ expected, asked }) => [expected, asked])).toEqual(found === undefined ? [] : [found]);

    const runtime = new AgentRuntime({ store: durable(store) }).register(agent);
    const answering = runtime.resume({ run_id, await_id: "ask#1", await_resume: { ok: true } });
    if (found === undefined) expect((await answering).status).toBe("awaiting");
    else expect(await refusal(answering)).toMatchObject({ code: "run_blocked" });
  });
});

describe("a check", () => {
  it("begins nothing that the history does not hold, and runs no body", async () => {
    const seen: string[] = [];
    const code: Code = async (_input, { step, ask, run, sleep, receive, emit }) => {
      seen.push("code");
      await step("reserve", () => seen.push("a body"));
      const asking = ask("Ship it?");
      await Promise.race([
        asking,
        step("new", () => seen.push("a new body")).then(() => seen.push("behind a step")),
        run("child", "").then(() => seen.push("behind a sub-run")),
        sleep(1).then(() => seen.push("behind a sleep")),
        receive("mail", { timeoutMs: 1, default: null }).then(() => seen.push("behind a receive")),
      ]);
      await emit("behind all");
      seen.push("behind all");
    };
    const { store, run_id } = await storeWith(before);
    const said = JSON.stringify(await store.read({ tenant: "", run_id }, 0, 100));
    const calls: (string | symbol)[] = [];
    const watched = new Proxy(store, {
      get(target, name) {
        const member: unknown = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...parameters: unknown[]): unknown => {
          calls.push(name);
          return Reflect.apply(member, target, parameters);
        };
      },
    });
    const child = defineAgent("child", { durable: true }, async () => seen.push("a sub-run"));
    const check = await checkUpgrade({ agents: [agentOf(code), child], store: watched, patienceMs: PATIENCE_MS });
    await new Promise((resolve) => setImmediate(resolve));
    expect(check.ok).toBe(true);
    expect(seen).toEqual(["code"]);
    expect([...new Set(calls)].toSorted()).toEqual(["read", "survey"]);
    expect(JSON.stringify(await store.read({ tenant: "", run_id }, 0, 100))).toBe(said);
  });

  it("reads the session of a run as the run has seen it", async () => {
    const session_id = "00000000-0000-4000-8000-000000000001";
    const store = new MemoryStore();
    const code: Code = async (_input, { session, step, ask }) => {
      const said = await session.history();
      await step(`after ${said.length}`, done);
      await ask("More?");
    };
    const runtime = new AgentRuntime({ store: durable(store) });
    runtime.register("greet", () => "Hello.");
    runtime.register(agentOf(code));
    await runtime.createRun({ agent_name: "greet", input: "Hi", session_id });
    await runtime.createRun({ agent_name: "order", input: "", session_id });
    await runtime.createRun({ agent_name: "greet", input: "Hi", session_id });
    const check = await checkUpgrade({ agents: [agentOf(code)], store, patienceMs: PATIENCE_MS });
    expect(check.toString()).toContain("1 open run, 1 of them looked at: 0 would be blocked.");
  });

  it("says what it has not looked at, and why", async () => {
    const { store } = await storeWith(before, "1");
    const runtime = new AgentRuntime({ store });
    runtime.register("plain", async (_input, { ask }) => ask("Yes?"));
    await runtime.createRun({ agent_name: "plain", input: "" });
    const check = await checkUpgrade({ agents: [agentOf(before, "2")], store, patienceMs: PATIENCE_MS });
    expect(check.toString()).toBe(
      [
        "2 open runs, 0 of them looked at: 0 would be blocked.",
        '  "order", version "1": 1 run, no code',
        '  "plain": 1 run, no code',
        "",
        "Not looked at:",
        "  1 run: it is not durable, and ends with its process",
        '  1 run: there is no code of "order", version "1"',
      ].join("\n"),
    );
    expect(check.ok).toBe(true);
  });

  it("names one of the runs that are blocked alike, with the position that the data has", async () => {
    const store = new MemoryStore();
    for (const version of ["1", "1", "1", "2"]) {
      const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(before, version));
      await runtime.createRun({ agent_name: "order", input: "" });
    }
    const code: Code = async (_input, { step }) => step("weigh", done);
    const agents = ["1", "2"].map((version) => agentOf(code, version));
    const check = await checkUpgrade({ agents, store, patienceMs: PATIENCE_MS });
    expect(check.blocked.map(({ position }) => position)).toEqual([2, 2, 2, 2]);
    const first = (of: string) => check.blocked.find(({ version }) => version === of)?.run_id;
    expect(check.toString().match(/✗ .*/g)?.toSorted()).toEqual(
      [
        `✗ 3 runs, for example ${first("1")} ("order", version "1"), position 2`,
        `✗ ${first("2")} ("order", version "2"), position 2`,
      ].toSorted(),
    );
  });

  it("takes runs that never began, and those that are being cancelled, whatever their code does", async () => {
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(before));
    const startAt = new Date(Date.now() + 1e7);
    await runtime.createRun({ agent_name: "order", input: "", mode: "async" }, { startAt });
    const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
    await store.post(
      { tenant: "", run_id },
      {
        entries: [{ type: "cancel-requested", at: Date.now() }],
        status: "cancelling",
      },
    );
    const check = await checkUpgrade({ agents: [agentOf(() => "other")], store, patienceMs: PATIENCE_MS });
    expect(check.versions).toEqual([
      { agent_name: "order", version: null, runs: 2, goOn: 2, blocked: 0, hasCode: true },
    ]);
  });

  it("has agents of a runtime, and steps with limits that no runtime here declares", async () => {
    const code: Code = async (_input, { step, ask }) => {
      await step("reserve", done, { limit: "openai" });
      await ask("Ship it?");
    };
    const store = new MemoryStore();
    const stepLimits = { openai: { max: 2 } };
    const runtime = new AgentRuntime({ store: durable(store), stepLimits }).register(agentOf(code));
    await runtime.createRun({ agent_name: "order", input: "" });
    const agents = new AgentRuntime().register(agentOf(code));
    expect((await checkUpgrade({ agents, store, patienceMs: PATIENCE_MS })).ok).toBe(true);
  });

  it("takes cassettes, also of runs that have ended", async () => {
    const store = new MemoryStore();
    const code: Code = async (_input, { step }) => step("reserve", done);
    const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(code));
    const cassette = await record(store, await runtime.createRun({ agent_name: "order", input: "" }));
    const cassettes = [JSON.parse(JSON.stringify(cassette)) as typeof cassette];
    expect((await checkUpgrade({ agents: [agentOf(code)], cassettes })).ok).toBe(true);
    const check = await checkUpgrade({ agents: [agentOf(() => "")], cassettes, patienceMs: PATIENCE_MS });
    expect(check.blocked.map(({ asked }) => asked)).toEqual(["the agent returned"]);
    expect(() => check.assert()).toThrow("1 open run, 1 of them looked at: 1 would be blocked.");
  });

  it("calls agents within what the interceptors of the runtime set up", async () => {
    const words = new AsyncLocalStorage<string>();
    const calls: boolean[] = [];
    const run: Interceptor["run"] = ({ isFirst }, next) => {
      calls.push(isFirst);
      return words.run("there", next);
    };
    const code: Code = async (input, context) => {
      if (words.getStore() !== "there") throw new Error("There is no context.");
      return before(input, context);
    };
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store: durable(store), interceptors: [{ run }] }).register(agentOf(code));
    await runtime.createRun({ agent_name: "order", input: "" });
    const step = () => Promise.reject(new Error("No step is executed."));
    const next = new AgentRuntime({ interceptors: [{ run, step }] });
    const same = await checkUpgrade({ agents: next.register(agentOf(code)), store });
    expect(same.toString()).toContain("1 of them looked at: 0 would be blocked.");
    expect(calls).toEqual([true, false]);
    const other = new AgentRuntime({ interceptors: [{ run }] }).register(agentOf(async () => "at once"));
    expect((await checkUpgrade({ agents: other, store })).blocked).toMatchObject([{ asked: "the agent returned" }]);
  });

  it.each([
    [
      "throws",
      () => {
        throw new Error("No span.");
      },
      ": No span.",
    ],
    ["rejects", () => Promise.reject(new Error("No span.")), ": No span."],
    ["resolves", () => Promise.resolve(), ""],
  ])("blocks a run where an interceptor %s and has not called its agent", async (_how, run, why) => {
    const { store } = await storeWith(before);
    const agents = new AgentRuntime({ interceptors: [{ run }] }).register(agentOf(before));
    const { blocked } = await checkUpgrade({ agents, store });
    const asked = `the agent threw: an interceptor has not called it${why}`;
    expect(blocked).toEqual([expect.objectContaining({ asked, at: null })]);
  });

  it.each(["/home/ada/native-shop/agents.js", "/home/ada/shop (copy)/agents.js", "/home/ada/<anonymous>/agents.js"])(
    "tells the line of code in %s",
    async (filename) => {
      const { store } = await storeWith(before);
      const code = runInThisContext('async (_input, { step }) => {\n  await step("weigh", () => 1);\n}', { filename });
      const { blocked } = await checkUpgrade({ agents: [agentOf(code)], store, patienceMs: PATIENCE_MS });
      expect(blocked[0]?.at).toBe(`${filename}:2:9`);
    },
  );

  it("lets many runs wait for their code side by side", async () => {
    const store = new MemoryStore();
    const runtime = new AgentRuntime({ store: durable(store) }).register(agentOf(before));
    for (let run = 0; run < 60; run++) await runtime.createRun({ agent_name: "order", input: "" });
    const code: Code = () => new Promise(() => undefined);
    const begun = new Set<string>();
    let most = 0;
    const check = await checkUpgrade({
      agents: [agentOf(code)],
      store,
      patienceMs: 500,
      atOnce: 4,
      onRun: ({ run_id }, is) => {
        if (is === "begun") begun.add(run_id);
        else begun.delete(run_id);
        most = Math.max(most, begun.size);
      },
    });
    expect(check.blocked).toHaveLength(60);
    expect(most).toBeGreaterThan(20);
  });

  it.each([
    [{}, "options.agents: expected a list of agents, or a runtime"],
    [{ agents: [] }, "options.store: expected a store"],
    [{ agents: [], store: {} }, "options.store: expected a store"],
    [{ agents: [], cassettes: {} }, "options.cassettes: expected a list of cassettes"],
    [{ agents: [], cassettes: [{ entries: [] }] }, "options.cassettes: expected results of record"],
    [{ agents: [], cassettes: [], patience: 1 }, "patience"],
  ])("refuses %j", async (options, message) => {
    const error = await refusal(checkUpgrade(options as never));
    expect(error.code).toBe("invalid_argument");
    expect(error.message).toContain(message);
  });
});
