import type { AgentRuntime } from "cadenza";
import { CadenzaError } from "cadenza";
import { describe, expect, it } from "vitest";
import { questionOf, setUp, textsOf } from "../helpers/runtimes.ts";

it("what a sub-run asks until a time is asked until then by its parent too", async () => {
  const { runtime, clock } = setUp();
  runtime.register("child", async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: 1_000, default: { n: 7 } })),
  );
  runtime.register("parent", async function* (_input, { run }) {
    yield textsOf(await run("child", "")).join();
  });
  const { run_id, await_request } = await runtime.createRun({ agent_name: "parent", input: "" });
  expect(await_request).toMatchObject({ expires_at: new Date(clock.now() + 1_000).toISOString() });
  await clock.advance(1_001);
  expect(textsOf(await runtime.getRun(run_id))).toEqual(['{"n":7}']);
});

it("what a sub-run asks without a time has none in its parent", async () => {
  const { runtime } = setUp();
  runtime.register("child", async (_input, { ask }) =>
    JSON.stringify(await ask("Well?", { timeoutMs: Number.POSITIVE_INFINITY })),
  );
  runtime.register("parent", (_input, { run }) => run("child", ""));
  expect(questionOf(await runtime.createRun({ agent_name: "parent", input: "" }))).not.toHaveProperty("expires_at");
});

/** An agent that runs itself until it is refused, and tells how deep it came and why it stopped. */
function registerDeep(runtime: AgentRuntime): void {
  runtime.register("deep", async (input, { run }) => {
    const depth = Number(input[0]?.parts[0]?.content);
    try {
      return textsOf(await run("deep", String(depth + 1))).join();
    } catch (error) {
      if (!CadenzaError.is(error)) throw error;
      return `${depth} ${error.code} ${error.limit} ${error.agent_name}`;
    }
  });
}

describe("how deep sub-runs go", () => {
  it.each([
    [undefined, 32],
    [0, 0],
    [3, 3],
    [Number.POSITIVE_INFINITY, undefined],
  ])("is limited by maxDepth (%s), and the agent may catch that", async (maxDepth, reached) => {
    const { runtime } = setUp({ limits: { maxDepth, maxLiveRuns: 40 } });
    registerDeep(runtime);
    const run = await runtime.createRun({ agent_name: "deep", input: "0" });
    const limit = reached === undefined ? "39 limit_reached maxLiveRuns" : `${reached} limit_reached maxDepth`;
    expect(textsOf(run).join()).toContain(limit);
  });

  it("counts what is above a run, and not what is beside it", async () => {
    const { runtime } = setUp({ limits: { maxDepth: 1 } });
    runtime.register("leaf", (input) => input);
    runtime.register("wide", async (_input, { run }) => {
      const runs = await Promise.all(Array.from({ length: 5 }, (_, n) => run("leaf", String(n))));
      return runs.flatMap(textsOf).join();
    });
    expect(textsOf(await runtime.createRun({ agent_name: "wide", input: "" }))).toEqual(["0,1,2,3,4"]);
  });

  it("fails a run whose agent goes further and does not catch that", async () => {
    const { runtime } = setUp({ limits: { maxDepth: 0 } });
    runtime.register("agent", async (_input, { run }) => void (await run("agent", "")));
    const run = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(run).toMatchObject({ status: "failed", error: { data: { reason: "limit_reached" } } });
    expect(run.error?.message).toBe("A run of agent would have 1 runs above it, and limits.maxDepth allows 0.");
  });
});
