import type { RuntimeStats } from "cadenza";
import { describe, expect, it } from "vitest";
import { create, createMany, given, statuses } from "../../harness/world/calls.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * Runs that no process can execute: their code is missing, or does not match their history. They cost nothing, and
 * affect no other run.
 */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;
const MANY = 50;
const LONG_MS = 60_000;

async function statsOf(world: World, process: Process): Promise<RuntimeStats> {
  return given(await world.until(process.runtime.stats(), process));
}

/** How many runs wait for code that is not registered, from `stats()`. */
async function unregistered(world: World, process: Process): Promise<unknown> {
  const stats: object = await statsOf(world, process);
  return Reflect.get(stats, "unregistered") ?? Reflect.get(stats, "unregistered");
}

describe("stats() counts each run whose version is not registered", () => {
  it.each([
    { does: "waits for an answer", late: false },
    { does: "waits for an answer", late: true },
    { does: "is in a step", late: false },
    { does: "waits with a deadline", late: false },
  ])("that $does (late: $late)", async ({ does, late }) => {
    const world = new World({
      late,
      runtime: { durability },
      register: (process) => {
        if (process.name !== "process-1") {
          process.runtime.register("agent", { durable: true, version: "2" }, () => "done by 2");
          return;
        }
        process.runtime.register("agent", { durable: true, version: "1" }, async (_input, { ask, step }) => {
          if (does === "is in a step") await step("work", () => process.wait(LONG_MS));
          else if (does === "waits with a deadline") await ask("Well?", { timeoutMs: LONG_MS });
          else await ask("Well?");
        });
      },
    });
    const first = world.start();
    await createMany(world, first, 3);
    await world.pass(200);
    first.kill();
    const second = world.start();
    await world.pass(3 * durability.leaseMs);
    expect(await unregistered(world, second)).toBe(3);
    // None is left when the code is registered and the runs have ended.
    second.runtime.register("agent", { durable: true, version: "1" }, async (_input, { ask, step }) => {
      if (does === "is in a step") await step("work", () => 1);
      else if (does === "waits with a deadline") await ask("Well?", { timeoutMs: LONG_MS });
      else await ask("Well?");
    });
    await world.pass(3 * durability.leaseMs);
    expect(await unregistered(world, second)).toBe(0);
  });
});

/** The first process has matching code, the others have other code, until they register the matching one. */
function divided() {
  const replayed: string[] = [];
  const ended = new Map<string, number>();
  const fitting = (process: Process, replace: boolean): void =>
    void process.runtime.register("agent", { durable: true, replace }, async (_input, { step }) => {
      await step("one", () => 1);
      await step("two", () => process.wait(process.name === "process-1" ? 2 * LONG_MS : 10));
    });
  const world = new World({
    runtime: { durability },
    register: (process) => {
      const { runtime, name } = process;
      runtime.register("sound", { durable: true }, async (_input, { step, run_id }) => {
        await step("work", () => process.wait(name === "process-1" ? 2 * LONG_MS : 10));
        ended.set(run_id, world.now);
      });
      if (name === "process-1") {
        runtime.register("missing", { durable: true }, (_input, { step }) =>
          step("work", () => process.wait(2 * LONG_MS)),
        );
        fitting(process, false);
      } else
        runtime.register("agent", { durable: true }, async (_input, { step, run_id }) => {
          replayed.push(run_id);
          await step("another", () => 1);
        });
    },
  });
  return { world, replayed, ended, fitting };
}

describe("a run whose code does not match its history", () => {
  it("is replayed once, and not again by any process", async () => {
    const { world, replayed } = divided();
    const first = world.start();
    const ids = await createMany(world, first, MANY);
    await world.pass(200);
    first.kill();
    for (let process = 0; process < 3; process++) world.start();
    await world.pass(LONG_MS);
    expect(replayed).toHaveLength(MANY);
    expect(new Set(replayed)).toEqual(new Set(ids));
    // A process that starts later registers the same code: it may replay the run once.
    world.start();
    await world.pass(LONG_MS);
    expect(replayed.length).toBeLessThanOrEqual(2 * MANY);
  });

  it("refuses an answer in every process, and is replayed by none of them twice", async () => {
    const replayed: string[] = [];
    const world = new World({
      runtime: { durability },
      register: ({ runtime, name }) =>
        void runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
          if (name !== "process-1") replayed.push(name);
          await step(name === "process-1" ? "one" : "another", () => 1);
          await ask("Well?");
        }),
    });
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(200);
    first.kill();
    const others = [world.start(), world.start()];
    for (let attempt = 0; attempt < 3; attempt++) {
      for (const process of others) {
        const answering = process.runtime.resume({ run_id, await_resume: { ok: true } });
        answering.catch(() => {});
        const outcome = await world.until(answering, process);
        expect(outcome).toMatchObject({ error: { code: expect.stringMatching(/^run_(blocked|blocked)$/), run_id } });
        await world.pass(3_000);
      }
    }
    expect(new Set(replayed).size).toBe(replayed.length);
    expect((await world.stateOf(run_id)).status).toBe("awaiting");
  });

  it("goes on in the process that registers matching code, once", async () => {
    const { world, fitting } = divided();
    const first = world.start();
    const ids = await createMany(world, first, MANY);
    await world.pass(200);
    first.kill();
    world.start();
    const third = world.start();
    await world.pass(10_000);
    fitting(third, true);
    await world.pass(3 * durability.leaseMs);
    expect(await statuses(world, ids)).toEqual({ completed: MANY });
    for (const process of world.living) expect(JSON.stringify(await statsOf(world, process))).not.toContain(ids[0]);
  });

  it("does not affect a run with matching code", async () => {
    const { world } = divided();
    const first = world.start();
    const blocked = await createMany(world, first, 400);
    const missing = await createMany(world, first, 400, "missing");
    // The youngest run is the last of the scan.
    const sound = await createMany(world, first, MANY, "sound");
    await world.pass(200);
    first.kill();
    world.start();
    await world.pass(durability.leaseMs + 2 * durability.scanMs);
    expect(await statuses(world, sound)).toEqual({ completed: MANY });
    expect(await statuses(world, [...blocked, ...missing])).toEqual({ "in-progress": 800 });
  });

  it("is replayed by no worker twice beside runs without code, and sound runs go on as soon as without both", async () => {
    /** When each sound run of the dead process has ended, and one that each worker then creates. */
    const ends = async (others: number): Promise<readonly number[]> => {
      const { world, replayed, ended } = divided();
      const first = world.start();
      const blocked = await createMany(world, first, others);
      const missing = await createMany(world, first, others, "missing");
      const sound = await createMany(world, first, MANY, "sound");
      await world.pass(200);
      const diedAt = world.now;
      first.kill();
      const workers = [world.start(), world.start(), world.start()];
      await world.pass(LONG_MS);
      for (const worker of workers) {
        sound.push(await create(world, worker, "sound"));
        await world.pass(LONG_MS);
      }
      // Which worker replays a run is not said. None does again.
      expect(replayed.sort()).toEqual(blocked.sort());
      expect(await statuses(world, missing)).toEqual(others === 0 ? {} : { "in-progress": others });
      expect(await statuses(world, sound)).toEqual({ completed: MANY + workers.length });
      return sound.map((run_id) => (ended.get(run_id) ?? Number.NaN) - diedAt);
    };
    const alone = await ends(0);
    expect(await ends(MANY)).toEqual(alone);
  });

  it("can be cancelled", async () => {
    const { world } = divided();
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(200);
    first.kill();
    const [, third] = [world.start(), world.start()];
    await world.pass(10_000);
    given(await world.until(third.runtime.cancel(run_id), third));
    // It is replayed once more, since matching code would run its `finally` blocks.
    await world.pass(10_000);
    expect((await world.stateOf(run_id)).status).toBe("cancelled");
  });
});

describe("a replay that makes no progress since its process is frozen", () => {
  it("is no mismatch", async () => {
    const STEPS = 100;
    const world = new World({
      late: true,
      runtime: { durability },
      register: (process) =>
        void process.runtime.register("agent", { durable: true }, async (_input, { step, ask }) => {
          for (let n = 0; n < STEPS; n++) await step("work", () => n);
          await ask("Well?");
        }),
    });
    const first = world.start();
    const run_id = await create(world, first);
    await world.pass(1_000);
    first.kill();
    const second = world.start();
    await world.pass(1_000);
    const resuming = second.runtime.resume({ run_id, await_resume: { ok: true } });
    // In the middle of the replay the process freezes, for longer than a replay may make no progress.
    for (let step = 0; step < STEPS; step++) await world.step();
    const timers = [...second.timers];
    second.freeze();
    world.now += 60_000;
    second.thaw();
    // As in a real event loop, the timers that are due come first.
    for (const timer of timers.filter(({ at }) => at <= world.now)) {
      second.timers.delete(timer);
      timer.callback();
    }
    expect(given(await world.until(resuming, second)).status).toBe("completed");
    expect(second.said.filter((line) => /blocked|blocked/.test(line))).toEqual([]);
  });
});

it("a run that waits for its slot after matching code was registered is not blocked again by the process that had blocked it", async () => {
  const world = new World({
    runtime: { durability },
    register: (process) => {
      const isOther = process.name === "process-2";
      const wait = () => process.wait(process.name === "process-3" ? 10 : 10 * LONG_MS);
      process.runtime.register(
        "agent",
        { durable: true, concurrency: { max: 1 } },
        async (input, { step, receive }) => {
          if (input[0]?.parts[0]?.content === "holds the slot") return step("work", wait);
          // The other code waits for something that is not in the history: the run stays loaded, and is blocked.
          if (isOther) return step("another", () => 1);
          await step("one", () => 1);
          await step("two", wait);
          return receive("news");
        },
      );
    },
  });
  const first = world.start();
  const run_id = await create(world, first);
  const headOf = async (id: string) => (await world.store.find({ tenant: "", run_id: id }))?.head;
  await world.pass(200);
  first.kill();
  const second = world.start();
  await world.pass(LONG_MS);
  expect(await headOf(run_id)).toMatchObject({ owner: null, blocked: { expected: "the result of one#1" } });
  const holder = await create(world, second, "agent", "holds the slot");
  await world.pass(200);
  expect(await headOf(holder)).toMatchObject({ owner: second.name, holds_slot: true });
  world.start();
  await world.pass(500);
  expect(await headOf(run_id)).toMatchObject({ owner: null, blocked: null, due_at: expect.any(Number) });

  given(await world.until(second.runtime.send({ to: run_id, name: "news", data: "heard" }), second));
  await world.pass(500);
  expect(await headOf(run_id)).toMatchObject({ blocked: null });
  second.kill();
  await world.pass(10 * durability.leaseMs);
  expect(await statuses(world, [run_id, holder])).toEqual({ completed: 2 });
  expect(world.violations).toEqual([]);
});
