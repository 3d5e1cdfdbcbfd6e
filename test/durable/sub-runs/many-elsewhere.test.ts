import { expect, it } from "vitest";
import { create } from "../../harness/world/calls.ts";
import { World } from "../../harness/world/world.ts";

/* Sub-runs that another process executes: their parents follow all of them with one request. */

const MANY = 100;
const STEP_MS = 20_000;
const SPAN_MS = 10_000;
const durability = { leaseMs: 4_000, heartbeatMs: 1_000, scanMs: 500, evictAfterMs: 60_000 } as const;

it(`${MANY} sub-runs in another process cost few requests while nothing happens, and end as soon as before`, async () => {
  const world = new World({
    runtime: { durability },
    register: (process) => {
      const { runtime } = process;
      if (process.name === "process-1") {
        runtime.declare({ name: "child", durable: true });
        runtime.register("agent", { durable: true }, async (_input, { run }) => {
          await Promise.all(Array.from({ length: MANY }, (_, n) => run("child", `${n}`)));
          return "done";
        });
      } else
        runtime.register("child", { durable: true }, (_input, { step }) => step("work", () => process.wait(STEP_MS)));
    },
  });
  const above = world.start();
  world.start();
  const run_id = await create(world, above);
  await world.pass(2_000);
  above.storeCalls.length = 0;
  await world.pass(SPAN_MS);
  const count = (name: string): number => above.storeCalls.filter((method) => method === name).length;
  expect(count("find")).toBeLessThanOrEqual(3 * MANY);
  expect(count("moved")).toBeLessThanOrEqual((2 * SPAN_MS) / 200);
  await world.pass(STEP_MS - SPAN_MS + 500);
  expect((await world.stateOf(run_id)).status).toBe("completed");
});
