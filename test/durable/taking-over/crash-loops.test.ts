import type { AgentContext } from "cadenza";
import type { DurabilityOptions } from "cadenza/store";
import { describe, expect, it } from "vitest";
import { createMany, statuses } from "../../harness/world/calls.ts";
import type { Outcome, Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/* Runs whose processes die again and again, because of the run or for another reason. */

type AgentBody = (process: Process, context: AgentContext) => Promise<unknown>;

/** More often than a run may be taken over. */
const LIVES = 8;

function worldOf(agent: AgentBody, durability: DurabilityOptions = {}): World {
  return new World({
    runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, ...durability } },
    register: (process) => {
      process.runtime.register("agent", { durable: true }, async (_input, context) => agent(process, context));
      process.runtime.register("child", { durable: true }, async (_input, { step, ask }) => {
        for (let n = 0; n < LIVES; n++) await step("work", () => process.wait(2_500));
        return JSON.stringify(await ask("And?"));
      });
    },
  });
}

async function createIn(world: World, process: Process): Promise<string> {
  const creating = process.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const outcome: Outcome<{ readonly run_id: string }> | undefined = await world.until(creating, process);
  if (outcome === undefined || "error" in outcome) throw outcome?.error ?? new Error("The process died.");
  return outcome.value.run_id;
}

/** One process after the other takes the run over, and is killed after `ms`. */
async function live(world: World, run_id: string, ms: number, lives = LIVES): Promise<void> {
  for (let life = 0; life < lives; life++) {
    world.living.at(-1)?.kill();
    world.start();
    await world.pass(ms);
    if ((await world.find(run_id))?.head.finished_at !== null) return;
  }
}

async function endOf(world: World, run_id: string): Promise<unknown> {
  const { ended, status } = await world.stateOf(run_id);
  return ended === null ? status : (ended.error?.data?.["reason"] ?? ended.outcome);
}

describe("fails as a crash loop", () => {
  it.each([
    { what: "a step", agent: (process, { step }) => step("explode", async () => process.kill()) },
    {
      what: "the agent's own code",
      agent: async (process, { step }) => {
        await step("before", () => 1);
        process.kill();
        await new Promise(() => {});
      },
    },
    {
      what: "the agent's first code",
      agent: async (process) => {
        process.kill();
        await new Promise(() => {});
      },
    },
    {
      what: "a step beside a question",
      agent: (process, { ask, step }) => Promise.all([ask("Well?"), step("explode", async () => process.kill())]),
    },
  ] satisfies { what: string; agent: AgentBody }[])(
    "a run that brings its process down with $what",
    async ({ agent }) => {
      const world = worldOf(agent);
      const run_id = await createIn(world, world.start());
      await world.pass(100);
      await live(world, run_id, 3_000);
      expect(await endOf(world, run_id)).toBe("crash_loop");
      // The first process, and those that took the run over.
      expect(world.processes).toHaveLength(7);
      const takeOver = "Runs of processes whose lease has ended were taken over.";
      expect(world.processes.map(({ said }) => said.some((line) => line.includes(takeOver)))).toEqual([
        false,
        ...new Array(6).fill(true),
      ]);
    },
  );

  it("a run after as many take-overs as are allowed", async () => {
    const world = worldOf((process, { step }) => step("explode", async () => process.kill()), { maxTakeovers: 2 });
    const run_id = await createIn(world, world.start());
    await world.pass(100);
    await live(world, run_id, 3_000);
    expect(await endOf(world, run_id)).toBe("crash_loop");
    expect(world.processes).toHaveLength(4);
  });
});

describe("does not fail as a crash loop", () => {
  it("a run that waits for a sub-run that makes progress", async () => {
    const world = worldOf(async (_process, { run }) => (await run("child", "")).status);
    const run_id = await createIn(world, world.start());
    await world.pass(100);
    await live(world, run_id, 4_000);
    expect(await endOf(world, run_id)).toBe("awaiting");
    expect((await world.find(run_id))?.head.takeovers).toBe(0);
  });

  it("a run that waits for an answer while its processes are restarted", async () => {
    const world = worldOf((_process, { ask }) => ask("Well?"));
    const run_id = await createIn(world, world.start());
    await world.pass(100);
    await live(world, run_id, 3_000);
    expect(await endOf(world, run_id)).toBe("awaiting");
  });

  it("a run that waits for a slot", async () => {
    const world = new World({
      register: ({ runtime }) => {
        runtime.register("agent", { durable: true, concurrency: { max: 1 } }, (_input, { step }) =>
          step("long", () => new Promise(() => {})),
        );
      },
    });
    const first = world.start();
    const ids: string[] = [];
    for (let run = 0; run < 3; run++) ids.push(await createIn(world, first));
    const last = ids[2] ?? "";
    await live(world, last, 3_000, 1);
    expect((await world.find(last))?.head).toMatchObject({ status: "created", owner: null, takeovers: 0 });
  });

  it("a run whose code does not match its history", async () => {
    const world = worldOf(async (process, { ask }) => {
      if (process.name === "process-1") await ask("Well?", { timeoutMs: 50, default: {} });
      await new Promise(() => {});
    });
    const run_id = await createIn(world, world.start());
    await world.pass(200);
    await live(world, run_id, 8_000);
    expect(await endOf(world, run_id)).toBe("in-progress");
    expect(await world.living.at(-1)?.runtime.stats()).toMatchObject({ blocked: [{ run_id }] });
  });

  it("a run without a limit of take-overs", async () => {
    const world = worldOf((process, { step }) => step("explode", async () => process.kill()), {
      maxTakeovers: Number.POSITIVE_INFINITY,
    });
    const run_id = await createIn(world, world.start());
    await world.pass(100);
    await live(world, run_id, 3_000, 20);
    expect(await endOf(world, run_id)).toBe("in-progress");
  });
});

/* One run crashes each process that executes it. The runs beside it do not fail and lose nothing. */

const SOUND = 20;
/** How long a step of a sound run takes: longer than a process lives beside the culprit. */
const STEP_MS = 2_500;
const HOUR_MS = 3_600_000;

function worldOfCulprits(finished: string[]): World {
  return new World({
    runtime: { durability: { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100 } },
    register: (process) => {
      process.runtime.register("culprit", { durable: true }, (_input, { step }) =>
        step("explode", async () => {
          await process.wait(50);
          process.kill();
        }),
      );
      process.runtime.register("sound", { durable: true }, (_input, { step, run_id }) =>
        step("work", async () => {
          await process.wait(STEP_MS);
          finished.push(run_id);
        }),
      );
    },
  });
}

/** Starts a process again when one has died, as a supervisor does. */
async function superviseUntil(world: World, processes: number, isOver: () => Promise<boolean>): Promise<void> {
  for (const until = world.now + HOUR_MS; world.now < until && !(await isOver()); ) {
    while (world.living.length < processes) world.start();
    await world.pass(100);
  }
}

async function isOver(world: World, ids: readonly string[]): Promise<boolean> {
  const { completed = 0, failed = 0 } = await statuses(world, ids);
  return completed + failed === ids.length;
}

async function reasonOf(world: World, run_id: string): Promise<unknown> {
  return (await world.stateOf(run_id)).ended?.error?.data?.["reason"];
}

it.each([
  { processes: 1, culprits: 1 },
  { processes: 3, culprits: 1 },
  { processes: 1, culprits: 2 },
])(
  "a run that crashes each process ends as a crash loop, and no sound run does ($culprits of them, $processes processes)",
  async (situation) => {
    const { processes, culprits } = situation;
    const finished: string[] = [];
    const world = worldOfCulprits(finished);
    const first = world.start();
    const sound = await createMany(world, first, SOUND / 2, "sound");
    const bad = await createMany(world, first, culprits, "culprit");
    if (first.state === "alive") sound.push(...(await createMany(world, first, SOUND / 2, "sound")));
    await superviseUntil(world, processes, () => isOver(world, [...sound, ...bad]));
    expect(await Promise.all(bad.map((run_id) => reasonOf(world, run_id)))).toEqual(bad.map(() => "crash_loop"));
    expect(await statuses(world, sound)).toEqual({ completed: sound.length });
    // A finished step is not begun again.
    expect(finished).toHaveLength(sound.length);
  },
);

it("a run whose process was killed from outside, again and again, is no crash loop", async () => {
  const finished: string[] = [];
  const world = worldOfCulprits(finished);
  const sound = await createMany(world, world.start(), SOUND, "sound");
  // Killed from outside, ten times, before any step has ended.
  for (let life = 0; life < 10; life++) {
    await world.pass(1_500);
    world.living.at(-1)?.kill();
    world.start();
  }
  await superviseUntil(world, 1, () => isOver(world, sound));
  expect(await statuses(world, sound)).toEqual({ completed: SOUND });
});
