import type { Store, StoreHint } from "cadenza/store";
import { expect, it } from "vitest";
import { withMembers } from "../../harness/port-proxy.ts";
import { create, createMany, given, statuses } from "../../harness/world/calls.ts";
import { World } from "../../harness/world/world.ts";

/* Workers on a store that gives hints share the runs of a process that died. */

const MANY = 60;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 60_000 } as const;

/** A store that tells of due runs when all that a caller has asked for were there, as the one on PostgreSQL does. */
function hinting(store: Store): Store {
  const callbacks = new Set<(hint: StoreHint) => void>();
  return withMembers(store, {
    watch(callback) {
      callbacks.add(callback);
      return () => callbacks.delete(callback);
    },
    async take(request) {
      const taken = await store.take(request);
      if (taken.length === request.limit) for (const callback of callbacks) callback({ due: true });
      return taken;
    },
  });
}

/** Three workers, and the steps that each has begun. A step of the dead process does not end. */
function begin(max: number) {
  const begun = new Map<string, string[]>();
  const world = new World({
    plant: { store: hinting },
    runtime: { durability, work: { max } },
    register: (process) =>
      void process.runtime.register("agent", { durable: true }, (input, { step }) =>
        step("work", () => {
          begun.set(process.name, [
            ...(begun.get(process.name) ?? []),
            input.map(({ parts }) => parts[0]?.content).join(),
          ]);
          return process.wait(process.name === "process-1" ? 1_000_000 : 5_000);
        }),
      ),
  });
  return { world, begun };
}

it("of 60 runs of a dead process, each of three workers takes a third, give or take a page", async () => {
  const { world, begun } = begin(1_000);
  const dying = world.start();
  const ids = await createMany(world, dying, MANY);
  await world.pass(100);
  dying.kill();
  const workers = [world.start(), world.start(), world.start()];
  await world.pass(durability.leaseMs + 1.5 * durability.scanMs + 200);
  const counts = workers.map(({ name }) => begun.get(name)?.length ?? 0);
  expect(counts.reduce((sum, count) => sum + count)).toBe(MANY);
  expect(Math.min(...counts)).toBeGreaterThanOrEqual(MANY / 3 - 8);
  expect(Math.max(...counts)).toBeLessThanOrEqual(MANY / 3 + 8);
  await world.pass(10_000);
  expect(await statuses(world, ids)).toEqual({ completed: MANY });
});

it("no worker executes more than `max` of the runs of a dead process, and each executes all of its own besides", async () => {
  const max = 15;
  const { world, begun } = begin(max);
  const dying = world.start();
  const ids = await createMany(world, dying, MANY);
  await world.pass(100);
  dying.kill();
  const workers = [world.start(), world.start(), world.start()];
  await world.pass(durability.leaseMs + 1.5 * durability.scanMs + 200);
  for (const { name } of workers) expect(begun.get(name)).toHaveLength(max);
  for (const worker of workers) ids.push(await create(world, worker, "agent", "its own"));
  await world.pass(10);
  for (const worker of workers) {
    expect(begun.get(worker.name)?.at(-1)).toBe("its own");
    expect(given(await world.until(worker.runtime.stats(), worker)).live).toMatchObject({ "in-progress": max + 1 });
  }
  await world.pass(30_000);
  expect(await statuses(world, ids)).toEqual({ completed: MANY + workers.length });
});
