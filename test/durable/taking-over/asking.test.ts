import type { FoundRun, RunKey, RunWrite, StoreHint } from "cadenza/store";
import { expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import { createMany, statuses } from "../../harness/world/calls.ts";
import type { Replica } from "../../harness/world/replicas.ts";
import { inMemoryWithHints } from "../../harness/world/replicas.ts";
import { World } from "../../harness/world/world.ts";

/* When a worker asks the store for runs, and when it does not. */

const durability = { leaseMs: 10_000, heartbeatMs: 3_000, scanMs: 1_000, evictAfterMs: 60_000 } as const;
const RUN_MS = 50;
const MAX = 20;

it.each([1, 4])(
  "%i workers with few places work off what waits as fast as their places allow, and ask in vain hardly ever",
  async (workers) => {
    const world = new World({
      runtime: { durability, work: { max: MAX } },
      register: (process) => {
        if (process.isWeb) process.runtime.declare({ name: "agent", durable: true });
        else
          process.runtime.register("agent", { durable: true }, (_input, { step }) =>
            step("work", () => process.wait(RUN_MS)),
          );
      },
    });
    const web = world.start(undefined, true);
    const count = 300 * workers;
    const ids = await createMany(world, web, count);
    const started = Array.from({ length: workers }, () => world.start());
    await world.pass((1.1 * RUN_MS * count) / (MAX * workers));
    expect(await statuses(world, ids)).toEqual({ completed: count });
    const takes = started.flatMap(({ storeCalls }) => storeCalls.filter((method) => method === "take")).length;
    expect(takes).toBeLessThanOrEqual(1.1 * count);
  },
);

/**
 * A web process and workers on a store that tells all of them of each write, some time later. It counts how often it is
 * asked for work. `takeMs`: how long that lasts.
 */
function hinting(workers: number, { takeMs = 0, max = MAX }: { takeMs?: number; max?: number } = {}) {
  const LATE_MS = 12;
  const { replicas, tell: tellNow } = inMemoryWithHints();
  const state = { takes: 0, atOnce: 0, most: 0, begun: new Map<number, number>() };
  const { clock } = replicas;
  const tell = (hint: StoreHint): void => void clock.setTimeout(() => tellNow(hint), LATE_MS);
  const pause = () => new Promise<void>((resolve) => clock.setTimeout(resolve, takeMs));
  const hook: Hook = (call, method, parameters) => {
    const answer = call();
    const [key] = parameters as [RunKey];
    if (method === "create" || method === "append") {
      const { wake } = parameters[method === "create" ? 1 : 2] as RunWrite;
      tell({ moved: [key], due: wake !== undefined });
    }
    if (method !== "take") return answer;
    state.takes += 1;
    state.atOnce += 1;
    state.most = Math.max(state.most, state.atOnce);
    return pause().then(() => {
      state.atOnce -= 1;
      for (const found of answer as readonly FoundRun[]) tell({ moved: [found.key] });
      return answer;
    });
  };
  const web = replicas.start({ durability, work: false }, hook);
  web.runtime.declare({ name: "agent", durable: true });
  const start = (n: number): Replica => {
    const worker = replicas.start({ durability, work: { max } }, hook);
    worker.runtime.register("agent", { durable: true }, (_input, { step }) =>
      step("work", () => {
        state.begun.set(n, (state.begun.get(n) ?? 0) + 1);
        return new Promise<void>((resolve) => clock.setTimeout(resolve, RUN_MS));
      }),
    );
    return worker;
  };
  const create = () => web.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  return { clock, state, tell, create, web, started: Array.from({ length: workers }, (_, n) => start(n)) };
}

async function completed({ web }: Pick<ReturnType<typeof hinting>, "web">): Promise<number> {
  const runs = await web.runtime.listRuns({ limit: 1_000 });
  return runs.filter(({ status }) => status === "completed").length;
}

it.each([
  { workers: 1, everyMs: 10 },
  { workers: 5, everyMs: 10 },
  { workers: 15, everyMs: 10 },
  { workers: 15, everyMs: 100 },
])(
  "of $workers workers ($everyMs ms from run to run) on a store that gives hints, one asks for a run, each for its share",
  async (situation) => {
    const { workers, everyMs } = situation;
    const COUNT = 150;
    const all = hinting(workers, { takeMs: 2, max: 1_000 });
    const { clock, state, create } = all;
    await clock.advance(4_000);
    state.takes = 0;
    for (let n = 0; n < COUNT; n++) {
      await create();
      await clock.advance(everyMs);
    }
    await clock.advance(500);
    expect(await completed(all)).toBe(COUNT);
    const scans = (workers * (COUNT * everyMs + 500)) / durability.scanMs;
    expect(state.takes - scans).toBeLessThanOrEqual(1.2 * COUNT);
    const counts = Array.from({ length: workers }, (_, n) => state.begun.get(n) ?? 0);
    expect(Math.max(...counts)).toBeLessThanOrEqual((4 * COUNT) / workers);
  },
);

it("a run goes to another worker soon if the one whose turn it is has no room", async () => {
  const all = hinting(5, { max: 1 });
  const { clock, create } = all;
  await clock.advance(4_000);
  for (let n = 0; n < 5; n++) await create();
  await clock.advance(500);
  expect(await completed(all)).toBe(5);
});

it("a worker asks one question at a time, and has no stale ones when hints have ended", async () => {
  const { clock, state, tell } = hinting(1, { takeMs: 300 });
  await clock.advance(1_000);
  for (let n = 0; n < 1_000; n++) {
    tell({ due: true });
    await clock.advance(2);
  }
  await clock.advance(700);
  state.takes = 0;
  await clock.advance(5_000);
  expect(state.most).toBe(1);
  expect(state.takes).toBeLessThanOrEqual(5);
});

it("a full worker does not ask, whatever it hears, and asks as soon as it has room", async () => {
  const gate = deferred();
  const world = new World({
    runtime: { durability, work: { max: 2 } },
    register: (process) => {
      if (process.isWeb) process.runtime.declare({ name: "agent", durable: true });
      else process.runtime.register("agent", { durable: true }, (_input, { step }) => step("work", () => gate.promise));
    },
  });
  const [worker, web] = [world.start(), world.start(undefined, true)];
  const ids = await createMany(world, web, 4);
  await world.pass(1_500);
  worker.storeCalls.length = 0;
  await world.pass(10_000);
  expect(worker.storeCalls).not.toContain("take");
  gate.resolve();
  await world.pass(100);
  expect(await statuses(world, ids)).toEqual({ completed: 4 });
});
