import { setImmediate as inNextTurn } from "node:timers";
import fc from "fast-check";
import { checkAtEnd, checkAtRest } from "./check.ts";
import { scheduleOf, takeStep } from "./steps.ts";
import type { Setting } from "./world.ts";
import { LONGEST_DEADLINE_MS, World } from "./world.ts";

/** The result of one schedule. */
export interface Result {
  readonly violations: readonly string[];
  readonly story: readonly string[];
  /** How many entries the runs of the schedule wrote. */
  readonly entries: number;
  readonly runs: number;
}

/** So many worlds run side by side and share each turn of the event loop. They share nothing else. */
const WORLDS_AT_ONCE = 32;
const ENOUGH_FAILURES = 3;
/** More rounds than any schedule needs. */
const MAX_ROUNDS = 5_000;

/** Plays one schedule to its end, and checks it. */
async function play(setting: Setting, steps: readonly number[]): Promise<Result> {
  const world = new World(setting);
  try {
    await playThrough(world, steps);
  } catch (error) {
    world.violate(`the model broke: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
  let entries = 0;
  for (const log of world.store.logs.values()) entries += log.entries.length;
  return { violations: world.violations, story: world.story, entries, runs: world.store.logs.size };
}

async function playThrough(world: World, steps: readonly number[]): Promise<void> {
  for (const step of steps) await takeStep(world, step, settle);
  await comeToRest(world);
  world.story.push("--- no event is pending");
  checkAtRest(world);
  await passTime(world, LONGEST_DEADLINE_MS);
  checkAtRest(world);
  await finish(world);
  world.story.push("--- over");
  checkAtRest(world);
  await checkNothingIsLeft(world, steps.length % 4 === 0);
  checkAtEnd(world);
}

/** The results for a range of seeds. */
export interface Findings {
  readonly schedules: number;
  readonly runs: number;
  readonly entries: number;
  /** The first seeds whose schedules broke a rule, with what they broke. */
  readonly failures: readonly { readonly seed: number; readonly violations: readonly string[] }[];
}

/** Which schedules to play. */
export interface Range {
  readonly from: number;
  readonly count: number;
  readonly stores: readonly Setting["store"][];
  /** Changes of a test to the settings of all schedules. */
  readonly change?: Partial<Setting>;
}

/** Plays the schedules of a range of seeds; stops when some of them have broken a rule. */
export async function playAll({ from, count, stores, change }: Range): Promise<Findings> {
  const failures: { seed: number; violations: readonly string[] }[] = [];
  let next = from;
  let schedules = 0;
  let runs = 0;
  let entries = 0;
  const work = async (): Promise<void> => {
    while (next < from + count && failures.length < ENOUGH_FAILURES) {
      const seed = next++;
      const { setting, steps } = scheduleOf(seed, stores);
      const result = await play({ ...setting, ...change }, steps);
      schedules += 1;
      runs += result.runs;
      entries += result.entries;
      if (result.violations.length > 0) failures.push({ seed, violations: result.violations });
    }
  };
  const { stackTraceLimit } = Error;
  // Many calls are refused, and their stacks, which are not read, would cost more than the rest of the call.
  Error.stackTraceLimit = 0;
  try {
    await Promise.all(Array.from({ length: WORLDS_AT_ONCE }, work));
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
  return { schedules, runs, entries, failures };
}

/** Explains the failure of a seed: the shortest schedule that still breaks a rule, its steps, and the broken rules. */
export async function explain(seed: number, { stores, change }: Omit<Range, "from" | "count">): Promise<string> {
  const { setting, steps } = scheduleOf(seed, stores);
  const changed = { ...setting, ...change };
  const step = fc.integer({ min: 0, max: 2 ** 32 - 1 });
  const isSound = async (shorter: readonly number[]) => (await play(changed, shorter)).violations.length === 0;
  const found = await fc.check(fc.asyncProperty(fc.array(step, { maxLength: steps.length }), isSound), {
    seed,
    numRuns: 1,
    examples: [[steps]],
  });
  const shortest = found.counterexample?.[0] ?? steps;
  const { story, violations } = await play(changed, shortest);
  const { store, forgetful, listens } = setting;
  return [
    `seed ${seed}: ${JSON.stringify({ store, forgetful, listens })}, steps ${JSON.stringify(shortest)}`,
    ...story.map((line) => `  ${line}`),
    ...violations.map((violation) => `  * ${violation}`),
  ].join("\n");
}

/** Waits until all promise reactions have run. */
function settle(): Promise<void> {
  return new Promise((resolve) => inNextTurn(resolve));
}

/** Serves all pending turns and calls of the store. Time passes only for the repetition of failed calls. */
async function comeToRest(world: World): Promise<void> {
  for (const reader of world.readers) {
    reader.eager = true;
    world.readOn(reader);
  }
  await untilQuiet(world);
  if (world.late === undefined || world.late.failures === 0) return;
  await passTime(world, 6_000);
}

async function untilQuiet({ clock, late, violate }: World): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    await settle();
    if (clock.pendingTurns > 0) clock.takeTurns(clock.pendingTurns);
    else if (late !== undefined && late.pending > 0) late.serveAll();
    else return;
  }
  violate("there is always a pending event");
}

async function passTime(world: World, ms: number): Promise<void> {
  await world.clock.advance(ms, false, () => untilQuiet(world));
  await untilQuiet(world);
}

/** Lets half of the puppets return, cancels the rest, and waits until all runs have ended. */
async function finish(world: World): Promise<void> {
  for (const [index, puppet] of world.puppets.entries()) if (index % 2 === 0) tellToReturn(puppet);
  await untilQuiet(world);
  for (const [run_id, { head }] of world.store.logs) if (head.finished_at === null) world.cancel(run_id);
  await untilQuiet(world);
  await passTime(world, 10_000);
  for (let round = 0; round < 3; round++) {
    for (const puppet of world.puppets) if (puppet.isIdle) tellToReturn(puppet);
    await untilQuiet(world);
  }
}

function tellToReturn(puppet: World["puppets"][number]): void {
  puppet.order({ does: "return", value: "The end." });
}

/** Checks that no slots, timers or runs are left in the runtime. */
async function checkNothingIsLeft(world: World, thorough: boolean): Promise<void> {
  const { runtime, clock } = world;
  const stats = await inTime(world, runtime.stats());
  if (stats === undefined) return;
  if (Object.keys(stats.live).length > 0) world.violate(`live runs are left: ${JSON.stringify(stats.live)}`);
  if (stats.queued > 0) world.violate(`${stats.queued} runs still wait for a slot`);
  for (const agent_name of thorough ? ["narrow", "picky"] : []) {
    const before = world.puppets.length;
    world.create({ agent_name, input: `is there a slot for ${agent_name}?` }, "sync", undefined);
    await untilQuiet(world);
    const puppet = world.puppets[before];
    if (puppet === undefined) world.violate(`a slot of ${agent_name} was never released`);
    else tellToReturn(puppet);
    await untilQuiet(world);
    if (puppet?.manners.lingers === true) tellToReturn(puppet);
    await untilQuiet(world);
  }
  const report = await inTime(world, runtime.close({ drainMs: 0 }));
  if (report !== undefined && report.left.length > 0) world.violate("close found runs that had not ended");
  if (clock.pendingTimers > 0) world.violate(`${clock.pendingTimers} timers are left`);
  if (!world.store.closed) world.violate("the store was not closed");
}

async function inTime<Value>(world: World, promise: Promise<Value>): Promise<Value | undefined> {
  let value: Value | undefined;
  const done = promise.then((given) => {
    value = given;
  });
  await untilQuiet(world);
  if (value === undefined) world.violate("a call of the runtime does not settle");
  else await done;
  return value;
}
