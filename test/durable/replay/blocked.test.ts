import type { AgentFunction, CadenzaError, RuntimeStats, StreamedEvent } from "cadenza";
import { AgentRuntime, MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { FakeClock } from "../../harness/clock.ts";
import { onDurableStore } from "../../harness/durable-runtime.ts";
import { silentLogger } from "../../harness/internals.ts";
import { deferred, nextTurn } from "../../harness/promises.ts";
import { drain, refusal, typesOf } from "../../harness/runtimes.ts";
import { openDatabase, withFile } from "../../harness/sqlite-files.ts";
import { hookedStore, lastingStore } from "../../harness/store-proxy.ts";
import { create, createMany, given, statuses } from "../../harness/world/calls.ts";
import { inMemory } from "../../harness/world/replicas.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * A run whose code does not match its history waits for matching code. Each caller that waits for such a run is told so
 * as soon as the mismatch is found, and each later caller at once.
 */

/** Longer than the time that a replay may make no progress. */
const LONG_MS = 8_000;

/** Ends where its history holds a question: the mismatch is found at once. */
const endsEarly: AgentFunction = (_input, { step }) => step("find a train", () => "RE 5");
/** Waits for a step that its history does not hold: the mismatch is found after a time without progress. */
const asksForOther: AgentFunction = (_input, { step }) => step("walk", () => "away");
const mismatching = { "ends early": endsEarly, "asks for something else": asksForOther };

const trip: AgentFunction = async (_input, { step, ask }) => {
  const train = await step("find a train", () => "RE 5");
  await step("wait", () => new Promise(() => {}));
  await ask(`Take ${train}?`);
};

/** A run that was in progress when its process died, and a process with other code for it. */
async function restart(agent: AgentFunction) {
  const world = new World({ register: () => {} });
  const first = world.start();
  first.runtime.register("trip", { durable: true }, trip);
  const request = { agent_name: "trip", input: "Berlin" };
  const creating = first.runtime.createRun({ ...request, mode: "async" }, { idempotencyKey: "order 7" });
  const outcome = await world.until(creating, first);
  if (outcome === undefined || "error" in outcome) throw new Error("The run was not created.");
  await world.settle();
  first.kill();
  const next = world.start();
  next.runtime.register("trip", { durable: true }, agent);
  return { world, next, request, run_id: outcome.value.run_id };
}

function sentence(run_id: string, position: number, history: string, code: string): string {
  return (
    `Run ${run_id} is blocked: the registered code of "trip" does not match its history at position ${position} ` +
    `(history: ${history}; code: ${code}). Register matching code, or cancel the run.`
  );
}

it("a caller that cancels a blocked run and waits for its end is not refused while its code is tried again", () =>
  withFile(async (file) => {
    const clock = new FakeClock();
    const withCode = (agent: AgentFunction): AgentRuntime => {
      const store = new SqliteStore(openDatabase(file), { clock, closeDatabase: true });
      return new AgentRuntime({ clock, store }).register("trip", { durable: true }, agent);
    };
    const first = withCode(async (_input, { step, ask }) => {
      await step("find a train", () => "RE 5");
      await ask("Take it?");
    });
    const { run_id } = await first.createRun({ agent_name: "trip", input: "Berlin" });
    await first.close();
    const next = withCode(asksForOther);
    const refused = refusal(next.resume({ run_id, await_resume: { ok: true } }));
    await clock.advance(LONG_MS);
    expect(await refused).toMatchObject({ code: "run_blocked" });
    const cancelled = next.cancel(run_id, { wait: true }).catch((error: unknown) => error);
    await clock.advance(LONG_MS);
    expect(await cancelled).toMatchObject({ status: "cancelled" });
    await next.close();
  }));

describe.each(Object.entries(mismatching))("a run whose code %s", (_name, agent) => {
  const [position, history, code] =
    agent === endsEarly
      ? ([4, "wait#1", "the agent returned"] as const)
      : ([2, "the result of find a train#1", "walk#1"] as const);

  it("refuses each call that waits for it, with the reason", async () => {
    const { world, next, request, run_id } = await restart(agent);
    const { runtime } = next;
    const told: Promise<CadenzaError>[] = [
      refusal(runtime.createRun(request, { idempotencyKey: "order 7" })),
      refusal(lastOf(runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey: "order 7" }))),
      refusal(lastOf(runtime.events(run_id))),
      refusal(lastOf(runtime.events(run_id, { until: "end" }))),
    ];
    await world.pass(LONG_MS);
    // These calls come when the mismatch is known.
    told.push(
      refusal(runtime.createRun(request, { idempotencyKey: "order 7" })),
      refusal(lastOf(runtime.createRun({ ...request, mode: "stream" }, { idempotencyKey: "order 7" }))),
      refusal(lastOf(runtime.events(run_id))),
      refusal(lastOf(runtime.events(run_id, { until: "end" }))),
    );
    const outcome = await world.until(Promise.all(told), next);
    if (outcome === undefined || "error" in outcome) throw outcome?.error;
    for (const error of outcome.value) {
      expect(error).toMatchObject({ code: "run_blocked", run_id, agent_name: "trip" });
      expect(error.message).toBe(sentence(run_id, position, history, code));
    }
  });

  it("can still be read and cancelled", async () => {
    const { world, next, run_id } = await restart(agent);
    const { runtime } = next;
    await world.pass(LONG_MS);
    const seen: StreamedEvent[] = [];
    const reading = (async () => {
      for await (const event of runtime.events(run_id, { until: "end" })) seen.push(event);
    })();
    await world.until(reading, next);
    expect(typesOf(seen)).toEqual(["run.created", "run.in-progress"]);
    expect(await world.until(drain(runtime.events(run_id, { until: "now" })), next)).toEqual({ value: seen });
    expect(await world.until(runtime.getRun(run_id), next)).toMatchObject({ value: { status: "in-progress" } });
    expect(await world.until(runtime.cancel(run_id), next)).toMatchObject({ value: { status: "cancelling" } });
    await world.pass(LONG_MS);
    expect(await world.until(runtime.getRun(run_id), next)).toMatchObject({ value: { status: "cancelled" } });
  });

  it("can be waited for again when matching code is registered", async () => {
    const { world, next, request } = await restart(agent);
    const { runtime } = next;
    await world.pass(LONG_MS);
    runtime.register("trip", { durable: true, replace: true }, async (_input, { step }) => {
      await step("find a train", () => "RE 5");
      await step("wait", () => "waited");
    });
    const again = runtime.createRun(request, { idempotencyKey: "order 7" });
    expect(await world.until(again, next)).toMatchObject({ value: { status: "completed" } });
  });
});

describe("with alwaysReplay", () => {
  const branches: Record<string, (isFirst: boolean) => AgentFunction> = {
    "a branch":
      (isFirst) =>
      async (_input, { step }) => {
        await step(isFirst ? "a" : "b", () => 1);
        await step("c", () => 1);
      },
    "an early end":
      (isFirst) =>
      async (_input, { step }) => {
        if (isFirst) await step("a", () => 1);
      },
    "a branch behind an answer":
      (isFirst) =>
      async (_input, { step, ask }) => {
        if (isFirst) await ask("Go on?");
        else await step("b", () => 1);
      },
  };

  it.each(Object.entries(branches))(
    "%s by a random choice is a mismatch, and told to the caller in each mode",
    async (_name, agent) => {
      const clock = new FakeClock();
      const runtime = new AgentRuntime(onDurableStore({ durability: { alwaysReplay: true }, clock }));
      runtime.register("agent", { durable: true }, (input, context) => {
        calls += 1;
        return agent(calls === 1)(input, context);
      });
      let calls = 0;
      const sync = refusal(
        runtime.createRun({ agent_name: "agent", input: "" }).then(async (run) => {
          // A run that is awaiting already needs an answer.
          return run.status === "awaiting" ? runtime.resume({ run_id: run.run_id, await_resume: { ok: true } }) : run;
        }),
      );
      await clock.advance(2_000);
      expect(await sync).toMatchObject({ code: "run_blocked" });
      calls = 0;
      const stream = refusal(drainWithAnswer(runtime));
      await clock.advance(2_000);
      expect(await stream).toMatchObject({ code: "run_blocked" });
    },
  );

  it("a run that waits for a sub-run that is blocked is told of it", async () => {
    const clock = new FakeClock();
    const runtime = new AgentRuntime(
      onDurableStore({ durability: { alwaysReplay: true }, clock, store: new MemoryStore() }),
    );
    let calls = 0;
    runtime.register("child", { durable: true }, async (_input, { step }) => {
      calls += 1;
      await step(`${calls}`, () => 1);
    });
    runtime.register("parent", { durable: true }, async (_input, { run }) => {
      await run("child", "");
    });
    runtime.register("grandparent", { durable: true }, async (_input, { run }) => {
      await run("parent", "");
    });
    const sync = refusal(runtime.createRun({ agent_name: "grandparent", input: "" }));
    await clock.advance(2_000);
    const error = await sync;
    const [blocked] = (await runtime.stats()).blocked;
    expect(error).toMatchObject({ code: "run_blocked", run_id: blocked?.run_id, agent_name: "child" });
    expect(error.message).toContain(`Run ${blocked?.run_id} is blocked`);
    const { run_id = "" } = (await runtime.listRuns({ agent_name: "grandparent" }))[0] ?? {};
    expect(await refusal(lastOf(runtime.events(run_id)))).toMatchObject({ code: "run_blocked" });
  });
});

/** Reads to the end, and gives the last event. */
async function lastOf(stream: AsyncIterable<StreamedEvent>): Promise<StreamedEvent | undefined> {
  return (await drain(stream)).at(-1);
}

/** Runs the agent as a stream, and answers its question as a stream. */
async function drainWithAnswer(runtime: AgentRuntime): Promise<void> {
  let awaiting: string | undefined;
  for await (const event of runtime.createRun({ agent_name: "agent", input: "", mode: "stream" }))
    if (event.type === "run.awaiting") awaiting = event.run.run_id;
  if (awaiting === undefined) return;
  await nextTurn();
  await drain(runtime.resume({ run_id: awaiting, await_resume: { ok: true }, mode: "stream" }));
}

/*
 * Runs that no process can execute: their code is missing, or does not match their history. They cost nothing, and
 * affect no other run.
 */

const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } as const;
const MANY = 50;
const WORK_MS = 60_000;

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
          if (does === "is in a step") await step("work", () => process.wait(WORK_MS));
          else if (does === "waits with a deadline") await ask("Well?", { timeoutMs: WORK_MS });
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
      else if (does === "waits with a deadline") await ask("Well?", { timeoutMs: WORK_MS });
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
      await step("two", () => process.wait(process.name === "process-1" ? 2 * WORK_MS : 10));
    });
  const world = new World({
    runtime: { durability },
    register: (process) => {
      const { runtime, name } = process;
      runtime.register("sound", { durable: true }, async (_input, { step, run_id }) => {
        await step("work", () => process.wait(name === "process-1" ? 2 * WORK_MS : 10));
        ended.set(run_id, world.now);
      });
      if (name === "process-1") {
        runtime.register("missing", { durable: true }, (_input, { step }) =>
          step("work", () => process.wait(2 * WORK_MS)),
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
    await world.pass(WORK_MS);
    expect(replayed).toHaveLength(MANY);
    expect(new Set(replayed)).toEqual(new Set(ids));
    // A process that starts later registers the same code: it may replay the run once.
    world.start();
    await world.pass(WORK_MS);
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
      await world.pass(WORK_MS);
      for (const worker of workers) {
        sound.push(await create(world, worker, "sound"));
        await world.pass(WORK_MS);
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

describe("blocked runs of a process with few places", () => {
  const MAX = 5;

  /**
   * Runs that the second process blocks. `other`: how its code mismatches. `now`: the process that is to register other
   * code. `isSame`: it is the second one, in which blocked runs may be loaded.
   */
  async function manyBlocked(other: "ends early" | "asks for something else", isSame: boolean) {
    const replayed: string[] = [];
    const seen = { atWork: 0, most: 0 };
    const matching: AgentFunction = async (_input, { step, run_id }) => {
      replayed.push(run_id);
      await step("one", () => 1);
      await step("two", async () => {
        seen.atWork += 1;
        seen.most = Math.max(seen.most, seen.atWork);
        await now.wait(500);
        seen.atWork -= 1;
      });
    };
    const world = new World({ runtime: { durability, work: { max: MAX } }, register: () => {} });
    const first = world.start();
    first.runtime.register("agent", { durable: true }, async (_input, { step }) => {
      await step("one", () => 1);
      await step("two", () => first.wait(10 * WORK_MS));
    });
    const ids = await createMany(world, first, MANY);
    await world.pass(200);
    first.kill();
    const second = world.start();
    second.runtime.register("agent", { durable: true }, mismatching[other]);
    await world.pass(WORK_MS);
    expect((await statsOf(world, second)).blocked).toHaveLength(MANY);
    const now = isSame ? second : world.start();
    return { world, now, ids, replayed, seen, matching };
  }

  it.each([
    ["ends early", false],
    ["asks for something else", false],
    ["ends early", true],
    ["asks for something else", true],
  ] as const)(
    "go on with matching code as soon as there is a place, each once (other code %s, in the same process: %s)",
    async (other, isSame) => {
      const { world, now, ids, replayed, seen, matching } = await manyBlocked(other, isSame);
      now.runtime.register("agent", { durable: true, replace: isSame }, matching);
      await world.pass((MANY / MAX) * 1_000);
      expect(seen.most).toBe(MAX);
      expect(await statuses(world, ids)).toEqual({ completed: MANY });
      expect(replayed.sort()).toEqual(ids.sort());
      expect(world.violations).toEqual([]);
    },
  );

  it("are tried at once if a caller needs them", async () => {
    const { world, now, ids, seen, matching } = await manyBlocked("ends early", false);
    now.runtime.register("agent", { durable: true }, matching);
    await world.pass(100);
    expect(seen.atWork).toBe(MAX);
    const ended = drain(now.runtime.events(ids.at(-1) ?? "", { until: "end" }));
    await world.pass(100);
    expect(seen.atWork).toBe(MAX + 1);
    expect(typesOf(given(await world.until(ended, now))).at(-1)).toBe("run.completed");
  });

  it("are tried once with code that does not match either, also if a caller needs them before their turn", async () => {
    const { world, now, ids } = await manyBlocked("ends early", false);
    const again: string[] = [];
    now.runtime.register("agent", { durable: true }, (_input, { step, run_id }) => {
      again.push(run_id);
      return step("another", () => 1);
    });
    const youngest = ids.at(-1) ?? "";
    const refused = refusal(lastOf(now.runtime.events(youngest, { until: "end" })));
    await world.pass((MANY / MAX) * LONG_MS);
    expect(await refused).toMatchObject({ code: "run_blocked", run_id: youngest });
    expect(again.sort()).toEqual(ids.sort());
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
      const wait = () => process.wait(process.name === "process-3" ? 10 : 10 * WORK_MS);
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
  await world.pass(WORK_MS);
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

it("a run to which messages are sent while it is claimed for its matching code goes on", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const matching: AgentFunction = async (_input, { receive }) => `${await receive("news")}`;
  const first = replicas.start({ durability });
  first.runtime.register("trip", { durable: true }, matching);
  const { run_id } = await first.runtime.createRun({ agent_name: "trip", input: "", mode: "async" });
  await clock.settle();
  await first.runtime.close();
  const second = replicas.start({ durability });
  second.runtime.register("trip", { durable: true }, endsEarly);
  await second.runtime.send({ to: run_id, name: "other", data: 1 });
  await clock.advance(LONG_MS);
  expect((await second.runtime.stats()).blocked).toHaveLength(1);
  let messages = 3;
  const third = replicas.start({ durability }, async (call, method) => {
    if (method === "claim" && messages-- > 0) await second.runtime.send({ to: run_id, name: "news", data: messages });
    return call();
  });
  third.runtime.register("trip", { durable: true }, matching);
  await clock.advance(LONG_MS);
  expect((await second.runtime.getRun(run_id)).status).toBe("completed");
});

it.each(["blocked", "claim"] as const)(
  "a run for whose matching code the store fails at `%s` is tried by the next heartbeat",
  async (method) => {
    const clock = new FakeClock();
    const lasting = lastingStore(clock);
    const withCode = (agent: AgentFunction, store: Store = lasting): AgentRuntime =>
      new AgentRuntime({ clock, store: durable(store, durability), logger: silentLogger }).register(
        "trip",
        { durable: true },
        agent,
      );
    const ended = deferred<string>();
    const matching: AgentFunction = async (_input, { step, ask }) => {
      await step("find a train", () => "RE 5");
      await ask("Take it?");
    };
    const first = withCode(matching);
    const { run_id } = await first.createRun({ agent_name: "trip", input: "Berlin" });
    await first.close();
    const other = withCode(endsEarly);
    const answered = refusal(other.resume({ run_id, await_resume: { ok: true } }));
    await clock.advance(LONG_MS);
    expect(await answered).toMatchObject({ code: "run_blocked" });
    await other.close();

    let failures = 1;
    const failing = hookedStore((call, called) => {
      if (called !== method || failures === 0) return call();
      failures -= 1;
      throw new Error("The store is away.");
    }, lasting);
    const next = withCode(async (input, context) => {
      await matching(input, context);
      ended.resolve("ended");
    }, failing);
    await nextTurn();
    expect(failures).toBe(0);
    expect((await lasting.find({ tenant: "", run_id }))?.head.blocked).not.toBeNull();
    await clock.advance(durability.heartbeatMs);
    await next.resume({ run_id, await_resume: { ok: true } });
    expect(await ended.promise).toBe("ended");
    await next.close();
  },
);
