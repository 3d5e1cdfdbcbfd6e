import { describe, expect, it } from "vitest";
import { reply, setUp } from "../../harness/runtimes.ts";
import { createMany, given, statuses } from "../../harness/world/calls.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";
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

describe.each([
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
])("runs that are answered at the limit ($on)", ({ open }) => {
  const MORE = 5;
  const limits = { maxLiveRuns: LIMIT } as const;
  const refused = { code: "limit_reached", limit: "maxLiveRuns" };

  function begin(tenant = "") {
    const replicas = open();
    const { clock } = replicas;
    const { runtime } = replicas.start({ durability, limits });
    const work = () => new Promise<void>((resolve) => void clock.setTimeout(resolve, 1_000));
    runtime.register("asks", { durable: true }, async (_input, { ask, step }) => {
      await ask("Well?");
      await step("work", work);
      await ask("Again?");
    });
    runtime.register("busy", { durable: true }, (_input, { step }) => step("work", work));
    const scope = runtime.scope({ tenant });
    const create = async (agent_name: string): Promise<string> =>
      (await scope.createRun({ agent_name, input: "", mode: "async" })).run_id;
    const asking = async (count: number): Promise<string[]> => {
      const ids: string[] = [];
      for (let n = 0; n < count; n++) {
        ids.push(await create("asks"));
        await clock.advance(10);
      }
      return ids;
    };
    const answer = (run_id: string) => scope.resume({ run_id, await_resume: reply("yes"), mode: "async" });
    return { replicas, clock, scope, create, asking, answer };
  }

  it("are all accepted, and no new run is, until some of them wait again", async () => {
    const { clock, create, asking, answer, scope } = begin();
    const ids = await asking(2 * LIMIT);
    await clock.advance(100);
    for (const id of ids.slice(0, LIMIT + MORE)) await answer(id);
    await clock.advance(500);
    for (let n = 0; n < 2; n++) await expect(create("busy")).rejects.toMatchObject(refused);
    expect((await scope.getRun(ids.at(-1) ?? "")).status).toBe("awaiting");
    await clock.advance(1_000);
    for (let n = 0; n < LIMIT; n++) await create("busy");
    await expect(create("busy")).rejects.toMatchObject(refused);
  });

  it("count for the share of their tenant", async () => {
    const { clock, create, asking, answer } = begin("blue");
    const share = LIMIT / 2;
    for (const id of await asking(share)) await answer(id);
    await clock.advance(500);
    await expect(create("busy")).rejects.toMatchObject({ code: "limit_reached", limit: "perTenant.liveRuns" });
    await clock.advance(1_000);
    await create("busy");
  });

  it("are others than those that the process has taken, which keep no new run out", async () => {
    const { clock, replicas, create } = begin();
    const web = replicas.start({ durability, work: false });
    web.runtime.declare({ name: "busy", durable: true });
    for (let n = 0; n < 2 * LIMIT; n++) await web.runtime.createRun({ agent_name: "busy", input: "", mode: "async" });
    await clock.advance(500);
    for (let n = 0; n < LIMIT; n++) await create("busy");
    await expect(create("busy")).rejects.toMatchObject(refused);
  });
});
