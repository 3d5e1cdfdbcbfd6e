import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { createMany, given, statuses } from "../../harness/world/calls.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* A process takes over no more runs than its limits allow, and the others when some have ended. */

const LIMIT = 10;
const MANY = 60;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 50 } as const;

function begin(stepMs: number) {
  const most = new Map<string, number>();
  const atWork = new Map<string, number>();
  const count = (name: string, more: number): void => {
    atWork.set(name, (atWork.get(name) ?? 0) + more);
    most.set(name, Math.max(most.get(name) ?? 0, atWork.get(name) ?? 0));
  };
  const world = new World({
    runtime: { durability, limits: { maxLiveRuns: LIMIT } },
    register: (process) =>
      void process.runtime.register("agent", { durable: true }, (_input, { step }) =>
        step("work", async () => {
          count(process.name, 1);
          await process.wait(stepMs);
          count(process.name, -1);
        }),
      ),
  });
  return { world, most };
}

/** Creates runs in several processes, and kills these. */
async function leaveBehind(world: World): Promise<string[]> {
  const ids: string[] = [];
  const dying: Process[] = [];
  for (let started = 0; started < MANY / LIMIT; started++) {
    const process = world.start();
    dying.push(process);
    ids.push(...(await createMany(world, process, LIMIT)));
  }
  await world.pass(100);
  for (const process of dying) process.kill();
  return ids;
}

async function live(world: World, process: Process): Promise<number> {
  const stats = given(await world.until(process.runtime.stats(), process));
  return Object.values(stats.live).reduce((sum, each) => sum + each, 0);
}

it.each([1, 2])(
  "a process has no more of the runs that it takes over than maxLiveRuns at a time (%i processes)",
  async (processes) => {
    const { world, most } = begin(3_000);
    const ids = await leaveBehind(world);
    const living = Array.from({ length: processes }, () => world.start());
    for (let look = 0; look < 10; look++) {
      await world.pass(500);
      for (const process of living) expect(await live(world, process)).toBeLessThanOrEqual(LIMIT);
    }
    await world.pass(60_000);
    expect(await statuses(world, ids)).toEqual({ completed: MANY });
    for (const process of living) expect(most.get(process.name)).toBeLessThanOrEqual(LIMIT);
  },
);

it("a process at maxLiveRuns takes over the next runs without a pause longer than a scan", async () => {
  const { world } = begin(1_000);
  const ids = await leaveBehind(world);
  world.start();
  await world.pass(durability.leaseMs + (MANY / LIMIT) * (1_000 + 2 * durability.scanMs));
  expect(await statuses(world, ids)).toEqual({ completed: MANY });
});

it("maxLiveRuns counts the runs that a process has claimed and is still loading", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const wait = (ms: number): Promise<void> => new Promise((resolve) => clock.setTimeout(resolve, ms));
  const first = replicas.start();
  first.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => deferred().promise));
  for (let run = 0; run < MANY; run++) await first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(100);
  first.kill();
  await clock.advance(2 * durability.leaseMs);
  const second = replicas.start({ limits: { maxLiveRuns: LIMIT } }, (call, method) =>
    method === "read" ? wait(3 * durability.scanMs).then(call) : call(),
  );
  const atWork = { now: 0, most: 0 };
  second.runtime.register("agent", { durable: true }, (_input, { step }) =>
    step("work", async () => {
      atWork.now += 1;
      atWork.most = Math.max(atWork.most, atWork.now);
      await wait(500);
      atWork.now -= 1;
    }),
  );
  await clock.advance(20_000);
  expect(atWork.most).toBe(LIMIT);
});
