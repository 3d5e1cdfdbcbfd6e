import type { AgentContext, AgentOptions, Clock } from "cadenza";
import { describe, expect, it } from "vitest";
import type { FakeClock } from "../../harness/clock.ts";
import { withMembers } from "../../harness/port-proxy.ts";
import { reply, setUp } from "../../harness/runtimes.ts";
import type { Hook } from "../../harness/store-proxy.ts";
import type { Replica, Replicas } from "../../harness/world/replicas.ts";
import { inMemory, onFile } from "../../harness/world/replicas.ts";

/* What counts for the `timeoutMs` of a run, over processes, evictions, queues and outages. */

const LIMIT_MS = 5_000;
const HOUR_MS = 3_600_000;
/** How long something is waited for: longer than any limit here. */
const WAIT_MS = 20_000;
const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: 200 };

const opened = [
  { on: "in memory", open: inMemory },
  { on: "on a file", open: onFile },
];

/** Work of a step. */
function worker(clock: FakeClock) {
  return ({ step }: Pick<AgentContext, "step">, ms: number) =>
    step("work", () => new Promise<void>((resolve) => void clock.setTimeout(resolve, ms)));
}

async function create({ runtime }: Pick<Replica, "runtime">, agent_name = "agent"): Promise<string> {
  return (await runtime.createRun({ agent_name, input: "", mode: "async" })).run_id;
}

/** The status of a run, with the reason for which it has failed. */
async function endOf({ runtime }: Pick<Replica, "runtime">, run_id: string): Promise<string> {
  const { status, error } = await runtime.getRun(run_id);
  const reason = error?.data?.["reason"];
  return reason === undefined ? status : `${status}: ${String(reason)}`;
}

/** The active time that the log of a run records, entry by entry. */
async function recorded({ store }: Pick<Replica, "store">, run_id: string): Promise<(number | undefined)[]> {
  const entries = (await store.read({ tenant: "", run_id }, 0, 1_000)) ?? [];
  return entries.flatMap((entry) => ("active_ms" in entry ? [entry.active_ms] : []));
}

const IN_TIME = "completed";
const LATE = "failed: run_timeout";

describe("the queue for a slot", () => {
  const queues = [
    { of: "a plain run", durable: false, per: "agent", open: inMemory, on: "in memory" },
    { of: "a plain run", durable: false, per: "process", open: inMemory, on: "in memory" },
    { of: "a durable run", durable: true, per: "agent", open: inMemory, on: "in memory" },
    { of: "a durable run", durable: true, per: "process", open: inMemory, on: "in memory" },
    { of: "a durable run", durable: true, per: "agent", open: onFile, on: "on a file" },
  ] as const;

  function begin(open: () => Replicas, durable: boolean, per: "agent" | "process") {
    const replicas = open();
    const { clock } = replicas;
    const replica = replicas.start({ durability });
    const work = worker(clock);
    const options = { durable, concurrency: { max: 1, per }, timeoutMs: LIMIT_MS } as const;
    const body = async (context: AgentContext, lastMs: number): Promise<void> => {
      await work(context, 1_000);
      await context.ask("Go on?");
      await work(context, lastMs);
    };
    replica.runtime.register("agent", options, async (input, context) =>
      body(context, Number(input[0]?.parts[0]?.content)),
    );
    const ask = async (lastMs: number): Promise<string> => {
      const input = `${lastMs}`;
      const { run_id } = await replica.runtime.createRun({ agent_name: "agent", input, mode: "async" });
      await clock.advance(1_500);
      return run_id;
    };
    const answer = (run_id: string) =>
      replica.runtime.resume({ run_id, await_resume: reply("yes"), mode: "async" }).then(() => clock.settle());
    return { clock, replica, ask, answer };
  }

  it.each(queues)("does not count for $of that goes on ($per, $on)", async ({ durable, per, open }) => {
    const { clock, replica, ask, answer } = begin(open, durable, per);
    const [busy, late, inTime] = [await ask(3_900), await ask(4_100), await ask(3_900)];
    await answer(busy);
    await clock.advance(500);
    await answer(inTime);
    await answer(late);
    await clock.advance(20_000);
    expect(await endOf(replica, busy)).toBe(IN_TIME);
    expect(await endOf(replica, inTime)).toBe(IN_TIME);
    expect(await endOf(replica, late)).toBe(LATE);
  });

  it.each([true, false])("does not count for a step that begins beside a question (durable: %s)", async (durable) => {
    expect(await workedBeside(durable, 4_000)).toEqual([IN_TIME, IN_TIME, IN_TIME]);
    expect(await workedBeside(durable, 6_000)).toEqual([LATE, LATE, LATE]);
  });

  /** The ends of three runs, which do this work one after the other. */
  async function workedBeside(durable: boolean, ms: number): Promise<string[]> {
    const replicas = inMemory();
    const { clock } = replicas;
    const replica = replicas.start({ durability });
    const work = worker(clock);
    const options = { durable, concurrency: { max: 1, per: "process" }, timeoutMs: LIMIT_MS } as const;
    replica.runtime.register("agent", options, async (_input, context) => {
      const beside = context.ask("Well?", { name: "beside" });
      await context.ask("Begin?", { name: "first" });
      await work(context, ms);
      await beside;
    });
    const ids = [await create(replica), await create(replica), await create(replica)];
    await clock.advance(100);
    for (const run_id of ids) {
      const { await_requests } = await replica.runtime.details(run_id);
      const await_id = await_requests.find(({ name }) => name === "first")?.await_id;
      await replica.runtime.resume({ run_id, await_id, await_resume: {}, mode: "async" });
    }
    await clock.advance(20_000);
    for (const run_id of ids)
      await replica.runtime.resume({ run_id, await_resume: {}, mode: "async" }).catch(() => undefined);
    await clock.settle();
    return Promise.all(ids.map((run_id) => endOf(replica, run_id)));
  }
});

describe("an outage of the store", () => {
  const outages = ["throws", "rejects", "answers late with an error"] as const;

  /** A process on a store that can be down. */
  function begin(how: (typeof outages)[number], clockOf: (clock: FakeClock) => Clock = (clock) => clock) {
    const replicas = inMemory();
    const { clock } = replicas;
    let isDown = false;
    const hook: Hook = (call) => {
      if (!isDown) return call();
      const error = new Error("the store is down");
      if (how === "throws") throw error;
      if (how === "rejects") return Promise.reject(error);
      return new Promise((_resolve, reject) => void clock.setTimeout(() => reject(error), 400));
    };
    const replica = replicas.start({ durability, clock: clockOf(clock) }, hook);
    const outage = async (ms: number): Promise<void> => {
      isDown = true;
      await clock.advance(ms);
      isDown = false;
    };
    return { clock, replica, outage, work: worker(clock) };
  }

  const cases = outages.flatMap((how) => [
    { how, durable: true, emits: true },
    { how, durable: false, emits: true },
    // It writes nothing. Its next step waits for the lease.
    { how, durable: false, emits: false },
  ]);

  it.each(cases)("does not count (it $how, durable: $durable, emits: $emits)", async ({ how, durable, emits }) => {
    const { clock, replica, outage, work } = begin(how);
    replica.runtime.register("agent", { durable, timeoutMs: LIMIT_MS }, async (input, context) => {
      await work(context, 2_000);
      if (emits) await context.emit("two");
      await work(context, Number(input[0]?.parts[0]?.content));
    });
    const ids: string[] = [];
    for (const input of ["2900", "30000"])
      ids.push((await replica.runtime.createRun({ agent_name: "agent", input, mode: "async" })).run_id);
    await clock.advance(500);
    await outage(3 * LIMIT_MS);
    await clock.advance(10_000);
    expect(await Promise.all(ids.map((run_id) => endOf(replica, run_id)))).toEqual([IN_TIME, LATE]);
  });

  it("does not count for a run whose sub-run cannot be written", async () => {
    const { clock, replica, outage, work } = begin("throws");
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, (_input, { run }) => run("child", ""));
    replica.runtime.register("child", { durable: true }, (_input, context) => work(context, 2_000));
    const run_id = await create(replica);
    await clock.advance(1_000);
    await outage(3 * LIMIT_MS);
    await clock.advance(3_000);
    expect(await endOf(replica, run_id)).toBe(IN_TIME);
  });

  it("counts what is at work while the store takes nothing, and ends the run as soon as it is written", async () => {
    const { clock, replica, outage, work } = begin("throws");
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, (_input, context) =>
      work(context, 100_000),
    );
    const run_id = await create(replica);
    await clock.advance(1_000);
    await outage(2 * LIMIT_MS);
    await clock.advance(2_000);
    expect(await endOf(replica, run_id)).toBe(LATE);
  });

  it("counts again when the store has taken what was retried", async () => {
    const { clock, replica, outage } = begin("throws");
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, { step }) => {
      await step("work", async ({ emit }) => {
        await new Promise<void>((resolve) => void clock.setTimeout(resolve, 1_000));
        await emit("something");
        await new Promise<void>((resolve) => void clock.setTimeout(resolve, HOUR_MS));
      });
    });
    const run_id = await create(replica);
    await clock.advance(900);
    await outage(2 * LIMIT_MS);
    // Until the next attempt at the write, and then for the rest of the limit.
    await clock.advance(LIMIT_MS - 1_000);
    expect(await endOf(replica, run_id)).toBe("in-progress");
    await clock.advance(6_000);
    expect(await endOf(replica, run_id)).toBe(LATE);
  });

  it("is none while a question is written late", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    let lateMs = 0;
    const replica = replicas.start({ durability }, (call, method) => {
      if (method !== "append" || lateMs === 0) return call();
      return new Promise((resolve) => void clock.setTimeout(() => resolve(call()), lateMs));
    });
    const work = worker(clock);
    replica.runtime.register("agent", { timeoutMs: LIMIT_MS }, async (_input, context) => {
      await work(context, 1_000);
      lateMs = 2 * LIMIT_MS;
      await context.ask("Well?");
      await work(context, 3_000);
    });
    const run_id = await create(replica);
    await clock.advance(3 * LIMIT_MS);
    expect(await endOf(replica, run_id)).toBe("awaiting");
    lateMs = 0;
    await replica.runtime.resume({ run_id, await_resume: {}, mode: "async" });
    await clock.advance(4_000);
    expect(await endOf(replica, run_id)).toBe(IN_TIME);
  });

  it("is none although a write is always under way", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    const replica = replicas.start({ durability }, (call, method) => {
      if (method !== "append") return call();
      return new Promise((resolve) => void clock.setTimeout(() => resolve(call()), 30));
    });
    replica.runtime.register("agent", { timeoutMs: 1_000, durable: true }, async function* () {
      for (;;) {
        await new Promise<void>((resolve) => void clock.setTimeout(resolve, 10));
        yield ".";
      }
    });
    const run_id = await create(replica);
    await clock.advance(2_000);
    expect(await endOf(replica, run_id)).toBe(LATE);
  });

  it("does not count while a session cannot be read", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    let isDown = false;
    const replica = replicas.start({ durability }, (call, method) => {
      if (isDown && method === "sessionHead") throw new Error("the store is down");
      return call();
    });
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, { session }) =>
      JSON.stringify(await session.getState()),
    );
    isDown = true;
    const run_id = await create(replica);
    await clock.advance(3 * LIMIT_MS);
    expect(await endOf(replica, run_id)).toBe("in-progress");
    isDown = false;
    await clock.advance(3_000);
    expect(await endOf(replica, run_id)).toBe(IN_TIME);
  });
});

/** A clock that shows another time, and runs at the same rate. */
function shifted(clock: FakeClock, byMs: number): Clock {
  return {
    now: () => clock.now() + byMs,
    monotonic: () => clock.monotonic() + byMs,
    setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
    turn: () => clock.turn(),
    hold: () => clock.hold(),
  };
}

describe("a run that another process takes over", () => {
  /** Starts a process whose runs have two steps of a second, and one more. Without `told` its store tells no time. */
  function start(replicas: Replicas, lastMs: number, offMs = 0, told = true): Replica {
    const { clock } = replicas;
    const hook: Hook = (call, method) => (method === "time" && !told ? undefined : call());
    const replica = replicas.start({ durability, clock: shifted(clock, offMs) }, hook);
    const work = worker(clock);
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
      await work(context, 1_000);
      await work(context, 1_000);
      await work(context, lastMs);
    });
    return replica;
  }

  const clocks = [true, false].flatMap((told) => [-HOUR_MS, 0, HOUR_MS].map((offMs) => ({ told, offMs })));

  it.each(clocks)("begins with what its log records (clock: $offMs ms, store tells the time: $told)", async (how) => {
    const { told, offMs } = how;
    for (const { lastMs, end } of [
      { lastMs: 2_900, end: IN_TIME },
      { lastMs: 3_100, end: LATE },
    ]) {
      const replicas = inMemory();
      const { clock } = replicas;
      const first = start(replicas, HOUR_MS, 0, told);
      const run_id = await create(first);
      await clock.advance(2_700);
      first.kill();
      const second = start(replicas, lastMs, offMs, told);
      await clock.advance(9_000);
      expect(await endOf(second, run_id)).toBe(end);
      const result = end === IN_TIME ? [4_900, 4_900] : [LIMIT_MS];
      expect(await recorded(second, run_id)).toEqual([1_000, 1_000, 2_000, 2_000, 2_000, ...result]);
    }
  });

  it("is not active while it is replayed", async () => {
    for (const { lastMs, end } of [
      { lastMs: 900, end: IN_TIME },
      { lastMs: 1_100, end: LATE },
    ]) {
      const replicas = inMemory();
      const { clock } = replicas;
      const start = (): Replica => {
        const replica = replicas.start({ durability });
        const work = worker(clock);
        replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
          await work(context, 2_000);
          // Not in a step: it takes its time in a replay too.
          await new Promise<void>((resolve) => void clock.setTimeout(resolve, 2_000));
          await work(context, lastMs);
        });
        return replica;
      };
      const first = start();
      const run_id = await create(first);
      await clock.advance(4_200);
      first.kill();
      const second = start();
      // A message is written while the agent is replayed.
      await clock.advance(1_500);
      expect(Object.values((await second.runtime.stats()).live)).toEqual([1]);
      await second.runtime.send({ to: run_id, name: "note", data: 1 });
      await clock.advance(10_000);
      expect(await endOf(second, run_id)).toBe(end);
    }
  });

  it("fails when what several processes have recorded adds up to its limit", async () => {
    const replicas = inMemory();
    const { clock } = replicas;
    let process: Replica | undefined;
    const begin = (): Replica => {
      const replica = replicas.start({ durability });
      const work = worker(clock);
      replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async function* (_input, context) {
        for (let n = 0; ; n++) {
          await work(context, 500);
          yield `${n}`;
        }
      });
      return replica;
    };
    process = begin();
    const run_id = await create(process);
    for (let crashes = 0; crashes < 3; crashes++) {
      await clock.advance(1_700);
      expect(await endOf(process, run_id)).toBe("in-progress");
      process.kill();
      process = begin();
      // The lease of the last process ends.
      await clock.advance(1_000);
    }
    await clock.advance(1_200);
    const times = await recorded(process, run_id);
    expect(times).toEqual(times.toSorted((a = 0, b = 0) => a - b));
    expect(await endOf(process, run_id)).toBe(LATE);
    expect(times.at(-1)).toBe(LIMIT_MS);
  });
});

describe("what a run waits for", () => {
  const waits = {
    "a question": ({ ask }: AgentContext) => ask("Well?", { timeoutMs: WAIT_MS, default: {} }),
    "a sleep": ({ sleep }: AgentContext) => sleep(WAIT_MS),
    "a message": ({ receive }: AgentContext) => receive("news", { timeoutMs: WAIT_MS, default: null }),
    "a sub-run that asks": ({ run }: AgentContext) => run("asks", ""),
    "a sub-run that sleeps": ({ run }: AgentContext) => run("sleeps", ""),
  } as const satisfies Record<string, (context: AgentContext) => unknown>;
  const cases = Object.entries(waits).flatMap(([what, wait]) =>
    [true, false].map((durable) => ({ what, wait, durable })),
  );

  function begin(durable: boolean, body: (context: AgentContext, work: ReturnType<typeof worker>) => Promise<unknown>) {
    const replicas = inMemory();
    const { clock } = replicas;
    const start = (): Replica => {
      const replica = replicas.start({ durability });
      const work = worker(clock);
      const { runtime } = replica;
      runtime.register("agent", { durable, timeoutMs: LIMIT_MS }, (_input, context) => body(context, work));
      runtime.register("asks", { durable }, (_input, context) => waits["a question"](context));
      runtime.register("sleeps", { durable }, (_input, context) => waits["a sleep"](context));
      return replica;
    };
    return { clock, start, replica: start() };
  }

  it.each(cases)("does not count: $what (durable: $durable)", async ({ wait, durable }) => {
    for (const { lastMs, end } of [
      { lastMs: 2_900, end: IN_TIME },
      { lastMs: 3_100, end: LATE },
    ]) {
      const { clock, replica } = begin(durable, async (context, work) => {
        await work(context, 2_000);
        await wait(context);
        await work(context, lastMs);
      });
      const run_id = await create(replica);
      await clock.advance(3_000);
      // A durable run that waits has left memory.
      expect(Object.keys((await replica.runtime.stats()).live)).toHaveLength(durable ? 0 : 1);
      await clock.advance(WAIT_MS + 5_000);
      expect(await endOf(replica, run_id)).toBe(end);
    }
  });

  it.each(cases)("counts the step at work beside it: $what (durable: $durable)", async ({ wait, durable }) => {
    const { clock, replica } = begin(durable, async (context, work) => {
      await Promise.all([
        wait(context),
        work(context, 4_000)
          .then(() => context.sleep(WAIT_MS))
          .then(() => work(context, 2_000)),
      ]);
    });
    const run_id = await create(replica);
    await clock.advance(WAIT_MS);
    expect(await endOf(replica, run_id)).toMatch(/^(awaiting|in-progress)$/);
    // The grace period of a plain agent, whose step does not stop.
    await clock.advance(5_600);
    expect(await endOf(replica, run_id)).toBe(LATE);
  });

  it.each(Object.entries(waits))("goes on elsewhere with what was recorded before it: %s", async (_what, wait) => {
    const { clock, start, replica } = begin(true, async (context, work) => {
      await work(context, 2_000);
      await wait(context);
      await work(context, 3_100);
    });
    const run_id = await create(replica);
    await clock.advance(3_000);
    replica.kill();
    const second = start();
    await clock.advance(WAIT_MS + 6_000);
    expect(await endOf(second, run_id)).toBe(LATE);
  });
});

describe("sub-runs at work", () => {
  /** The parent has a limit, and sub-runs that work, wait and work again. `beside`: it asks a question meanwhile. */
  function register({ runtime }: Replica, clock: FakeClock, children: readonly string[], beside: boolean): void {
    runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, { ask, run }) => {
      const asked = beside ? ask("Well?", { timeoutMs: WAIT_MS, default: {} }) : undefined;
      await Promise.all(children.map((name) => run(name, "")));
      await asked;
    });
    registerChildren(runtime, clock);
  }

  function registerChildren(runtime: Replica["runtime"], clock: FakeClock): void {
    const work = worker(clock);
    for (const ms of [2_400, 2_600]) {
      runtime.register(`works${ms}`, { durable: true }, async (_input, context) => {
        await work(context, ms);
        await context.sleep(WAIT_MS);
        await work(context, ms);
      });
    }
    runtime.register("top", { durable: true }, (_input, { run }) => run("works2600", ""));
  }

  const cases = [
    { children: ["works2400"], end: IN_TIME },
    { children: ["works2600"], end: LATE },
    { children: ["top"], end: LATE },
    // Side by side the time counts once.
    { children: ["works2400", "works2400"], end: IN_TIME },
    { children: ["works2400", "top"], end: LATE },
  ];

  it.each(cases.flatMap((one) => [true, false].map((beside) => ({ ...one, beside }))))(
    "count for the run above, and not while they wait ($children, beside a question: $beside)",
    async ({ children, end, beside }) => {
      const replicas = inMemory();
      const { clock } = replicas;
      const replica = replicas.start({ durability });
      register(replica, clock, children, beside);
      const run_id = await create(replica);
      await clock.advance(WAIT_MS + 2_500);
      expect(await endOf(replica, run_id)).toMatch(/^(awaiting|in-progress)$/);
      await clock.advance(2 * WAIT_MS);
      expect(await endOf(replica, run_id)).toBe(end);
    },
  );

  it.each(cases.flatMap((one) => [true, false].map((durable) => ({ ...one, durable }))))(
    "count for the run above where another process executes them ($children, durable: $durable)",
    async ({ children, end, durable }) => {
      const replicas = inMemory();
      const { clock } = replicas;
      const above = replicas.start({ durability });
      above.runtime.register("agent", { durable, timeoutMs: LIMIT_MS }, async (_input, { run }) => {
        await Promise.all(children.map((name) => run(name, "")));
      });
      for (const name of new Set(children)) above.runtime.declare({ name, durable: true });
      const below = replicas.start({ durability });
      registerChildren(below.runtime, clock);
      const run_id = await create(above);
      await clock.advance(2_000);
      // A durable run has left memory: no process measures it.
      expect((await above.runtime.stats()).live).toEqual(durable ? {} : { "in-progress": 1 });
      await clock.advance(WAIT_MS + 2_000);
      expect(await endOf(above, run_id)).toBe("in-progress");
      await clock.advance(4_000);
      expect({ end: await endOf(above, run_id) }).toEqual({ end });
    },
  );
});

it.each([
  { childMs: 4_500, end: IN_TIME },
  { childMs: 5_500, end: LATE },
])("a parent that goes on elsewhere does not count what its sub-run waits for ($childMs)", async ({ childMs, end }) => {
  const replicas = inMemory();
  const { clock } = replicas;
  const start = (): Replica => {
    const replica = replicas.start({ durability: { ...durability, evictAfterMs: HOUR_MS } });
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, (_input, { run }) => run("child", ""));
    replica.runtime.declare({ name: "child", durable: true });
    return replica;
  };
  const first = start();
  const below = replicas.start({ durability });
  const work = worker(clock);
  below.runtime.register("child", { durable: true }, async (_input, context) => {
    await context.ask("Well?", { timeoutMs: 1_000, default: {} });
    await context.sleep(WAIT_MS);
    await work(context, childMs);
  });
  const run_id = await create(first);
  await clock.advance(500);
  first.kill();
  const second = start();
  // The end of the question wakes the parent.
  await clock.advance(1_500);
  expect((await second.runtime.stats()).live).toEqual({ "in-progress": 1 });
  await clock.advance(WAIT_MS + 8_000);
  expect(await endOf(second, run_id)).toBe(end);
});

it("a sub-run may have a shorter limit of its own, and its parent goes on", async () => {
  const { runtime, clock } = setUp({ durability });
  const work = worker(clock);
  runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
    await context.run("child", "");
    await work(context, 3_500);
  });
  runtime.register("child", { durable: true, timeoutMs: 1_000 }, (_input, context) => work(context, 1_500));
  const run_id = await create({ runtime });
  await clock.advance(2_000);
  const [{ run_id: child } = { run_id: "" }] = await runtime.listRuns({ agent_name: "child" });
  expect(await endOf({ runtime }, child)).toBe(LATE);
  await clock.advance(3_000);
  expect(await endOf({ runtime }, run_id)).toBe(IN_TIME);
});

it("a run that fails for what its agent has emitted fails for that, also if a sub-run uses up the time meanwhile", async () => {
  const { runtime, clock } = setUp();
  runtime.register("agent", { timeoutMs: LIMIT_MS }, async function* (_input, context) {
    void context.run("child", "").catch(() => undefined);
    try {
      await new Promise<void>((resolve) => void clock.setTimeout(resolve, LIMIT_MS - 100));
      yield () => "no value";
    } finally {
      await new Promise<void>((resolve) => void clock.setTimeout(resolve, 400));
    }
  });
  runtime.register("child", (_input, { signal }) => {
    return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  const run_id = await create({ runtime });
  await clock.advance(2 * LIMIT_MS);
  expect(await endOf({ runtime }, run_id)).toBe("failed: invalid_yield");
});

it("the active time of a run leaves no timer where the run is released at work", async () => {
  const replicas = inMemory();
  const { clock } = replicas;
  const { runtime } = replicas.start({ durability });
  const work = worker(clock);
  runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, (_input, context) => work(context, HOUR_MS));
  await create({ runtime });
  await clock.advance(1_000);
  const closing = runtime.close({ drainMs: 0 });
  await clock.settle();
  await closing;
  // That of the step's body.
  expect(clock.timers).toBe(1);
});

describe("the agent at work outside of steps", () => {
  const before = {
    nothing: async () => undefined,
    "a question": ({ ask }: AgentContext) => ask("Well?", { timeoutMs: 1_000, default: {} }),
    "a sub-run": ({ run }: AgentContext) => run("child", ""),
    "a sub-run that sleeps": ({ run }: AgentContext) => run("sleeps", ""),
    "a step": ({ step }: AgentContext) => step("before", () => 1),
  } as const satisfies Record<string, (context: AgentContext) => Promise<unknown>>;

  const runs = [
    { durable: true, persistent: true },
    { durable: false, persistent: true },
    { durable: false, persistent: false },
  ];

  it.each(Object.entries(before).flatMap(([what, wait]) => runs.map((run) => ({ what, wait, ...run }))))(
    "counts after $what (durable: $durable, in a store that persists: $persistent)",
    async ({ wait, durable, persistent }) => {
      const { clock, runtime } = persistent ? inMemory().start({ durability }) : setUp();
      const concurrency = persistent ? ({ max: 1, per: "process" } as const) : undefined;
      const options = { durable, timeoutMs: LIMIT_MS, concurrency } as AgentOptions;
      runtime.register("agent", options, async (_input: unknown, context: AgentContext) => {
        await wait(context);
        await new Promise<void>((resolve) => void clock.setTimeout(resolve, HOUR_MS));
      });
      runtime.register("child", { durable }, () => "done");
      runtime.register("sleeps", { durable }, (_input, { sleep }) => sleep(1_000));
      // The second run waits for the slot meanwhile, or takes it while the first one waits.
      const ids = [await create({ runtime }), await create({ runtime })];
      await clock.advance(14_000);
      expect(await Promise.all(ids.map((run_id) => endOf({ runtime }, run_id)))).toEqual([LATE, LATE]);
    },
  );
});

describe("in the statistics, the time in line for a slot", () => {
  const BUSY_MS = 20_000;
  const kinds = [
    { of: "a plain run", durable: false, per: "agent" },
    { of: "a plain run", durable: false, per: "process" },
    { of: "a durable run", durable: true, per: "agent" },
    { of: "a durable run", durable: true, per: "process" },
    { of: "a durable run", durable: true, per: "tenant" },
  ] as const;

  /** Two runs, of which one stands in line while the other one works. `beside`: a step of the first needs the slot, beside a question. */
  function begin(replicas: Replicas, { durable, per }: (typeof kinds)[number], beside = false) {
    const { clock } = replicas;
    const start = (): Replica => {
      const replica = replicas.start({ durability });
      const work = worker(clock);
      const options = { durable, concurrency: { max: 1, per } } as const;
      replica.runtime.register("agent", options, async (input, context) => {
        const lastMs = Number(input[0]?.parts[0]?.content);
        await work(context, 1_000);
        const other = beside ? context.ask("Aside?") : undefined;
        await context.ask("Go on?");
        await work(context, lastMs);
        await work(context, 500);
        await other;
      });
      return replica;
    };
    const create = async ({ runtime }: Replica, lastMs: number): Promise<string> => {
      const { run_id } = await runtime.createRun({ agent_name: "agent", input: `${lastMs}`, mode: "async" });
      await clock.advance(1_500);
      return run_id;
    };
    const answer = async ({ runtime }: Replica, run_id: string, await_id?: string): Promise<void> => {
      await runtime.resume({ run_id, await_id, await_resume: reply("yes"), mode: "async" });
      await clock.settle();
    };
    return { clock, start, create, answer };
  }

  async function figures({ runtime }: Replica) {
    const { completed = 0, active_ms = 0, waiting_ms = 0 } = (await runtime.stats()).agents["agent"] ?? {};
    return { completed, active_ms, waiting_ms };
  }

  it.each(opened.flatMap((store) => kinds.map((kind) => ({ ...store, ...kind, kind }))))(
    "is no work, of $of that goes on ($per, $on)",
    async ({ open, kind }) => {
      const { clock, start, create, answer } = begin(open(), kind);
      const replica = start();
      const ids = [await create(replica, BUSY_MS), await create(replica, 1_000)];
      for (const id of ids) await answer(replica, id);
      await clock.advance(BUSY_MS + 5_000);
      const { completed, active_ms, waiting_ms } = await figures(replica);
      expect({ completed, active_ms }).toEqual({ completed: 2, active_ms: BUSY_MS + 1_500 + 2_500 });
      expect(waiting_ms).toBeGreaterThan(BUSY_MS);
    },
  );

  it.each(opened)("counts once where a question is open too ($on)", async ({ open }) => {
    const { clock, start, create, answer } = begin(open(), kinds[2], true);
    const replica = start();
    const ids = [await create(replica, BUSY_MS), await create(replica, 1_000)];
    for (const id of ids) await answer(replica, id, "ask#2");
    await clock.advance(BUSY_MS / 2);
    // From now on the first two wait for nothing else.
    for (const id of ids) await answer(replica, id, "ask#1");
    await clock.advance(BUSY_MS + 5_000);
    const { completed, active_ms } = await figures(replica);
    // The question was open for the first half of the busy step.
    expect({ completed, active_ms }).toEqual({ completed: 2, active_ms: BUSY_MS / 2 + 1_500 + 2_500 });
  });

  it.each(
    opened.flatMap((store) =>
      (["while it stands in line", "after its next step has begun", "after its next step"] as const).map((when) => ({
        ...store,
        when,
      })),
    ),
  )("is no work where another process goes on with the run $when ($on)", async ({ open, when }) => {
    const { clock, start, create, answer } = begin(open(), kinds[2]);
    const first = start();
    const second = start();
    const [busy, next] = [await create(first, BUSY_MS), await create(first, 1_000)];
    await answer(first, busy);
    await answer(first, next);
    await clock.advance(BUSY_MS / 2);
    if (when !== "while it stands in line") {
      await clock.advance(BUSY_MS / 2 + (when === "after its next step" ? 1_250 : 250));
    }
    first.kill();
    second.kill();
    const third = start();
    await clock.advance(2 * BUSY_MS);
    const { completed, active_ms } = await figures(third);
    expect(completed).toBe(2);
    const lostMs = durability.leaseMs + 1_000 + durability.scanMs;
    // The busy run is begun again where it was at work, and so is the other one: what they have lost counts.
    const most = when === "while it stands in line" ? 1.5 * BUSY_MS + 4_000 + lostMs : BUSY_MS + 4_000 + lostMs + 1_000;
    expect(active_ms).toBeGreaterThanOrEqual(BUSY_MS + 4_000);
    expect(active_ms).toBeLessThanOrEqual(most);
  });

  it("is no work in a store that ends with the process", async () => {
    const { runtime, clock } = setUp();
    const work = worker(clock);
    runtime.register("agent", { concurrency: { max: 1 } }, async (_input, context) => {
      await work(context, 1_000);
      await context.ask("Go on?");
      await work(context, 10_000);
    });
    const ids = [await create({ runtime }), await create({ runtime }), await create({ runtime })];
    await clock.advance(4_000);
    for (const run_id of ids) await runtime.resume({ run_id, await_resume: reply("yes"), mode: "async" });
    await clock.advance(40_000);
    const { completed, active_ms } = (await runtime.stats()).agents["agent"] ?? {};
    expect({ completed, active_ms }).toEqual({ completed: 3, active_ms: 33_000 });
    const { status } = await runtime.getAgent("agent");
    expect(status?.avg_run_time_seconds).toBe(11);
  });
});

it.each(opened)("a run that is replayed after each commit counts its time once ($on)", async ({ open }) => {
  for (const { lastMs, end } of [
    { lastMs: 2_900, end: IN_TIME },
    { lastMs: 3_100, end: LATE },
  ]) {
    const replicas = open();
    const { clock } = replicas;
    const replica = replicas.start({ durability: { ...durability, alwaysReplay: true } });
    const work = worker(clock);
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async function* (_input, context) {
      yield "one";
      await work(context, 2_000);
      await context.sleep(WAIT_MS);
      yield "two";
      await work(context, lastMs);
    });
    const run_id = await create(replica);
    await clock.advance(WAIT_MS + 6_000);
    expect(await endOf(replica, run_id)).toBe(end);
  }
});

it("a run that the clock of its process does not fit goes on: only a clock that is never set counts", async () => {
  const { runtime, clock, store } = setUp({ durability });
  const work = worker(clock);
  runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
    for (let n = 0; n < 4; n++) await work(context, 1_200);
  });
  const run_id = await create({ runtime });
  for (const byMs of [HOUR_MS, -2 * HOUR_MS, HOUR_MS]) {
    await clock.advance(1_000);
    clock.set(byMs);
  }
  await clock.advance(3_000);
  expect(await endOf({ runtime }, run_id)).toBe(IN_TIME);
  expect((await recorded({ store }, run_id)).at(-1)).toBe(4_800);
});

it("nothing is recorded of a run without a limit", async () => {
  const { runtime, clock, store } = setUp({ durability });
  const work = worker(clock);
  runtime.register("agent", { durable: true, concurrency: { max: 1 } }, async (_input, context) => {
    await work(context, 1_000);
    await context.ask("Well?");
    await work(context, 1_000);
  });
  const run_id = await create({ runtime });
  await clock.advance(2_000);
  const timers = clock.timers;
  await runtime.resume({ run_id, await_resume: {}, mode: "async" });
  await clock.settle();
  // The timer of the step, and no other.
  expect(clock.timers).toBe(timers + 1);
  await clock.advance(2_000);
  expect(await endOf({ runtime }, run_id)).toBe(IN_TIME);
  expect(await recorded({ store }, run_id)).toEqual([]);
});

it("a run with a limit reads the clock once a write, and not for each part that its agent emits", async () => {
  async function readings(timeoutMs: number, parts: number): Promise<number> {
    const replicas = inMemory();
    const { clock } = replicas;
    let count = 0;
    const counting = withMembers(clock, {
      monotonic() {
        count += 1;
        return clock.monotonic();
      },
    });
    const { runtime } = replicas.start({ durability, clock: counting });
    runtime.register("agent", { durable: true, timeoutMs }, async function* () {
      for (let part = 0; part < parts; part++) yield "part";
    });
    const { status } = await runtime.createRun({ agent_name: "agent", input: "" });
    expect(status).toBe("completed");
    return count;
  }
  const ofLimit = async (parts: number): Promise<number> =>
    (await readings(LIMIT_MS, parts)) - (await readings(Number.POSITIVE_INFINITY, parts));
  // It is read once for each write, and a write has many parts.
  expect(await ofLimit(500)).toBeLessThan(50);
});

it.each(opened)("a run whose own limit is lifted has none where it goes on either ($on)", async ({ open }) => {
  const replicas = open();
  const { clock } = replicas;
  const start = (): Replica => {
    const replica = replicas.start({ durability });
    const work = worker(clock);
    replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
      await work(context, 1_000);
      await work(context, 2 * LIMIT_MS);
    });
    return replica;
  };
  const first = start();
  const request = { agent_name: "agent", input: "", mode: "async" } as const;
  const { run_id } = await first.runtime.createRun(request, { timeoutMs: Number.POSITIVE_INFINITY });
  await clock.advance(1_500);
  first.kill();
  const second = start();
  await clock.advance(3 * LIMIT_MS);
  expect(await endOf(second, run_id)).toBe(IN_TIME);
  expect(await recorded(second, run_id)).toEqual([]);
});

it.each([true, false])("the fork of a sub-run has the limit of its own agent (sub-run: %s)", async (isSubRun) => {
  const { runtime, clock } = setUp({ durability });
  const work = worker(clock);
  runtime.register("agent", { durable: true, timeoutMs: 1_000 }, (_input, { run }) => run("child", ""));
  runtime.register("child", { durable: true, timeoutMs: LIMIT_MS }, (_input, context) => work(context, 3_000));
  const request = { agent_name: isSubRun ? "agent" : "child", input: "", mode: "async" } as const;
  await runtime.createRun(request, { timeoutMs: isSubRun ? undefined : 1_000 });
  await clock.advance(2_000);
  const [{ run_id } = { run_id: "" }] = await runtime.listRuns({ agent_name: "child" });
  expect(await endOf({ runtime }, run_id)).toBe(LATE);
  const fork = await runtime.fork(run_id, { mode: "async" });
  await clock.advance(4_000);
  expect(await endOf({ runtime }, fork.run_id)).toBe(isSubRun ? IN_TIME : LATE);
});

it("a fork begins without the time of its origin", async () => {
  const { runtime, clock } = setUp({ durability });
  const work = worker(clock);
  let fails = true;
  runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
    await work(context, 3_000);
    await context.step("fail", () => {
      if (fails) throw new Error("It broke.");
    });
    await work(context, 3_000);
  });
  const run_id = await create({ runtime });
  await clock.advance(3_100);
  expect(await endOf({ runtime }, run_id)).toBe("failed: agent_failed");
  fails = false;
  const fork = await runtime.fork(run_id, { mode: "async" });
  await clock.advance(3_100);
  expect(await endOf({ runtime }, fork.run_id)).toBe(IN_TIME);
});

it("a sub-run counts from when it was started, also where the store has held it later", async () => {
  for (const { childMs, end } of [
    { childMs: 3_900, end: IN_TIME },
    { childMs: 4_100, end: LATE },
  ]) {
    const replicas = inMemory();
    const { clock } = replicas;
    const start = (): Replica => {
      let creates = 0;
      const replica = replicas.start({ durability }, (call, method) => {
        // The sub-run is stored while a step of its parent works.
        if (method !== "create" || ++creates !== 2) return call();
        return new Promise((resolve) => void clock.setTimeout(() => resolve(call()), 1_500));
      });
      const work = worker(clock);
      replica.runtime.register("agent", { durable: true, timeoutMs: LIMIT_MS }, async (_input, context) => {
        await work(context, 1_000);
        await Promise.all([context.run("child", ""), work(context, 1_500)]);
      });
      replica.runtime.register("child", { durable: true }, (_input, context) => work(context, childMs));
      return replica;
    };
    const first = start();
    const run_id = await create(first);
    await clock.advance(2_800);
    first.kill();
    const second = start();
    await clock.advance(12_000);
    expect(await endOf(second, run_id)).toBe(end);
  }
});
