import { expect, it } from "vitest";
import { setUp, textsOf } from "../harness/runtimes.ts";
import { failingStore } from "../harness/store-proxy.ts";

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
