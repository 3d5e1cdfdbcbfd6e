import { expect, it } from "vitest";
import { runAgent, setUp, textsOf } from "../../harness/runtimes.ts";

it("a run with startAt begins at its time, and not before", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", () => "done");
  const startAt = new Date(clock.now() + 60_000);
  const run = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" }, { startAt });
  await clock.advance(59_999);
  expect(await runtime.getRun(run.run_id)).toMatchObject({ status: "created" });
  await clock.advance(1_001);
  expect(textsOf(await runtime.getRun(run.run_id))).toEqual(["done"]);
});

it("a run whose time has passed begins at once", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", () => "done");
  const run = await runtime.createRun({ agent_name: "agent", input: "" }, { startAt: clock.now() - 1 });
  expect(run.status).toBe("completed");
});

it("a run that begins later takes no slot until then", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", { concurrency: { max: 1 } }, () => "done");
  await runtime.createRun(
    { agent_name: "agent", input: "", mode: "async" },
    { startAt: new Date(clock.now() + 60_000).toISOString() },
  );
  const creating = runtime.createRun({ agent_name: "agent", input: "" });
  await clock.advance(1_000);
  expect((await creating).status).toBe("completed");
  await clock.advance(62_000);
  expect(await runtime.listRuns({ status: "completed" })).toHaveLength(2);
});

it("a run that begins later can be cancelled before, and never begins", async () => {
  const { runtime, clock } = setUp();
  let calls = 0;
  runtime.register("agent", () => `call ${++calls}`);
  const options = { startAt: clock.now() + 60_000 };
  const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", mode: "async" }, options);
  await runtime.cancel(run_id);
  await clock.advance(120_000);
  expect(await runtime.getRun(run_id)).toMatchObject({ status: "cancelled" });
  expect(calls).toBe(0);
});

it("the caller that waits for a run that begins later gets it when it rests", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", () => "done");
  const creating = runtime.createRun({ agent_name: "agent", input: "" }, { startAt: clock.now() + 60_000 });
  await clock.advance(62_000);
  expect(textsOf(await creating)).toEqual(["done"]);
});

it.each([Number.NaN, -1, Number.POSITIVE_INFINITY, 8.64e15 + 1, 1e18, "tomorrow", new Date(Number.NaN), null])(
  "a startAt of %s is refused",
  async (startAt) => {
    const { runtime } = setUp();
    await runAgent(runtime, () => "done");
    const creating = runtime.createRun({ agent_name: "agent", input: "" }, { startAt: startAt as number });
    await expect(creating).rejects.toMatchObject({ code: "invalid_argument" });
  },
);
