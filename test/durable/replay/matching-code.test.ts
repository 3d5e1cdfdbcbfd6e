import { expect, it } from "vitest";
import { Random } from "../../harness/random.ts";
import { textsOf } from "../../harness/runtimes.ts";
import type { Process } from "../../harness/world/world.ts";
import { World } from "../../harness/world/world.ts";

/*
 * Matching code may be registered at any moment: while other code is replayed, while the run is released, and
 * afterwards.
 */

const SEEDS = 60;
const LONG_MS = 8_000;

function registerMatching({ runtime }: Process): void {
  runtime.register("trip", { durable: true, replace: true }, async (_input, { step, ask }) => {
    const train = await step("find a train", () => "RE 5");
    await ask(`Take ${train}?`);
    return train;
  });
}

/** Other code: it ends without having asked, or waits for an operation that is not in the log. */
const unmatching: readonly ((process: Process) => void)[] = [
  ({ runtime }) =>
    void runtime.register("trip", { durable: true, replace: true }, (_input, { step }) =>
      step("find a train", () => "RE 5"),
    ),
  ({ runtime }) =>
    void runtime.register("trip", { durable: true, replace: true }, (_input, { step }) => step("walk", () => "away")),
];

/** A run that waits for an answer, in a process that has other code for it. */
async function begin(seed: number): Promise<{ world: World; process: Process; run_id: string }> {
  const random = new Random(seed);
  const world = new World({ random, late: random.chance(0.7), register: () => {} });
  const before = world.start();
  registerMatching(before);
  const created = await world.until(before.runtime.createRun({ agent_name: "trip", input: "" }), before);
  if (created === undefined || "error" in created) throw new Error("The run was not created.");
  before.kill();
  const process = world.start();
  random.pick(unmatching)(process);
  return { world, process, run_id: created.value.run_id };
}

async function isAnswered(world: World, process: Process, run_id: string): Promise<void> {
  const outcome = await world.until(process.runtime.resume({ run_id, await_resume: { ok: true } }), process);
  if (outcome === undefined || "error" in outcome) throw outcome?.error;
  expect(textsOf(outcome.value)).toEqual(["RE 5"]);
  await nothingIsBlocked(world, process);
}

async function nothingIsBlocked(world: World, process: Process): Promise<void> {
  const stats = await world.until(process.runtime.stats(), process);
  expect(stats).toMatchObject({ value: { blocked: [] } });
  expect(world.violations).toEqual([]);
}

it.each(Array.from({ length: SEEDS }, (_, seed) => seed))(
  "an answer is taken as soon as matching code is registered (seed %i)",
  async (seed) => {
    const { world, process, run_id } = await begin(seed);
    const random = new Random(seed + 1_000);
    const refused = process.runtime.resume({ run_id, await_resume: { ok: true } }).catch((error: unknown) => error);
    if (random.chance(0.3)) await world.pass(LONG_MS);
    const early = await world.until(refused, process);
    expect(early).toMatchObject({ value: { code: "run_blocked" } });
    for (let steps = random.below(6); steps > 0; steps--) await world.step();
    registerMatching(process);
    await isAnswered(world, process, run_id);
  },
);

it.each(Array.from({ length: SEEDS }, (_, seed) => seed))(
  "matching code is used if it is registered while other code is replayed (seed %i)",
  async (seed) => {
    const { world, process, run_id } = await begin(seed);
    const random = new Random(seed + 1_000);
    const answering = process.runtime.resume({ run_id, await_resume: { ok: true } });
    answering.catch(() => {});
    for (let steps = random.below(12); steps > 0; steps--) await world.step();
    registerMatching(process);
    const outcome = await world.until(answering, process);
    if (outcome !== undefined && "error" in outcome) {
      // The answer was refused before the matching code was registered.
      expect(outcome.error).toMatchObject({ code: "run_blocked" });
      await isAnswered(world, process, run_id);
    } else expect(textsOf(outcome?.value ?? expect.fail("The process died."))).toEqual(["RE 5"]);
    await world.pass(LONG_MS);
    await nothingIsBlocked(world, process);
  },
);
