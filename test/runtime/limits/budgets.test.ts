import type { AgentContext, AgentOptions, Run } from "cadenza";
import { describe, expect, it } from "vitest";
import { refusal, setUp, setUpOnFile, textOf, textsOf } from "../../harness/runtimes.ts";
import { AS_OF_RESULT, unlessReplayed } from "../../harness/unless-replayed.ts";

/* Budgets of runs, and of trees of runs. */

const reasonOf = ({ error }: Run) => (error as { data?: { reason?: string } } | null)?.data?.reason;
const tokens = (input_tokens: number) => ({ input_tokens, output_tokens: 0 });
const budget = (totalTokens: number) => ({ budget: { totalTokens } });

/** Uses ten tokens in each step, so often. */
async function work({ step, usage, signal }: AgentContext, steps: number): Promise<void> {
  for (let n = 0; n < steps; n++) {
    signal.throwIfAborted();
    await step("call", () => usage.add(tokens(10)));
  }
}

describe.each([
  ["in memory", (turns?: number) => setUp({}, turns)],
  ["on SQLite", setUpOnFile],
] as const)("%s", (_where, make) => {
  it("a run that uses more than its budget ends with budget_exceeded", async () => {
    const { runtime } = make();
    runtime.register("works", async function* (_input, context) {
      try {
        await work(context, 100);
      } finally {
        yield (context.signal.reason as { code: string }).code;
      }
    });
    const run = await runtime.createRun({ agent_name: "works", input: "" }, budget(35));
    expect([run.status, reasonOf(run), textsOf(run)]).toEqual(["failed", "budget_exceeded", ["budget_exceeded"]]);
    const { usage, budget: given } = await runtime.details(run.run_id);
    expect([usage?.total_tokens, given]).toEqual([40, { total_tokens: 35, remaining_tokens: 0 }]);
    expect((await runtime.getAgent("works")).status).toMatchObject({ avg_run_tokens: 40, success_rate: 0 });
    await runtime.close();
  });

  it("an agent that does not stop is left behind", async () => {
    // It uses the whole of each turn that it gets.
    const { runtime, clock } = make(5);
    let goesOn = true;
    runtime.register("works", async (_input, { step, usage }) => {
      while (goesOn) await step("call", () => usage.add(tokens(10))).catch(() => undefined);
    });
    const { run_id } = await runtime.createRun({ agent_name: "works", input: "", mode: "async" }, budget(35));
    await clock.advance(1_000);
    const run = await runtime.getRun(run_id);
    expect([run.status, reasonOf(run)]).toEqual(["failed", "budget_exceeded"]);
    goesOn = false;
    await runtime.close();
  });

  it("a run may use all of its budget, and fails if it returns with more", async () => {
    const { runtime } = make();
    runtime.register("works", (input, { usage }) => {
      usage.add(tokens(Number(input[0]?.parts[0]?.content)));
      return "Done.";
    });
    const run = (input: string) => runtime.createRun({ agent_name: "works", input }, budget(40));
    expect((await run("40")).status).toBe("completed");
    const exceeding = await run("41");
    expect([exceeding.status, reasonOf(exceeding)]).toEqual(["failed", "budget_exceeded"]);
    expect((await runtime.details(exceeding.run_id)).usage?.total_tokens).toBe(41);
    await runtime.close();
  });

  it("the budget of a run goes before that of its agent", async () => {
    const { runtime } = make();
    runtime.register("works", budget(20), async (_input, context) => work(context, 4));
    const end = async (options?: { budget: AgentOptions["budget"] }) =>
      (await runtime.createRun({ agent_name: "works", input: "" }, options)).status;
    expect(await end()).toBe("failed");
    expect(await end(budget(30))).toBe("failed");
    expect(await end(budget(40))).toBe("completed");
    expect(await end(budget(Number.POSITIVE_INFINITY))).toBe("completed");
    expect(await end(budget(0))).toBe("failed");
    const [run] = await runtime.listRuns({ status: "completed" });
    expect((await runtime.details(run?.run_id ?? "")).budget).toBeNull();
    await runtime.close();
  });

  it("remaining says what is left with each result, in a sub-run of the smallest budget above", async () => {
    const { runtime } = make();
    const seen: Record<string, number[]> = {};
    const note = (name: string, { usage }: AgentContext) => {
      const list = seen[name] ?? [];
      seen[name] = list;
      if (list.at(-1) !== usage.remaining) list.push(usage.remaining);
    };
    runtime.register("root", async (_input, context) => {
      note("root", context);
      await work(context, 1);
      note("root", context);
      await context.run("middle", "", budget(50));
      note("root", context);
      await context.run("low", "", budget(1_000));
    });
    runtime.register("middle", async (_input, context) => {
      await work(context, 2);
      note("middle", context);
      await context.run("low", "");
      note("middle", context);
    });
    runtime.register("low", async (_input, context) => {
      note("low", context);
      await work(context, 1);
      note("low", context);
    });
    runtime.register("free", (_input, { usage }) => `${usage.remaining}`);
    expect((await runtime.createRun({ agent_name: "root", input: "" }, budget(100))).status).toBe("completed");
    // A replayed agent begins from the start again.
    expect({ ...seen, root: [...new Set(seen["root"])], middle: [...new Set(seen["middle"])] }).toMatchObject({
      root: [100, 90, 60],
      middle: [30, 20],
    });
    expect([...new Set(seen["low"])]).toEqual([30, 20, 60, 50]);
    expect(textsOf(await runtime.createRun({ agent_name: "free", input: "" }))).toEqual(["Infinity"]);
    await runtime.close();
  });

  it("an agent that goes by what remains goes on in the same way when it is executed again", async () => {
    const { runtime } = make();
    runtime.register("works", async function* (_input, { step, usage, ask, run }) {
      await step("begin", () => usage.add(tokens(5)));
      for (let n = 1; usage.remaining > 30; n++) {
        yield `${usage.remaining} `;
        if (n === 2) await ask("Go on?");
        else await Promise.all([1, 2].map(() => step("call", () => usage.add(tokens(10)))));
      }
      await run("helps", "");
      yield `${usage.remaining}`;
    });
    runtime.register("helps", async (_input, context) => work(context, 1));
    const { run_id } = await runtime.createRun({ agent_name: "works", input: "" }, budget(100));
    const run = await runtime.resume({ run_id, await_resume: { yes: true } });
    expect([run.status, run.output.map(textOf)]).toEqual(["completed", ["95 |75 ", "75 |55 |35 |5"]]);
    const { blocked, differences } = await runtime.stats();
    expect([blocked, differences]).toEqual([[], 0]);
    await runtime.close();
  });

  it("a sub-run that exceeds its own budget fails, and its parent goes on with what is left", async () => {
    const { runtime } = make();
    runtime.register("works", async (_input, context) => work(context, 10));
    runtime.register("root", async function* (_input, context) {
      const run = await context.run("works", "", budget(25));
      yield `${run.status} ${reasonOf(run)}, left ${context.usage.remaining}`;
      const other = await context.run("works", "");
      yield `${other.status}`;
    });
    const run = await runtime.createRun({ agent_name: "root", input: "" }, budget(100));
    expect([run.status, reasonOf(run), textsOf(run)]).toEqual([
      "failed",
      "budget_exceeded",
      ["failed budget_exceeded, left 70"],
    ]);
    expect((await runtime.details(run.run_id)).usage?.total_tokens).toBe(110);
    await runtime.close();
  });

  it("what a run waits for is given up when a run below it exceeds its budget", async () => {
    const { runtime, clock } = make();
    runtime.register("works", async (_input, context) => {
      await context.sleep(100);
      await work(context, 10);
    });
    runtime.register("root", async (_input, { run, ask }) => {
      await Promise.all([run("works", ""), ask("Enough?")]);
    });
    const { run_id, status } = await runtime.createRun({ agent_name: "root", input: "" }, budget(35));
    expect(status).toBe("awaiting");
    await clock.advance(1_000);
    const run = await runtime.getRun(run_id);
    expect([run.status, reasonOf(run)]).toEqual(["failed", "budget_exceeded"]);
    expect((await runtime.listRuns({ parent: run_id })).map((one) => one.status)).toEqual(["cancelled"]);
    expect((await runtime.details(run_id)).usage?.total_tokens).toBe(40);
    await runtime.close();
  });

  it("a tree of fifty sub-runs ends within one report of the limit", async () => {
    const { runtime, clock } = make();
    let used = 0;
    runtime.register("works", async (_input, { step, sleep, usage, signal }) => {
      await sleep(100);
      for (;;) {
        signal.throwIfAborted();
        await step("call", () => {
          usage.add(tokens(10));
          used += 10;
        });
      }
    });
    runtime.register("branch", async (_input, { run }) => {
      await Promise.all(Array.from({ length: 9 }, () => run("works", "")));
    });
    runtime.register("root", async (_input, { run }) => {
      await Promise.all(Array.from({ length: 5 }, () => run("branch", "")));
    });
    const { run_id } = await runtime.createRun({ agent_name: "root", input: "", mode: "async" }, budget(2_345));
    while ((await runtime.listRuns()).length < 51) await clock.advance(1);
    await clock.advance(1_000);
    const run = await runtime.getRun(run_id);
    expect([run.status, reasonOf(run)]).toEqual(["failed", "budget_exceeded"]);
    expect(used).toBe(2_350);
    expect((await runtime.details(run.run_id)).usage?.total_tokens).toBe(2_350);
    const below = await runtime.listRuns({ limit: 50 });
    expect(below.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => "cancelled"));
    await runtime.close();
  });

  it("is invalid unless it is a whole number of tokens", async () => {
    const { runtime } = make();
    runtime.register("ends", () => "Done.");
    for (const wrong of [{}, { totalTokens: -1 }, { totalTokens: 1.5 }, { totalTokens: "9" }, { total_tokens: 9 }, 9]) {
      const options = { budget: wrong as AgentOptions["budget"] };
      expect((await refusal(runtime.createRun({ agent_name: "ends", input: "" }, options))).code).toBe(
        "invalid_argument",
      );
      expect(() => runtime.register("other", options, () => "Done.")).toThrow(/budget/);
    }
    await runtime.close();
  });
});

unlessReplayed(AS_OF_RESULT)("a plain agent sees at once what is left, also of what its sub-runs use", async () => {
  const { runtime } = setUp();
  const seen: number[] = [];
  runtime.register("works", async (_input, { usage }) => {
    usage.add(tokens(10));
    seen.push(usage.remaining);
  });
  runtime.register("root", async (_input, { run, usage }) => {
    usage.add(tokens(5));
    seen.push(usage.remaining);
    await Promise.all([run("works", ""), run("works", "", budget(12))]);
    seen.push(usage.remaining);
  });
  await runtime.createRun({ agent_name: "root", input: "" }, budget(100));
  expect(seen).toEqual([95, 85, 2, 75]);
  await runtime.close();
});
