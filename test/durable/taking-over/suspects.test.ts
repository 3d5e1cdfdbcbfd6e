import { expect, it } from "vitest";
import { createMany, statuses } from "../../harness/world/calls.ts";
import { World } from "../../harness/world/world.ts";

/* One run crashes each process that executes it. The runs beside it do not fail and lose nothing. */

const SOUND = 20;
/** How long a step of a sound run takes: longer than a process lives beside the culprit. */
const STEP_MS = 2_500;
const HOUR_MS = 3_600_000;

function worldOf(finished: string[]): World {
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
])("ends as a crash loop, and no sound run does ($culprits of them, $processes processes)", async (situation) => {
  const { processes, culprits } = situation;
  const finished: string[] = [];
  const world = worldOf(finished);
  const first = world.start();
  const sound = await createMany(world, first, SOUND / 2, "sound");
  const bad = await createMany(world, first, culprits, "culprit");
  if (first.state === "alive") sound.push(...(await createMany(world, first, SOUND / 2, "sound")));
  await superviseUntil(world, processes, () => isOver(world, [...sound, ...bad]));
  expect(await Promise.all(bad.map((run_id) => reasonOf(world, run_id)))).toEqual(bad.map(() => "crash_loop"));
  expect(await statuses(world, sound)).toEqual({ completed: sound.length });
  // A finished step is not begun again.
  expect(finished).toHaveLength(sound.length);
});

it("a run whose process was killed from outside, again and again, is no crash loop", async () => {
  const finished: string[] = [];
  const world = worldOf(finished);
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
