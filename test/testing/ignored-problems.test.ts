import type { AgentFunction } from "cadenza";
import { everyInterruption } from "cadenza/testing";
import { expect, it } from "vitest";

/* A problem of another library, for example, can be ignored. The report still counts it. */

const leaky: AgentFunction = async function* () {
  const timer = setInterval(() => {}, 60_000);
  yield "one";
  clearInterval(timer);
};

it.each([
  ["a text", ["It left an interval"]],
  ["a pattern", [/left an interval of \d+ ms, set at ignored-problems\.test\.ts/g]],
  ["a text with the interruption", ['cancelled after yield 1 (part "one"): It left']],
])("%s selects what is ignored", async (_name, ignore) => {
  const report = await everyInterruption(leaky, "x", { ignore });
  expect([report.ok, report.problems]).toEqual([true, []]);
  expect(report.results.flatMap(({ ignored }) => ignored)).toEqual([
    expect.stringContaining("It left an interval of 60000 ms"),
  ]);
  expect(String(report)).toBe('3 ways to run "agent", all well (1 problem ignored): 1 × not interrupted, 2 × cancel.');
});

it("a problem that does not match is not ignored", async () => {
  const report = await everyInterruption(leaky, "x", { ignore: ["It left a listener", /^It left/] });
  expect(report.problems).toHaveLength(1);
});

it.each([[""], [7], [null]])("%j is refused as a pattern to ignore", async (bad) => {
  await expect(everyInterruption(leaky, "x", { ignore: [bad as string] })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(/^options\.ignore\[0\]: expected a text that is not empty, or a pattern/),
  });
});

it("the test's own check gets the end of the run", async () => {
  const endings: string[] = [];
  const agent: AgentFunction = async function* () {
    yield "one";
  };
  const report = await everyInterruption(agent, "x", {
    after: ({ status, output }) => {
      endings.push(`${status} ${output.length}`);
      return status === "cancelled" && output.length > 0 ? "It had said something." : undefined;
    },
  });
  expect(endings).toEqual(["completed 1", "cancelled 0", "cancelled 1"]);
  expect(report.problems).toEqual(['cancelled after yield 1 (part "one"): It had said something.']);
});
