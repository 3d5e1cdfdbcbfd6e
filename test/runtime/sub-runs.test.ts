import { expect, it } from "vitest";
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
