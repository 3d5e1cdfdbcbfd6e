import type { Entry } from "../../../src/core/log.ts";
import { Random } from "../random.ts";
import type { Verdict } from "./judge.ts";
import { emittedIn, isAsEmitted, judge } from "./judge.ts";
import type { Played } from "./play.ts";
import { play } from "./play.ts";
import type { Program } from "./programs.ts";
import { makeProgram, scriptOf } from "./programs.ts";
import type { Plant, World } from "./world.ts";

/** What happens to the processes that run a program. */
export const troubles = ["none", "always replay", "crashes", "take-overs", "freezes", "stopped clocks"] as const;
export type Trouble = (typeof troubles)[number];

/** Each program is tried with one of these, in turn. */
const harms = ["crashes", "take-overs", "freezes", "stopped clocks"] as const satisfies readonly Trouble[];
/** One of so many programs is also run undisturbed, and with a replay after every entry. */
const CALM_EVERY = 20;

export interface Trial {
  readonly seed: number;
  readonly trouble: Trouble;
  readonly crashes: number;
  readonly steps: number;
  /** What went wrong. */
  readonly wrong: readonly string[];
}

/** Runs a program with one kind of trouble, and judges its log. */
export async function trial(seed: number, trouble: Trouble, plant?: Plant): Promise<Trial> {
  const program = makeProgram(seed);
  const random = new Random(seed ^ 0x5eed);
  const counted = { crashes: 0 };
  const wrong: string[] = [];
  let played: Played | undefined;
  try {
    played = await play(scriptOf(program), {
      random,
      late: random.chance(0.4),
      plant,
      runtime: { durability: { ...durabilityIn(random), alwaysReplay: trouble === "always replay" } },
      disturb: (world) => disturb(world, trouble, random, counted),
    });
    wrong.push(...played.world.violations, ...(await misjudged(program, played)));
    if (program.isOrderly && trouble !== "none") wrong.push(...(await otherwiseThanUncrashed(program, played)));
  } catch (error) {
    wrong.push(error instanceof Error ? `${error.stack}` : String(error));
  }
  return { seed, trouble, crashes: counted.crashes, steps: played?.world.steps ?? 0, wrong };
}

function durabilityIn(random: Random): { leaseMs: number; heartbeatMs: number; scanMs: number; evictAfterMs: number } {
  return { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: random.pick([0, 50, 60_000]) };
}

/** Disturbs a process at random, up to a limit. */
function disturb(world: World, trouble: Trouble, random: Random, counted: { crashes: number }): void {
  const { working } = world;
  if (trouble === "none" || trouble === "always replay" || !random.chance(0.03)) return;
  if (counted.crashes >= 4) {
    for (const process of world.living) process.thaw();
    for (const process of world.living) process.startClock();
    return;
  }
  const process = random.pick(working);
  counted.crashes += 1;
  switch (trouble) {
    case "crashes":
      process.kill();
      break;
    case "take-overs":
      if (working.length < 3) world.start();
      if (random.chance(0.7)) process.kill();
      break;
    case "freezes":
      if (working.length < 2) world.start();
      process.freeze();
      process.wakesAt = world.now + random.below(3_000);
      break;
    case "stopped clocks":
      if (working.length < 2) world.start();
      process.stopClock();
      process.wakesAt = world.now + random.below(3_000);
      break;
  }
}

/** Compares the output with that of the judge. */
async function misjudged(program: Program, played: Played): Promise<string[]> {
  let wrong: string[] = [];
  // The order of two questions that are asked side by side depends on the number of promises before each.
  for (const promises of [0, 1, 3, 8]) {
    wrong = misjudgedBy(await judge(program.node, played.run_id, played.log, promises), played);
    if (wrong.length === 0) break;
  }
  return wrong;
}

function misjudgedBy(verdict: Verdict, { run, log, state }: Played): string[] {
  const { emitted, ending, tokens, open } = verdict;
  const was = emittedIn(log);
  const wrong: string[] = [];
  const say = (what: string): void => void wrong.push(`${what}\n${describe(log)}`);
  if (run.status === "cancelled") {
    const before = emittedIn(
      log.slice(
        0,
        log.findIndex(({ type }) => type === "cancel-requested"),
      ),
    );
    if (!isAsEmitted(verdict, before, true))
      say(`had emitted ${before.join("|")}, and must have emitted ${emitted.join("|")}`);
    return wrong;
  }
  if (!isAsEmitted(verdict, was)) say(`emits ${was.join("|")}, and must emit ${emitted.join("|")}`);
  if (run.status !== ending) say(`is ${run.status}, and must be ${ending}; waits for ${open.join()}`);
  const fromChildren = log.filter((entry) => entry.type === "step" && entry.key.startsWith("run:child")).length * 4;
  if ((state.usage?.total_tokens ?? 0) !== tokens + fromChildren)
    say(`has used ${state.usage?.total_tokens}, and must have used ${tokens} and ${fromChildren}`);
  return wrong;
}

async function otherwiseThanUncrashed(program: Program, { ending }: Played): Promise<string[]> {
  const uncrashed = await play(scriptOf(program));
  if (ending.status === "cancelled" || uncrashed.ending.status === "cancelled") return [];
  const [is, must] = [JSON.stringify(ending), JSON.stringify(uncrashed.ending)];
  return is === must ? [] : [`ended as ${is}, and uncrashed as ${must}`];
}

function describe(log: readonly Entry[]): string {
  return log.map((entry, index) => `  ${index} ${JSON.stringify(entry)}`).join("\n");
}

/** The sums of many trials. */
export interface Findings {
  readonly programs: number;
  readonly trials: number;
  /** How often a process was disturbed. */
  readonly troubles: number;
  readonly wrong: readonly Trial[];
}

export const noFindings: Findings = { programs: 0, trials: 0, troubles: 0, wrong: [] };

export function sumOf(a: Findings, b: Findings): Findings {
  return {
    programs: a.programs + b.programs,
    trials: a.trials + b.trials,
    troubles: a.troubles + b.troubles,
    wrong: [...a.wrong, ...b.wrong],
  };
}

/** The command that repeats a trial. */
export function again({ seed, trouble }: Trial): string {
  return `npm run test:durable -- --seed ${seed} --trouble "${trouble}"`;
}

/** Tries programs from a seed on. */
export async function tryAll(from: number, count: number): Promise<Findings> {
  const wrong: Trial[] = [];
  let trials = 0;
  let happened = 0;
  for (let seed = from; seed < from + count; seed++) {
    for (const trouble of troublesOf(seed)) {
      const one = await trial(seed, trouble);
      trials += 1;
      happened += one.crashes;
      if (one.wrong.length > 0) wrong.push(one);
    }
  }
  return { programs: count, trials, troubles: happened, wrong };
}

function troublesOf(seed: number): Trouble[] {
  const harm = harms[seed % harms.length] ?? "crashes";
  if (seed % CALM_EVERY === 0) return [harm, "always replay"];
  return seed % CALM_EVERY === 1 ? [harm, "none"] : [harm];
}
