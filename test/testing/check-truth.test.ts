import { CadenzaError, defineAgent } from "cadenza";
import { checkUpgrade } from "cadenza/testing";
import { expect, it } from "vitest";
import type { Lines } from "../harness/changed-programs.ts";
import { agentOf, changed, someLines } from "../harness/changed-programs.ts";
import { isFinal } from "../harness/internals.ts";
import { Random } from "../harness/random.ts";
import { share } from "../harness/share.ts";
import type { Crash, Process } from "../harness/world/world.ts";
import { World } from "../harness/world/world.ts";

/*
 * Whether `checkUpgrade` names the runs that a deployment blocks, and no others. The truth is that deployment: another
 * process with the new code goes on with the run.
 */

const PAIRS = share(200, 40);
const LEASE_MS = 30_000;
/** Longer than a process waits for the code to go on. */
const STALL_MS = 6_000;

const child = defineAgent("child", { durable: true }, async (_input, { step }) => {
  await step("work", () => "done");
});

function start(world: World, lines: Lines, crash?: Crash): Process {
  const process = world.start(crash);
  process.runtime.register(child);
  process.runtime.register("agent", { durable: true }, agentOf(lines));
  return process;
}

/** Answers what the run asks. */
async function answer(world: World, process: Process, run_id: string): Promise<void> {
  const { status, question } = await world.stateOf(run_id);
  if (status !== "awaiting" || question === null) return;
  const { await_id } = question.asked;
  const resuming = process.runtime.resume({ run_id, await_id, await_resume: { ok: true }, mode: "async" });
  const outcome = await world.until(resuming, process);
  if (outcome !== undefined && "error" in outcome && !CadenzaError.is(outcome.error)) throw outcome.error;
}

/** A run of the old code whose process dies at some call to the store; undefined for a run that has ended before. */
async function openRun(world: World, lines: Lines, random: Random): Promise<string | undefined> {
  const process = start(world, lines, { call: 3 + random.below(30), after: random.chance(0.5) });
  const creating = process.runtime.createRun({ agent_name: "agent", input: "", mode: "async" });
  const outcome = await world.until(creating, process);
  const run_id = outcome !== undefined && "value" in outcome ? outcome.value.run_id : undefined;
  if (run_id === undefined) return undefined;
  for (let round = random.below(6); round > 0 && world.living.includes(process); round--) {
    await world.pass(70_000);
    if (world.living.includes(process)) await answer(world, process, run_id);
  }
  if (world.living.includes(process)) process.kill();
  return isFinal((await world.stateOf(run_id)).status) ? undefined : run_id;
}

/** Whether a process with the new code blocks the run, sooner or later on the way of its log so far. */
async function isBlocked(world: World, lines: Lines, run_id: string): Promise<boolean> {
  const { position } = await world.stateOf(run_id);
  const process = start(world, lines);
  await world.pass(LEASE_MS);
  if ((await world.stateOf(run_id)).position === position) await answer(world, process, run_id);
  await world.pass(STALL_MS);
  // A run that sleeps is taken when its sleep is over.
  if ((await world.stateOf(run_id)).position === position) await world.pass(70_000);
  const { blocked } = await process.runtime.stats();
  process.kill();
  return blocked.some((one) => one.run_id === run_id);
}

it(`a deployment blocks the runs that are named, and no others, in ${PAIRS} pairs of programs`, {
  timeout: 120_000,
}, async () => {
  const wrong: string[] = [];
  const seen = { blocked: 0, open: 0 };
  for (let seed = 0; seen.open < PAIRS; seed++) {
    const random = new Random(`pair ${seed}`);
    const before = someLines(random);
    const after = changed(random, before);
    const world = new World({ register: () => {} });
    const run_id = await openRun(world, before, random);
    if (run_id === undefined) continue;
    seen.open += 1;
    const agents = [child, defineAgent("agent", { durable: true }, agentOf(after) as never)];
    const check = await checkUpgrade({ agents, store: world.store, patienceMs: 20 });
    const named = check.blocked.some((one) => one.run_id === run_id);
    const is = await isBlocked(world, after, run_id);
    if (is) seen.blocked += 1;
    if (named !== is)
      wrong.push(
        `pair ${seed}: ${is ? "blocked, and not named" : "named, and not blocked"}\n${JSON.stringify({ before, after, check: check.blocked, log: await world.log(run_id) })}`,
      );
  }
  expect(wrong).toEqual([]);
  expect(seen.blocked).toBeGreaterThan(PAIRS / 8);
  expect(seen.blocked).toBeLessThan(PAIRS / 2);
});
