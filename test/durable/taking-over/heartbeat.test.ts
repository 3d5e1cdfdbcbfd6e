import { describe, expect, it } from "vitest";
import type { Hook } from "../../harness/store-proxy.ts";
import { create, createMany, given } from "../../harness/world/calls.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * A living process keeps the lease of the runs that it executes, whatever else it does. It checks its lease before each
 * body.
 */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;

/** How often a process has renewed its lease. */
function renewals({ storeCalls }: Process): number {
  return storeCalls.filter((method) => method === "renew").length;
}

describe("a process that takes runs over", () => {
  it.each([10, 25, 50])("keeps its lease meanwhile, although each write takes %i ms", async (writeMs) => {
    const begun = new Map<string, string[]>();
    const world = new World({
      writeMs,
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step, run_id }) =>
          step("work", () => {
            begun.set(run_id, [...(begun.get(run_id) ?? []), process.name]);
            return process.wait(60_000);
          }),
        ),
    });
    const [dying, ...living] = [world.start(), world.start(), world.start()];
    await createMany(world, dying, 150);
    const own: string[] = [];
    for (const process of living) own.push(...(await createMany(world, process, 5)));
    await world.pass(1_000);
    dying.kill();
    await world.pass(2 * durability.leaseMs);
    // It scans at once, and would find the runs of a process whose lease has expired.
    world.start();
    await world.pass(20_000);
    expect(own.map((run_id) => begun.get(run_id)).filter((processes) => processes?.length !== 1)).toEqual([]);
    // A body runs once in the killed process, and once in one of the others.
    expect([...begun.values()].filter(({ length }) => length > 2)).toEqual([]);
  });
});

describe("a process whose event loop is blocked for longer than its lease", () => {
  it.each([2, 4])("renews its lease before it begins the next of %i parallel bodies", async (count) => {
    const seen: { readonly body: number; readonly renewals: number }[] = [];
    const world = new World({
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step }) =>
          Promise.all(
            Array.from({ length: count }, (_, body) =>
              step("work", () => {
                seen.push({ body, renewals: renewals(process) });
                world.now += 1.5 * durability.leaseMs;
              }),
            ),
          ),
        ),
    });
    const process = world.start();
    const creating = process.runtime.createRun({ agent_name: "agent", input: "" });
    expect(given(await world.until(creating, process)).status).toBe("completed");
    const [first = 0, ...others] = seen.map((each) => each.renewals);
    expect(others).toEqual(others.map((_, index) => first + index + 1));
  });
});

describe("a clock that goes back", () => {
  it.each([20_000, 3_600_000])("by %i ms does not keep a cancel from the process that executes the run", async (ms) => {
    const world = new World({
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step }) =>
          step("work", () => process.wait(100_000)),
        ),
    });
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(1_000);
    const second = world.start();
    await world.pass(1_000);
    world.clockOffset = -ms;
    given(await world.until(second.runtime.cancel(run_id), second));
    await world.pass(2 * durability.heartbeatMs + 1_000);
    expect((await world.stateOf(run_id)).status).toBe("cancelled");
  });

  it.each([60_000, 3_600_000])("by %i ms does not delay a take-over", async (ms) => {
    const world = new World({
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, (_input, { step }) =>
          step("work", () => process.wait(process.name === "process-1" ? 100_000 : 10)),
        ),
    });
    const first = world.start();
    const run_id = await create(world, first);
    world.start();
    await world.pass(1_000);
    world.clockOffset = -ms;
    first.kill();
    await world.pass(3 * durability.leaseMs);
    expect((await world.stateOf(run_id)).status).toBe("completed");
  });
});

it("a clock that goes forward by an hour costs a step at most one more attempt, and gives no second result", async () => {
  let bodies = 0;
  const world = new World({
    runtime: { durability },
    register: (process) =>
      void process.runtime.register("agent", { durable: true }, (_input, { step }) =>
        step("work", () => {
          bodies += 1;
          return process.wait(3_000);
        }),
      ),
  });
  const run_id = await create(world, world.start());
  world.start();
  await world.pass(1_000);
  world.clockOffset = 3_600_000;
  await world.pass(20_000);
  expect((await world.stateOf(run_id)).status).toBe("completed");
  expect(bodies).toBeLessThanOrEqual(2);
  expect((await world.log(run_id)).filter(({ type }) => type === "step")).toHaveLength(1);
});

it("2,500 idle runs are compared with a slow store in few requests, one comparison at a time, and no renewal waits for it", async () => {
  const MANY = 2_500;
  const replicas = inMemory();
  const { clock } = replicas;
  const seen = { sizes: [] as number[], atOnce: 0, most: 0, renewals: 0 };
  const hook: Hook = (call, method, [known]) => {
    if (method === "renew") seen.renewals += 1;
    if (method !== "moved") return call();
    seen.sizes.push((known as readonly unknown[]).length);
    seen.atOnce += 1;
    seen.most = Math.max(seen.most, seen.atOnce);
    return new Promise<void>((resolve) => clock.setTimeout(resolve, durability.heartbeatMs)).then(() => {
      seen.atOnce -= 1;
      return call();
    });
  };
  const { runtime } = replicas.start({ durability }, hook);
  runtime.register("agent", { durable: true }, async (_input, { ask }) => void (await ask("Well?")));
  for (let n = 0; n < MANY; n++) await runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  await clock.advance(durability.heartbeatMs);
  seen.sizes.length = 0;
  seen.renewals = 0;
  await clock.advance(12 * durability.heartbeatMs);
  expect(seen.sizes).toEqual(expect.arrayContaining([32, 1_000, 1_000, MANY - 2_032]));
  expect(seen.sizes.length).toBeLessThanOrEqual(12);
  expect(seen.most).toBe(1);
  expect(seen.renewals).toBe(12);
});
