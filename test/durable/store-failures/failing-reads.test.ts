import { describe, expect, it } from "vitest";
import { setUp, textsOf } from "../../harness/runtimes.ts";
import { failingStore } from "../../harness/store-proxy.ts";

it.each([false, true])("a run that cannot be read for a replay goes on without one (late: %s)", async (late) => {
  const { store, failing } = failingStore({ late });
  const { runtime } = setUp({ store, durability: { alwaysReplay: true } });
  runtime.register("agent", { durable: true }, async function* (_input, { step }) {
    yield await step("one", () => "1");
    yield await step("two", () => "2");
  });
  failing.read = 1;
  const run = await runtime.createRun({ agent_name: "agent", input: "" });
  expect(textsOf(run)).toEqual(["1|2"]);
  expect(failing.read).toBeLessThanOrEqual(0);
});

describe.each([false, true])("a session that cannot be read (late: %s)", (late) => {
  it.each([
    ["in a first execution", {}],
    ["in a replay", { durability: { alwaysReplay: true } }],
  ])("is read again for its agent, %s", async (_when, options) => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock, said } = setUp({ store, ...options });
    runtime.register("agent", { durable: true }, async function* (_input, { session, step }) {
      const before = await session.history();
      yield await step("one", () => `${before.length}`);
      yield JSON.stringify(await session.getState());
      yield `${(await session.history()).length}`;
    });
    const { session_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    failing.session = 3;
    const running = runtime.createRun({ agent_name: "agent", input: "", session_id });
    await clock.advance(1_000);
    expect(textsOf(await running)).toEqual(["2|null|2"]);
    expect(failing.session).toBeLessThanOrEqual(0);
    expect(said.filter(({ message }) => message.startsWith("The session of a run")).length).toBeGreaterThan(0);
    await runtime.close();
  });

  it("does not keep a run that is cancelled", async () => {
    const { store, failing } = failingStore({ late });
    const { runtime, clock } = setUp({ store });
    runtime.register("agent", async (_input, { session }) => `${(await session.history()).length}`);
    const { session_id } = await runtime.createRun({ agent_name: "agent", input: "" });
    failing.session = Number.POSITIVE_INFINITY;
    const { run_id } = await runtime.createRun({ agent_name: "agent", input: "", session_id, mode: "async" });
    await clock.settle();
    await runtime.cancel(run_id);
    await clock.settle();
    expect((await runtime.getRun(run_id)).status).toBe("cancelled");
    await runtime.close();
  });
});
