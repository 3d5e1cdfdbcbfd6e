import type { Run } from "cadenza";
import { describe, expect, it } from "vitest";
import { create, createMany, given } from "../../harness/world/calls.ts";
import type { Outcome, Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * Reads of runs that other processes execute: how old they are, and what they cost. All durations of the runtime are
 * the defaults.
 */

/** How old an event may be when a reader sees it, in milliseconds. */
const EVENT_MS = 250;
/** How old a record may be when it is read, in milliseconds. */
const RUN_MS = 200;

function worldOf(evictAfterMs: number): World {
  return new World({
    runtime: { durability: { evictAfterMs } },
    register: (process) => {
      process.runtime.register("agent", { durable: true }, async (_input, { ask }) =>
        JSON.stringify(await ask("Well?")),
      );
      process.runtime.register("beside", { durable: true }, (_input, { ask, step }) =>
        Promise.all([ask("Well?"), step("work", () => process.wait(20_000))]),
      );
    },
  });
}

/** The types of the events that a reader in this process gets, with the time. */
function follow(world: World, { runtime }: Process, run_id: string): { readonly type: string; readonly at: number }[] {
  const seen: { type: string; at: number }[] = [];
  void (async () => {
    for await (const { type } of runtime.events(run_id, { until: "end" })) seen.push({ type, at: world.now });
  })();
  return seen;
}

async function read(world: World, process: Process, run_id: string): Promise<Run> {
  const outcome: Outcome<Run> | undefined = await world.until(process.runtime.getRun(run_id), process);
  return given(outcome);
}

describe.each([
  { where: "in memory", evictAfterMs: 60_000 },
  { where: "out of memory", evictAfterMs: 50 },
])("in the process that created a run, which waits there $where", ({ evictAfterMs }) => {
  // The answer comes at different times after the last scan of the process.
  it.each([100, 900, 1_700, 2_500])(
    "a reader sees what another process did, and getRun shows it (%i ms)",
    async (ms) => {
      const world = worldOf(evictAfterMs);
      const first = world.start();
      const second = world.start();
      const run_id = await create(world, first);
      const seen = follow(world, first, run_id);
      await world.pass(5_000 + ms);
      expect(seen.at(-1)?.type).toBe("run.awaiting");
      given(await world.until(second.runtime.resume({ run_id, await_resume: { ok: true } }), second));
      const answeredAt = world.now;
      await world.pass(RUN_MS);
      expect((await read(world, first, run_id)).status).toBe("completed");
      await world.pass(10_000);
      expect(seen.at(-1)?.type).toBe("run.completed");
      expect((seen.at(-1)?.at ?? 0) - answeredAt).toBeLessThanOrEqual(EVENT_MS);
    },
  );

  it("a cancel through another process is seen as soon", async () => {
    const world = worldOf(evictAfterMs);
    const first = world.start();
    const second = world.start();
    const run_id = await create(world, first);
    const seen = follow(world, first, run_id);
    await world.pass(5_700);
    given(await world.until(second.runtime.cancel(run_id), second));
    const cancelledAt = world.now;
    await world.pass(RUN_MS);
    expect((await read(world, first, run_id)).status).toBe("cancelled");
    await world.pass(10_000);
    expect(seen.at(-1)?.type).toBe("run.cancelled");
    expect((seen.at(-1)?.at ?? 0) - cancelledAt).toBeLessThanOrEqual(EVENT_MS);
  });
});

it("getRun is no older without a reader of the run", async () => {
  const world = worldOf(60_000);
  const first = world.start();
  const second = world.start();
  const run_id = await create(world, first);
  await world.pass(5_700);
  given(await world.until(second.runtime.resume({ run_id, await_resume: { ok: true } }), second));
  await world.pass(RUN_MS);
  expect((await read(world, first, run_id)).status).toBe("completed");
});

/** How often a process calls its store in that time. */
async function calls(world: World, { storeCalls }: Process, ms: number): Promise<number> {
  const before = storeCalls.length;
  await world.pass(ms);
  return storeCalls.length - before;
}

describe("a process that follows runs of another", () => {
  it.each([
    { runs: 1, readers: 100 },
    { runs: 100, readers: 100 },
  ])("asks the store once for all of them ($runs runs, $readers readers)", async ({ runs, readers }) => {
    const world = worldOf(60_000);
    const first = world.start();
    const second = world.start();
    const ids = await createMany(world, first, runs, "beside");
    await world.pass(3_000);
    const unread = await calls(world, second, 5_000);
    for (let reader = 0; reader < readers; reader++) follow(world, second, ids[reader % runs] ?? "");
    await world.pass(1_000);
    const followed = await calls(world, second, 5_000);
    // Five polls a second, with one or two calls each.
    expect(followed - unread).toBeLessThanOrEqual(2 * 5 * 5);
  });

  it("makes no more calls when its last reader has gone", async () => {
    const world = worldOf(60_000);
    const first = world.start();
    const second = world.start();
    const [run_id = ""] = await createMany(world, first, 1, "beside");
    await world.pass(3_000);
    const unread = await calls(world, second, 5_000);
    const events = second.runtime.events(run_id, { until: "end" });
    given(await world.until(events.next(), second));
    await world.pass(1_000);
    await events.return?.();
    await world.pass(1_000);
    // One heartbeat more or less.
    expect(await calls(world, second, 5_000)).toBeLessThanOrEqual(unread + 3);
  });
});
