import { describe, expect, it } from "vitest";
import { resultKey } from "../../harness/internals.ts";
import { create } from "../../harness/world/calls.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* Sub-runs whose process has died, with that of their parent: each ends, and none is run twice. */

/** More calls than a process makes of its store in one of these tests. */
const MAX_CALLS = 30;
const LONG_MS = 10_000;

/** The sub-runs that are in the store, by the calls of their agents. */
function begun(
  world: World,
  calls: readonly { readonly run_id: string }[],
): Promise<{ run_id: string; status: string }[]> {
  const ids = [...new Set(calls.map(({ run_id }) => run_id))];
  return Promise.all(ids.map(async (run_id) => ({ run_id, status: (await world.stateOf(run_id)).status })));
}

describe("a durable sub-run of a run that is not durable ends with it", () => {
  it.each([
    { does: "waits for an answer", late: false },
    { does: "waits for an answer", late: true },
    { does: "is in a step", late: false },
    { does: "is in a step", late: true },
    { does: "has a sub-run of its own", late: false },
    { does: "has a sub-run of its own", late: true },
  ])("when the process dies while it $does (late: $late)", async ({ does, late }) => {
    const calls: { run_id: string }[] = [];
    let steps = 0;
    const world = new World({
      late,
      register: (process) => {
        const { runtime } = process;
        runtime.register("grandchild", { durable: true }, (_input, { ask, run_id }) => {
          calls.push({ run_id });
          return ask("And you?").then(() => undefined);
        });
        runtime.register("child", { durable: true }, async (_input, { ask, step, run, run_id }) => {
          calls.push({ run_id });
          if (does === "waits for an answer") await ask("Well?");
          else if (does === "has a sub-run of its own") await run("grandchild", "");
          else await step("work", () => process.wait(1_000));
          await step("more", () => {
            steps += 1;
          });
        });
        runtime.register("agent", async (_input, { run }) => (await run("child", "")).output);
      },
    });
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(200);
    first.kill();
    world.start();
    await world.pass(LONG_MS);
    const { status, ended } = await world.stateOf(run_id);
    expect([status, ended?.error?.data?.["reason"]]).toEqual(["failed", "interrupted"]);
    const subRuns = await begun(world, calls);
    expect(subRuns.map((each) => each.status)).toEqual(subRuns.map(() => "cancelled"));
    expect(steps).toBe(0);
  });

  it.each([false, true])("at any call of the store at which the process dies (late: %s)", async (late) => {
    for (let call = 1; call <= MAX_CALLS; call++) {
      const calls: { run_id: string }[] = [];
      const world = new World({
        late,
        register: ({ runtime }: Process) => {
          runtime.register("child", { durable: true }, (_input, { ask, run_id }) => {
            calls.push({ run_id });
            return ask("Well?").then(() => undefined);
          });
          runtime.register("agent", async (_input, { run }) => (await run("child", "")).output);
        },
      });
      const first = world.start({ call, after: true });
      const creating = first.runtime.createRun({ agent_name: "agent", input: "" });
      creating.catch(() => {});
      await world.pass(1_000);
      first.kill();
      world.start();
      await world.pass(LONG_MS);
      // A sub-run that was never stored has no status.
      const stored = (await begun(world, calls)).filter(
        ({ run_id }) => world.store.find({ tenant: "", run_id }) !== undefined,
      );
      expect({ call, open: stored.filter(({ status }) => status !== "cancelled") }).toEqual({ call, open: [] });
    }
  });
});

describe("a sub-run that is not durable, of a durable run", () => {
  it.each([
    { late: false, after: false },
    { late: false, after: true },
    { late: true, after: false },
    { late: true, after: true },
  ])(
    "is run once, at any call of the store at which the process dies (late: $late, after: $after)",
    async (options) => {
      const { late, after } = options;
      for (let call = 1; call <= MAX_CALLS; call++) {
        const calls: string[] = [];
        const bodies: string[] = [];
        const world = new World({
          late,
          register: (process) => {
            const { runtime } = process;
            runtime.register("child", async (_input, { step, run_id }) => {
              calls.push(run_id);
              await step("pay", () => void bodies.push(run_id));
              await step("rest", () => process.wait(10));
            });
            runtime.register("agent", { durable: true }, async (_input, { run }) => (await run("child", "")).status);
          },
        });
        const first = world.start({ call, after });
        const creating = first.runtime.createRun({ agent_name: "agent", input: "" }, { idempotencyKey: "one" });
        creating.catch(() => {});
        await world.pass(1_000);
        first.kill();
        const second = world.start();
        const again = second.runtime.createRun({ agent_name: "agent", input: "" }, { idempotencyKey: "one" });
        again.catch(() => {});
        await world.pass(LONG_MS);
        expect({ call, calls: calls.length, bodies: bodies.length }).toEqual({
          call,
          calls: new Set(calls).size,
          bodies: new Set(bodies).size,
        });
        const { run_id } = await again;
        const log = await world.log(run_id);
        expect({ call, status: (await world.stateOf(run_id)).status }).toEqual({ call, status: "completed" });
        expect(log.filter((entry) => resultKey(entry) === "run:child#1")).toHaveLength(1);
      }
    },
  );
});
