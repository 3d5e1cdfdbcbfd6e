import { setTimeout as pause } from "node:timers/promises";
import type { AgentFunction } from "cadenza";
import { AgentError, defineAgent } from "cadenza";
import type { InterruptionOptions } from "cadenza/testing";
import { decline, everyCrash, everyInterruption, everyUpgrade } from "cadenza/testing";
import { describe, expect, it } from "vitest";

/* A test of an agent that fails at once, or never comes to its questions, tries nothing. Its report says so. */

const tools = {
  everyInterruption,
  everyCrash,
  everyUpgrade: (agent: AgentFunction, input: string, options: InterruptionOptions) =>
    everyUpgrade(agent, agent, { input, ...options }),
};

const failing: AgentFunction = async (_input, { ask }) => {
  JSON.parse("{");
  await ask("Go?");
};
const asking: AgentFunction = (_input, { ask }) => ask("Go?");
const dear: AgentFunction = async (_input, { step }) => step("pay", () => "paid");

const found: Readonly<
  Record<string, readonly [agent: AgentFunction, options: InterruptionOptions, ...said: readonly string[]]>
> = {
  "fails, and never asks": [
    failing,
    { answers: [{ ok: true }] },
    "It failed, and nothing made it fail. Where it is to fail, throw an AgentError. It threw: Expected property",
    "It asks 0 questions, and there is 1 answer. Remove the rest of { answers: [ … ] }, or look why it asks no more.",
  ],
  "asks less than there are answers": [asking, { answers: [1, 2] }, "It asks 1 question, and there are 2 answers."],
  "receives less than there are messages": [
    async (_input, { receive }) => {
      await receive("go");
    },
    {
      messages: [
        { name: "go", data: 1 },
        { name: "go", data: 2 },
        { name: "stop", data: null },
      ],
    },
    'It does not receive "go", "stop" of { messages: [ … ] }. Remove what is left of them, or look why it waits no more.',
  ],
  "emits what has no meaning": [
    async (_input, { emit }) => emit(7 as never),
    {},
    "It failed, and nothing made it fail.",
  ],
};

const well: Readonly<Record<string, readonly [agent: AgentFunction, options: InterruptionOptions]>> = {
  "throws an AgentError": [() => Promise.reject(new AgentError("not_found", "No.")), {}],
  "emits an AgentError": [() => new AgentError("not_found", "No."), {}],
  "does not catch a declined answer": [asking, { answers: [decline("No.")] }],
  "fails by its limit of time": [async (_input, { sleep }) => sleep(1_000), { timeoutMs: 1 }],
  "does not catch the error that stands for a step": [dear, { steps: { pay: new Error("No money.") } }],
  "receives all messages, in another order": [
    async (_input, { receive }) => {
      await receive("second");
      await receive("first");
    },
    {
      messages: [
        { name: "first", data: 1 },
        { name: "second", data: 2 },
      ],
    },
  ],
  "receives less than a function has messages": [dear, { messages: () => 1 }],
  "asks less than a function has answers": [dear, { answers: () => "yes" }],
};

describe.each(Object.entries(tools))("%s", (_name, tool) => {
  it.each(Object.entries(found))("reports an agent that %s", async (_is, [agent, options, ...said]) => {
    const { results } = await tool(agent, "x", options);
    expect(results[0]?.problems).toEqual(said.map((one) => expect.stringContaining(one)));
  });

  it.each(Object.entries(well))("reports nothing of an agent that %s", async (_is, [agent, options]) => {
    expect((await tool(agent, "x", options)).problems).toEqual([]);
  });

  it("looks at answers and messages only where all ways are tried", async () => {
    const only = /^(not interrupted|left alone)$/;
    const messages = [{ name: "go", data: 1 }];
    expect((await tool(asking, "x", { answers: [1, 2], messages, only })).problems).toEqual([]);
  });

  it("can be told to ignore a failure", async () => {
    const ignore = [/It failed, .*Expected property/];
    expect((await tool(failing, "x", { ignore })).problems).toEqual([]);
  });
});

it.each<[what: string, agent: AgentFunction]>([
  ["a step", (_input, { step }) => step("load", () => JSON.parse("{") as string)],
  [
    "a model that has no answers left",
    (_input, { step }) => step("model", () => Promise.reject(new Error("No more."))),
  ],
])(
  "an agent that always fails in %s is a problem of each tool, unless an error stands for it",
  async (_what, agent) => {
    const said = [expect.stringContaining("It failed, and nothing made it fail.")];
    for (const run of Object.values(tools)) expect((await run(agent, "x", {})).problems.slice(0, 1)).toEqual(said);
    const steps = { load: new Error("Down."), model: new Error("Down.") };
    for (const run of Object.values(tools)) expect((await run(agent, "x", { steps })).problems).toEqual([]);
  },
);

it("an agent that calls one that always fails is a problem of a crash, unless an error stands for that", async () => {
  const agent: AgentFunction = async (_input, { call }) => void (await call(defineAgent("sub", failing), "x"));
  const said = [expect.stringContaining("It failed, and nothing made it fail.")];
  expect((await everyCrash(agent, "x", { agents: { sub: failing } })).problems).toEqual(said);
  expect((await everyCrash(agent, "x", { agents: { sub: new Error("Down.") } })).problems).toEqual([]);
});

it("the body of a step may take its time, and the clock stands still meanwhile", async () => {
  let charged = 0;
  const agent = defineAgent("slow", { timeoutMs: 4_000 }, (_input, { step }) =>
    step("charge", async () => {
      // As long as a real request may take: no clock of the test moves it.
      await pause(400);
      charged += 1;
    }),
  );
  const before = (): void => {
    charged = 0;
  };
  const report = await everyCrash(agent, "x", { before, world: () => charged });
  expect(report.results[0]?.status).toBe("completed");
  expect(report.problems.length).toBeGreaterThan(0);
});

describe("everyUpgrade", () => {
  it("takes answers for which only the new code asks", async () => {
    const after: AgentFunction = async (_input, { ask, patched }) => {
      await ask("Go?");
      if (patched("sure")) await ask("Sure?");
    };
    expect((await everyUpgrade(asking, after, { answers: ["yes", "yes"] })).problems).toEqual([]);
  });

  it("reports new code that fails", async () => {
    const after: AgentFunction = async (_input, { ask }) => JSON.parse(`{${await ask("Go?")}`);
    const { problems } = await everyUpgrade(asking, after, { answers: ["yes"] });
    expect(problems[0]).toMatch(/^upgraded after 1 entries, created: It failed, and nothing made it fail\./);
  });
});
