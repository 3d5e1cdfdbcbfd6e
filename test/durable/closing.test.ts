import { expect, it } from "vitest";
import { setUp, textsOf } from "../harness/runtimes.ts";
import { lastingStore } from "../harness/store-proxy.ts";
import { create, given } from "../harness/world/calls.ts";
import { World } from "../harness/world/world.ts";

/** Two runtimes on one store, one after the other. `begun` holds which of them has called the agent. */
async function closedWithEvictedRun() {
  const store = lastingStore();
  const begun: string[] = [];
  const open = (name: string) => {
    const set = setUp({ store, durability: { evictAfterMs: 50 } });
    set.runtime.register("agent", { durable: true }, async function* (_input, { ask }) {
      begun.push(name);
      yield JSON.stringify(await ask("Well?"));
    });
    return set;
  };
  const first = open("first");
  const creating = first.runtime.createRun({ agent_name: "agent", input: "" });
  await first.clock.advance(1_000);
  const { run_id } = await creating;
  const closing = first.runtime.close();
  await first.clock.advance(1_000);
  await closing;
  return { store, first, begun, run_id, again: () => open("second") };
}

it("a runtime that has been closed loads no run to answer it, and refuses the answer", async () => {
  const { first, begun, run_id, again } = await closedWithEvictedRun();
  const answering = first.runtime.resume({ run_id, await_resume: { ok: true } });
  await expect(answering).rejects.toMatchObject({ code: "runtime_closed" });
  expect(begun).toEqual(["first"]);

  const { runtime, clock } = again();
  const resuming = runtime.resume({ run_id, await_resume: { ok: true } });
  await clock.advance(1_000);
  expect(textsOf(await resuming)).toEqual(['{"ok":true}']);
  expect(begun).toEqual(["first", "second"]);
});

it("a cancel that comes to a closed runtime is posted, and carried out by the next one", async () => {
  const { first, begun, run_id, again } = await closedWithEvictedRun();
  expect((await first.runtime.cancel(run_id)).status).toBe("cancelling");
  expect(begun).toEqual(["first"]);

  const { runtime, clock } = again();
  await clock.advance(2_000);
  expect((await runtime.getRun(run_id)).status).toBe("cancelled");
  expect(begun).toEqual(["first", "second"]);
});

it("a closed runtime without the code of a cancelled run does not end the run either", async () => {
  const { store, run_id } = await closedWithEvictedRun();
  const { runtime, clock } = setUp({ store });
  await runtime.close();
  await runtime.cancel(run_id);
  await clock.advance(1_000);
  expect((await runtime.getRun(run_id)).status).toBe("cancelling");
});

it("a runtime that has been closed claims nothing when an agent is registered", async () => {
  const { first } = await closedWithEvictedRun();
  first.runtime.register("late", { durable: true }, () => undefined);
  await first.clock.advance(60_000);
  expect((await first.runtime.stats()).live).toEqual({});
  expect(first.clock.timers).toBe(0);
});

it.each([0, 5, 10, 15, 20, 25])(
  "a run whose runtime closes while it has something to write is taken over at once (%i ms)",
  async (ms) => {
    const world = new World({
      late: true,
      writeMs: 20,
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, async (_input, { step }) => {
          const work = Array.from({ length: 10 }, (_, n) => step("work", () => process.wait(5 * n)));
          for (let n = 0; n < 3; n++) await Promise.all(work);
        }),
    });
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(50 + ms);
    void first.runtime.close({ drainMs: 0 });
    world.start();
    await world.pass(3_000);
    expect((await world.stateOf(run_id)).status).toBe("completed");
  },
);

it("an answered question is not shown again by a run two levels above, which took the answer first", async () => {
  const world = new World({
    late: true,
    writeMs: 20,
    runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 100 } },
    register: ({ runtime }) => {
      runtime.register("leaf", { durable: true }, async (_input, { ask }) => {
        for (let n = 1; n <= 3; n++) await ask(`${n}?`);
      });
      runtime.register("middle", { durable: true }, async (_input, { run }) => (await run("leaf", "")).status);
      runtime.register("root", { durable: true }, async (_input, { run }) => (await run("middle", "")).status);
    },
  });
  const processes = [world.start(), world.start()];
  const run_id = await create(world, processes[0] ?? world.start(), "root");
  for (let n = 1; n <= 3; n++) {
    const await_id = `run:middle#1/run:leaf#1/ask#${n}`;
    while ((await world.stateOf(run_id)).question?.asked.await_id !== await_id) await world.pass(50);
    const process = processes[n % 2] ?? world.start();
    given(await world.until(process.runtime.resume({ run_id, await_id, await_resume: { n }, mode: "async" }), process));
    if (n === 2) {
      process.kill();
      processes[n % 2] = world.start();
    }
  }
  await world.pass(5_000);
  const { status } = await world.stateOf(run_id);
  expect(status).toBe("completed");
});
