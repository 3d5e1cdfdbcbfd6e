import type { AgentFunction } from "cadenza";
import { everyCrash, everyInterruption } from "cadenza/testing";
import { expect, it } from "vitest";
import { refusal } from "../harness/runtimes.ts";

/* What a failing report says about how to execute one of its ways alone, and that this works. */

const tools = { everyCrash, everyInterruption };

/** The options that the last line of a report names. */
function optionsIn(report: string): { readonly only: string; readonly seed?: number } {
  const [, only = "", seed] =
    /^To run the first one alone, add to the options: only: (".*?")(?:, seed: (\d+))?$/m.exec(report) ?? [];
  return { only: JSON.parse(only) as string, ...(seed !== undefined && { seed: Number(seed) }) };
}

const charging: AgentFunction = async (_input, { step }) => {
  await step("plan", () => "Brussels");
  await step("charge", () => charges.push("30 €"));
};
let charges: string[] = [];
const world = {
  before: () => {
    charges = [];
  },
  world: () => charges,
};

it("the report of everyCrash ends with the option that executes its first failing way alone", async () => {
  const report = await everyCrash(charging, "x", world);
  const { only, seed } = optionsIn(String(report));
  expect(only).toBe("crashed in step charge#1, when its work was done and its result was not stored");
  expect([seed, report.seed]).toEqual([undefined, undefined]);
  const alone = await everyCrash(charging, "x", { ...world, only });
  expect(alone.results.map(({ where }) => where)).toEqual(["left alone", only]);
  expect(alone.problems).toEqual(report.problems);
});

it("the report of everyInterruption ends with the option that executes its first failing way alone", async () => {
  const leaky: AgentFunction = async function* () {
    const timer = setInterval(() => undefined, 60_000);
    yield "one";
    yield "two";
    clearInterval(timer);
  };
  const report = await everyInterruption(leaky, "x");
  expect(report.problems).toHaveLength(2);
  const { only } = optionsIn(String(report));
  expect(only).toBe('cancelled after yield 1 (part "one")');
  const alone = await everyInterruption(leaky, "x", { only });
  expect(alone.results.map(({ where }) => where)).toEqual(["not interrupted", only]);
  expect(alone.problems).toEqual(report.problems.slice(0, 1));
});

it("a failing report of an agent that draws random numbers names a seed, with which it draws the same ones", async () => {
  const drawn: number[] = [];
  const chancy: AgentFunction = async (_input, { step }) => {
    const number = Math.random();
    drawn.push(number);
    await step(number < 0.5 ? "left" : "right", () => 1);
  };
  const report = await everyCrash(chancy, "x");
  expect(report.ok).toBe(false);
  const { only, seed } = optionsIn(String(report));
  expect(seed).toBe(report.seed);
  const [first] = drawn.splice(0);
  const alone = await everyCrash(chancy, "x", { only, ...(seed !== undefined && { seed }) });
  expect(drawn[0]).toBe(first);
  expect(alone.problems).toEqual(report.problems.slice(0, 1));
});

it.each(Object.entries(tools))(
  "%s gives an agent the same random numbers in each way, by its seed",
  async (_name, every) => {
    const drawn = new Set<number>();
    const agent: AgentFunction = async function* () {
      drawn.add(Math.random());
      yield "one";
    };
    const options = { seed: 7, only: /^(?:not interrupted|left alone|cancelled.*|crashed before it began)$/ };
    const report = await every(agent, "x", options);
    expect([report.ok, report.seed, report.results.length > 1]).toEqual([true, 7, true]);
    await every(agent, "x", options);
    expect(drawn.size).toBe(1);
  },
);

it.each(Object.entries(tools))("%s executes the ways whose words match a pattern", async (_name, every) => {
  const agent: AgentFunction = (_input, { step }) => step("one", () => 1);
  const all = await every(agent, "x");
  const some = await every(agent, "x", { only: /step one/ });
  const words = all.results.map(({ where }) => where).filter((where) => /step one/.test(where));
  expect(words.length).toBeGreaterThan(0);
  expect(some.results.slice(1).map(({ where }) => where)).toEqual(words);
});

it.each([
  ["everyCrash", everyCrash, "left alone"],
  ["everyInterruption", everyInterruption, "not interrupted"],
] as const)("%s executes an agent once if it is to be undisturbed", async (_name, every, only) => {
  const report = await every(() => "done", "x", { only });
  expect(report.results.map(({ where }) => where)).toEqual([only]);
});

it.each(Object.entries(tools))(
  "%s refuses words that name no way, since it would try nothing",
  async (_name, every) => {
    for (const only of ["crashed before step other#1", /never/]) {
      const refused = await refusal(every(() => "done", "x", { only }));
      expect([refused.code, refused.message]).toEqual(["invalid_argument", expect.stringContaining("options.only")]);
    }
    for (const options of [{ only: 1 as unknown as string }, { seed: 0.5 }, { seed: "7" as unknown as number }])
      expect((await refusal(every(() => "done", "x", options))).code).toBe("invalid_argument");
  },
);
