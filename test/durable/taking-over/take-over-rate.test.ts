import { expect, it } from "vitest";
import { createMany, statuses } from "../../harness/world/calls.ts";
import { World } from "../../harness/world/world.ts";

/* How long it takes to take over many runs, and to expire many questions. The store answers at once. */

const durability = { leaseMs: 2_000, heartbeatMs: 500, scanMs: 1_000, evictAfterMs: 60_000 } as const;
const MANY = 1_000;
/** The longest time between two scans: they have a jitter. */
const LOOK_MS = 1.5 * durability.scanMs;

it.each([
  { count: MANY, writeMs: 0, moreMs: 0 },
  // One write after the other would take 12.5 s.
  { count: 500, writeMs: 25, moreMs: 3_000 },
])(
  "$count runs of a process that was killed are taken over by the first scan after its lease has expired, where a write takes $writeMs ms",
  async (situation) => {
    const { count, writeMs, moreMs } = situation;
    const begun = new Set<string>();
    const world = new World({
      writeMs,
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step, run_id }) =>
          step("work", () => {
            if (process.name === "process-2") begun.add(run_id);
            return process.wait(100_000);
          }),
        ),
    });
    const first = world.start();
    await createMany(world, first, count);
    await world.pass(100);
    first.kill();
    world.start();
    await world.pass(durability.leaseMs + LOOK_MS + moreMs);
    expect(begun.size).toBe(count);
  },
);

const DEADLINE_MS = 10_000;

it.each([
  { where: "in memory", evictAfterMs: 60_000, restarts: false },
  { where: "out of memory", evictAfterMs: 50, restarts: false },
  { where: "unfinished by a restart", evictAfterMs: 60_000, restarts: true },
])(`${MANY} questions with one deadline have their default by the first scan after it ($where)`, async (situation) => {
  const { evictAfterMs, restarts } = situation;
  const world = new World({
    runtime: { durability: { ...durability, evictAfterMs } },
    register: ({ runtime }) =>
      void runtime.register("agent", { durable: true }, async (_input, { ask }) =>
        JSON.stringify(await ask("Well?", { timeoutMs: DEADLINE_MS, default: { late: true } })),
      ),
  });
  const first = world.start();
  const ids = await createMany(world, first, MANY);
  await world.pass(1_000);
  expect(await statuses(world, ids)).toEqual({ awaiting: MANY });
  if (restarts) first.kill();
  await world.pass(DEADLINE_MS - 1_000);
  if (restarts) world.start();
  await world.pass(LOOK_MS);
  expect(await statuses(world, ids)).toEqual({ completed: MANY });
});
