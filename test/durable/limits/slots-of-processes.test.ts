import { expect, it } from "vitest";
import { createMany, statuses } from "../../harness/world/calls.ts";
import { World } from "../../harness/world/world.ts";

/* `per: "process"`: a worker takes as many runs of an agent as it can begin. */

const MANY = 30;
const MAX = 2;
const RUN_MS = 100;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 60_000 } as const;

it("the runs of an agent with slots of each process are shared by the workers, and do not keep others waiting", async () => {
  const begun = new Map<string, number>();
  const world = new World({
    runtime: { durability },
    register: (process) => {
      const { runtime, name, isWeb } = process;
      if (isWeb) {
        runtime.declare({ name: "agent", durable: true, concurrency: { max: MAX, per: "process" } });
        runtime.declare({ name: "other", durable: true });
        return;
      }
      runtime.register("agent", { durable: true, concurrency: { max: MAX, per: "process" } }, (_input, { step }) =>
        step("work", () => {
          begun.set(name, (begun.get(name) ?? 0) + 1);
          return process.wait(RUN_MS);
        }),
      );
      runtime.register("other", { durable: true }, () => "done");
    },
  });
  const web = world.start(undefined, true);
  const ids = await createMany(world, web, MANY);
  const workers = [world.start(), world.start(), world.start()];
  await world.pass(10);
  const others = await createMany(world, web, MANY, "other");
  await world.pass(durability.scanMs);
  expect(await statuses(world, others)).toEqual({ completed: MANY });
  await world.pass((1.2 * MANY * RUN_MS) / (MAX * workers.length));
  expect(await statuses(world, ids)).toEqual({ completed: MANY });
  expect(workers.map(({ name }) => begun.get(name))).toEqual(workers.map(() => MANY / workers.length));
});
