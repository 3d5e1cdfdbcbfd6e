import { describe, expect, it } from "vitest";
import type { Crash, Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* Sub-runs and what deletes runs: no sub-run is made twice, and no finished step runs again. */

/** More calls than a process makes of its store in one of these tests. */
const MAX_CALLS = 30;
const LONG_MS = 10_000;
/** Deletes whatever a store may delete. */
const everything = { maxRuns: 0, endedBefore: Number.POSITIVE_INFINITY, sessionsBefore: Number.POSITIVE_INFINITY };

interface Charging {
  readonly world: World;
  /** The ids of the sub-runs whose body has run, once for each time. */
  readonly charged: string[];
}

/** A durable agent with a durable sub-run that charges once. */
function charging(late: boolean): Charging {
  const charged: string[] = [];
  const world = new World({
    late,
    register: ({ runtime }: Process) => {
      runtime.register("child", { durable: true }, async (_input, { step, run_id }) => {
        await step("charge", () => void charged.push(run_id), { once: true });
      });
      runtime.register("agent", { durable: true }, async (_input, { run }) => {
        const child = await run("child", "");
        return `the child has ${child.status}`;
      });
    },
  });
  return { world, charged };
}

/** A run of a process that dies at, or after, a call of its store. Undefined: the process has died before its caller had the run. */
async function createdUntil(world: World, crash: Crash): Promise<string | undefined> {
  const first = world.start(crash);
  const creating = first.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const created = await world.until(creating, first);
  await world.pass(5_000);
  return created === undefined || "error" in created ? undefined : created.value.run_id;
}

describe("a sub-run whose parent has not recorded its result", () => {
  it.each([false, true])("outlives retention, wherever the process dies before (late: %s)", async (late) => {
    for (const after of [false, true]) {
      for (let call = 1; call <= MAX_CALLS; call++) {
        const { world, charged } = charging(late);
        const run_id = await createdUntil(world, { call, after });
        if (run_id === undefined) continue;
        const { finished_at } = (await world.find(run_id))?.head ?? {};
        if (finished_at !== null) continue;
        await world.store.prune(everything);
        world.start();
        await world.pass(LONG_MS);
        const { status } = await world.stateOf(run_id);
        expect({ call, status }).toEqual({ call, status: "completed" });
        // A process that dies between the intent and the body leaves a step that is not run at all.
        expect({ call, late, after, twice: charged.length > 1 }).toEqual({ call, late, after, twice: false });
      }
    }
  });

  it("is not made again where the store has lost it: the parent gets an error, which it gets again in a replay", async () => {
    let missing = 0;
    for (let call = 1; call <= MAX_CALLS; call++) {
      const { world, charged } = charging(false);
      const run_id = await createdUntil(world, { call, after: true });
      if (run_id === undefined) continue;
      const ended = await world.store.list({ tenant: "", parents: [run_id], limit: 9, offset: 0 });
      const log = await world.log(run_id);
      if (log.some(({ type }) => type === "step") || ended.every(({ head }) => head.finished_at === null)) continue;
      expect(log.some((entry) => entry.type === "intent" && entry.stored)).toBe(true);
      expect(charged).toHaveLength(1);
      await world.store.delete(ended.map(({ key }) => key));
      world.start();
      await world.pass(LONG_MS);
      const state = await world.stateOf(run_id);
      expect([state.status, state.ended?.error?.data?.["reason"]]).toEqual(["failed", "run_not_found"]);
      expect(charged).toHaveLength(1);
      missing += 1;
    }
    expect(missing).toBeGreaterThan(0);
  });

  it("is made where the process has died before the store had it", async () => {
    let made = 0;
    for (let call = 1; call <= MAX_CALLS; call++) {
      const { world, charged } = charging(false);
      const run_id = await createdUntil(world, { call, after: false });
      if (run_id === undefined) continue;
      const log = await world.log(run_id);
      const below = await world.store.list({ tenant: "", parents: [run_id], limit: 9, offset: 0 });
      if (below.length > 0 || log.at(-1)?.type !== "intent") continue;
      world.start();
      await world.pass(LONG_MS);
      expect((await world.stateOf(run_id)).status).toBe("completed");
      expect(charged).toHaveLength(1);
      made += 1;
    }
    expect(made).toBeGreaterThan(0);
  });
});
