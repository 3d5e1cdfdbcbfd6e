import { expect, it } from "vitest";
import { setUp } from "../../harness/runtimes.ts";
import { createMany, given, statuses } from "../../harness/world/calls.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* Runs that only wait give way to others, where the store outlives the process. */

const LIMIT = 10;
const MANY = 60;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 60_000 } as const;

function begin() {
  return new World({
    runtime: { durability, limits: { maxLiveRuns: LIMIT }, work: { max: LIMIT } },
    register: ({ runtime, isWeb }) => {
      if (isWeb) runtime.declare({ name: "agent", durable: true });
      else runtime.register("agent", { durable: true }, async (_input, { ask }) => JSON.stringify(await ask("Well?")));
    },
  });
}

async function live(world: World, process: Process): Promise<number> {
  const stats = given(await world.until(process.runtime.stats(), process));
  return Object.values(stats.live).reduce((sum, each) => sum + each, 0);
}

it("runs that wait keep no new run out, and no more are loaded than maxLiveRuns allows", async () => {
  const world = begin();
  const worker = world.start();
  const ids: string[] = [];
  for (let n = 0; n < MANY; n++) {
    ids.push(...(await createMany(world, worker, 1)));
    await world.pass(10);
    expect(await live(world, worker)).toBeLessThanOrEqual(LIMIT);
  }
  expect(await statuses(world, ids)).toEqual({ awaiting: MANY });
  for (const run_id of ids) given(await world.until(worker.runtime.resume({ run_id, await_resume: {} }), worker));
  expect(await statuses(world, ids)).toEqual({ completed: MANY });
});

it("a worker full of runs that wait takes a due run at once, and the run that waits longest gives way", async () => {
  const world = begin();
  const worker = world.start();
  const web = world.start(undefined, true);
  await createMany(world, worker, LIMIT);
  await world.pass(1_000);
  expect(await live(world, worker)).toBe(LIMIT);
  const ids = await createMany(world, web, MANY);
  await world.pass(MANY * durability.scanMs);
  expect(await statuses(world, ids)).toEqual({ awaiting: MANY });
  expect(await live(world, worker)).toBeLessThanOrEqual(LIMIT);
});

it("in a store that ends with the process, runs that wait count", async () => {
  const { runtime } = setUp({ limits: { maxLiveRuns: LIMIT } });
  runtime.register("agent", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  const create = () => runtime.createRun({ agent_name: "agent", input: "" });
  for (let n = 0; n < LIMIT; n++) await create();
  await expect(create()).rejects.toMatchObject({ code: "limit_reached", limit: "maxLiveRuns" });
});
