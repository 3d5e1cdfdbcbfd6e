import type { FoundRun } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { deferred } from "../../harness/promises.ts";
import { setUp, textOf, textsOf } from "../../harness/runtimes.ts";
import { lastingStore } from "../../harness/store-proxy.ts";
import { create, given } from "../../harness/world/calls.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import { World } from "../../harness/world/world.ts";

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

describe("a runtime that is closed while its runs are in steps", () => {
  const STEPS = 8;
  const STEP_MS = 100;

  /** A process that closes in the middle of a step, and another one. */
  async function handOn(drainMs: number) {
    const replicas = inMemory();
    const { clock } = replicas;
    const bodies: string[] = [];
    const wait = (ms: number) => new Promise<void>((resolve) => void clock.setTimeout(resolve, ms));
    const start = (name: string) => {
      const set = replicas.start();
      set.runtime.register("agent", { durable: true }, async (input, { step }) => {
        const ms = Number(input.map(textOf).join(""));
        for (let n = 1; n <= STEPS; n++)
          await step("work", async ({ key, attempt }) => {
            bodies.push(`${name} ${ms} ${key}/${attempt}`);
            await wait(ms);
          });
      });
      return set.runtime;
    };
    const [first, second] = [start("first"), start("second")];
    const create = (ms: number) => first.createRun({ agent_name: "agent", input: `${ms}`, mode: "async" });
    const ids = [(await create(STEP_MS)).run_id, (await create(10 * STEP_MS)).run_id] as const;
    await clock.advance(STEP_MS / 2);
    const closing = first.close({ drainMs });
    return { clock, bodies, closing, ids, second };
  }

  it("lets each step end that takes less than half of the time, and hands its run on then", async () => {
    const { clock, bodies, closing, ids, second } = await handOn(4 * STEP_MS);
    await clock.advance(20 * STEP_MS);
    expect((await closing).left.map(({ run_id }) => run_id).sort()).toEqual([...ids].sort());
    expect((await second.getRun(ids[0])).status).toBe("completed");
    const quick = bodies.filter((body) => body.includes(` ${STEP_MS} `));
    expect(quick).toEqual(
      Array.from({ length: STEPS }, (_, n) => `${n < 3 ? "first" : "second"} ${STEP_MS} work#${n + 1}/1`),
    );
    // A longer one is begun again.
    await clock.advance(100 * STEP_MS);
    expect(bodies).toContain(`second ${10 * STEP_MS} work#1/2`);
  });

  it("does not keep a run for the step of another one", async () => {
    const { clock, bodies, closing } = await handOn(4 * STEP_MS);
    // The other process asks for it within `scanMs`.
    await clock.advance(3.75 * STEP_MS);
    expect(bodies).toContain(`second ${STEP_MS} work#4/1`);
    await clock.advance(0.25 * STEP_MS);
    await closing;
  });

  it("lets runs end in the first half of the time", async () => {
    const { clock, bodies, closing, ids, second } = await handOn(2 * STEPS * STEP_MS);
    await clock.advance(STEPS * STEP_MS);
    expect((await second.getRun(ids[0])).status).toBe("completed");
    await clock.advance(2 * STEPS * STEP_MS);
    expect((await closing).left.map(({ run_id }) => run_id)).toEqual([ids[1]]);
    expect(bodies.filter((body) => body.endsWith("/2"))).toEqual([]);
  });
});

it("a run that is given to a runtime while it closes goes on elsewhere, and does not count as taken over", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const [late, finish] = [deferred(), deferred()];
  const web = replicas.start({ work: false });
  web.runtime.declare({ name: "agent", durable: true });
  const { run_id } = await web.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const begun: string[] = [];
  const register = ({ runtime }: typeof web, name: string) =>
    runtime.register("agent", { durable: true }, (_input, { step }) => {
      begun.push(name);
      return step("work", () => finish.promise);
    });
  // The store is slow to give it the log of the run that it has taken.
  const closing = replicas.start({}, async (call, method) => {
    if (method === "read") await late.promise;
    return call();
  });
  register(closing, "closing");
  await clock.advance(200);
  expect((await web.store.find({ tenant: "", run_id }))?.head.owner).not.toBeNull();
  const closed = closing.runtime.close({ drainMs: 1_000 });
  await clock.settle();
  late.resolve();
  const takeovers: number[] = [];
  const other = replicas.start({}, async (call, method) => {
    const answer = await call();
    if (method === "take") takeovers.push(...(answer as readonly FoundRun[]).map(({ head }) => head.takeovers));
    return answer;
  });
  register(other, "other");
  await clock.advance(300);
  await closed;
  expect(begun).toEqual(["other"]);
  expect(takeovers).toEqual([0]);
  finish.resolve();
  await clock.advance(300);
  expect((await web.runtime.getRun(run_id)).status).toBe("completed");
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
