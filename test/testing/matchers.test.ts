import type { AgentFunction } from "cadenza";
import { AgentError } from "cadenza";
import type { CadenzaMatchers } from "cadenza/testing";
import { drive, everyInterruption, matchers } from "cadenza/testing";
import { beforeAll, expect, it } from "vitest";

declare module "vitest" {
  interface Matchers<T> extends CadenzaMatchers<T> {}
}

beforeAll(() => {
  expect.extend(matchers);
});

const shy: AgentFunction = async function* (_input, { ask }) {
  yield "Hello there. ";
  await ask("Your name?");
  throw new AgentError("invalid_input", "That is no name.", { reason: "empty" });
};

it("runs and drives have the same matchers", async () => {
  const t = drive(shy, "x");
  const run = await t.finish();
  expect(run).toBeAwaiting();
  expect(t).toBeAwaiting("name");
  expect(t).toBeAwaiting(/^Your name\?$/);
  expect(t).not.toBeAwaiting("Your age?");
  expect(t).toHaveSaid("Hello");
  expect(t).toHaveSaid(/there\. $/g);
  expect(t).not.toHaveSaid("Goodbye");
  expect(t).not.toHaveCompleted();
  await t.answer("");
  expect(await t.finish()).toHaveFailed();
  expect(t).toHaveFailed("That is no name");
  expect(t).toHaveFailed("invalid_input");
  expect(t).toHaveFailed(/^empty$/);
  expect(t).not.toHaveFailed("not_found");
  expect(await drive(() => "x", "x").finish()).toHaveCompleted();
  expect(await drive(shy, "x").cancel()).toHaveBeenCancelled();
});

it("a failure gives the run's state in full", async () => {
  const t = drive(shy, "x");
  await t.finish();
  const said = (judge: () => void): string => {
    try {
      judge();
    } catch (error) {
      return String((error as Error).message);
    }
    return "";
  };
  expect(said(() => expect(t).toHaveCompleted())).toBe(
    "expected the run to be completed\n\nIt is awaiting.\nquestion: Your name?\nsaid: Hello there. ",
  );
  expect(said(() => expect(t).not.toBeAwaiting("name"))).toContain("not to be awaiting the answer to name");
  expect(said(() => expect(t).toHaveSaid("Bye"))).toBe(
    "expected the agent to have said Bye\n\nIt has said:\nHello there. ",
  );
  expect(said(() => expect(t).not.toHaveSaid("Hello"))).toContain("expected the agent not to have said Hello");
  await t.answer("");
  await t.finish();
  expect(said(() => expect(t).toBeAwaiting())).toContain(
    'failed.\ninvalid_input: That is no name.\ndata: {"reason":"empty"}',
  );
  expect(said(() => expect(5).toHaveCompleted())).toContain("expected a run or a drive, received 5");
  expect(said(() => expect(t).toSurviveInterruptions())).toContain(
    "expected the report of everyInterruption or everyCrash, received a Drive",
  );
});

it("toSurviveInterruptions is about the reports of everyInterruption and everyCrash", async () => {
  const good = await everyInterruption(() => "x", "x");
  expect(good).toSurviveInterruptions();
  expect(String(good)).toBe(
    '4 ways to run "agent", all well: 1 × not interrupted, 3 × cancel.'
      .replace("4 ways", `${good.results.length} ways`)
      .replace("3 ×", `${good.results.length - 1} ×`),
  );
  expect(() => good.assert()).not.toThrow();
  const leaky = async function* () {
    const timer = setInterval(() => {}, 1_000);
    yield "one";
    clearInterval(timer);
  };
  const bad = await everyInterruption(leaky, "x");
  expect(() => expect(bad).toSurviveInterruptions()).toThrow(
    /✗ cancelled after yield 1 \(part "one"\)\n {6}It left an interval/,
  );
  expect(bad.results.find(({ problems }) => problems.length > 0)).toMatchObject({
    kind: "cancel",
    yieldIndex: 1,
    status: "cancelled",
  });
});

it("the check after an interruption runs after the run's end", async () => {
  let open = 0;
  const agent: AgentFunction = async function* () {
    open += 1;
    yield "one";
    yield "two";
    open -= 1;
  };
  const report = await everyInterruption(agent, "x", {
    before: () => {
      open = 0;
    },
    after: () => (open === 0 ? undefined : `${open} connection is open.`),
  });
  expect(report.problems).toContain('cancelled after yield 1 (part "one"): 1 connection is open.');
  const thrown = await everyInterruption(agent, "x", { after: () => expect(open).toBe(0) });
  expect(thrown.problems.join()).toContain("expected 1 to be +0");
});

it("questions without an answer are named", async () => {
  await expect(everyInterruption(shy, "x")).rejects.toThrow(
    'the agent asks ask#1 "Your name?", question 1, and there are 0 answers. Add one: { answers: [ … ] }.',
  );
  const report = await everyInterruption(shy, "x", { answers: ({ question }) => `You ask "${question}"` });
  expect(report.problems).toEqual([]);
});
