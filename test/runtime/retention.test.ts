import { AgentRuntime, MemoryStore } from "cadenza";
import { expect, test } from "vitest";
import { refusal } from "../harness/runtimes.ts";
import { persistent } from "../harness/store-proxy.ts";

/** More runs than a store in memory retains, and more than it may exceed that between two prunings. */
const MANY = 11_000;

async function orderThenMany(runtime: AgentRuntime): Promise<string> {
  runtime.register("order", () => "ordered");
  const request = { agent_name: "order", input: "" };
  const { run_id } = await runtime.createRun(request, { idempotencyKey: "order 17" });
  for (let count = 0; count < MANY; count++) await runtime.createRun(request);
  return run_id;
}

test("a persistent store retains all runs by default, and a request that is repeated much later creates no second run", async () => {
  const runtime = new AgentRuntime({ store: persistent(new MemoryStore()) });
  const run_id = await orderThenMany(runtime);
  const again = await runtime.createRun({ agent_name: "order", input: "" }, { idempotencyKey: "order 17" });
  expect(again.run_id).toBe(run_id);
  expect(await runtime.listRuns({ limit: 2 * MANY })).toHaveLength(MANY + 1);
  await runtime.close();
});

test("a store in memory removes the oldest runs, and their idempotency keys with them", async () => {
  const runtime = new AgentRuntime();
  const run_id = await orderThenMany(runtime);
  expect((await refusal(runtime.getRun(run_id))).code).toBe("run_not_found");
  const again = await runtime.createRun({ agent_name: "order", input: "" }, { idempotencyKey: "order 17" });
  expect(again.run_id).not.toBe(run_id);
  await runtime.close();
});
