import { isDeepStrictEqual } from "node:util";
import type { Entry } from "cadenza/store";
import { mailTo, NO_ANSWER, replyBelow } from "../answers.ts";
import type { Plant } from "../planted-faults.ts";
import type { Program } from "../program.ts";
import { CHILD, inputOf, print } from "../program.ts";
import { makeProgram, SIMULATED } from "../program-maker.ts";
import { agentOf, namedIn } from "../program-player.ts";
import { hashOf, Random } from "../random.ts";
import { playerIn } from "./bodies.ts";
import type { Played, Script } from "./play.ts";
import { play } from "./play.ts";
import type { World } from "./world.ts";

const HOUR_MS = 3_600_000;

/** What happens to the processes that run a program. */
export const troubles = [
  "none",
  "always replay",
  "crashes",
  "take-overs",
  "freezes",
  "stopped clocks",
  "set clocks",
  "retention",
] as const;
export type Trouble = (typeof troubles)[number];

/** Each program is tried with one of these, in turn. */
const harms = [
  "crashes",
  "take-overs",
  "freezes",
  "stopped clocks",
  "set clocks",
  "retention",
] as const satisfies readonly Trouble[];
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

export interface TrialOptions {
  /** Default: the program that belongs to the seed. */
  readonly program?: Program;
  readonly plant?: Plant | undefined;
  /** After how many steps the world is stuck. Default: that of a world. */
  readonly maxSteps?: number;
}

/** Runs a program with one kind of trouble, and judges its log. */
export async function trial(
  seed: number,
  trouble: Trouble,
  { program = programOf(seed), plant, maxSteps }: TrialOptions = {},
): Promise<Trial> {
  const script = scriptOf(program, seed);
  const random = new Random(seed ^ 0x5eed);
  const counted = { crashes: 0 };
  const wrong: string[] = [];
  let played: Played | undefined;
  try {
    played = await play(script, {
      random,
      late: random.chance(0.4),
      reorders: seed % 2 === 1,
      isFed: true,
      plant,
      ...(maxSteps !== undefined && { maxSteps }),
      runtime: { durability: { ...durabilityIn(random), alwaysReplay: trouble === "always replay" } },
      disturb: (world) => disturb(world, trouble, random, counted),
    });
    const { world } = played;
    wrong.push(...world.violations, ...(await world.misfed()), ...miscounted(played), ...misset(played));
  } catch (error) {
    wrong.push(error instanceof Error ? `${error.stack}` : String(error));
  }
  if (wrong.length > 0) wrong.push(print(program));
  return { seed, trouble, crashes: counted.crashes, steps: played?.world.steps ?? 0, wrong };
}

/** The program that belongs to a seed. */
export function programOf(seed: number): Program {
  return makeProgram(new Random(seed), SIMULATED);
}

/** A program and its client. Some questions are not answered, and some runs are cancelled. */
export function scriptOf(program: Program, seed: number, tenant?: string, name = `program ${seed}`): Script {
  const cancelAt = hashOf(`${seed}`) % 10 === 0 ? 3 + (hashOf(`at ${seed}`) % 12) : Number.POSITIVE_INFINITY;
  return {
    register: (process) => {
      const agent = agentOf(playerIn(process));
      for (const name of ["agent", CHILD]) process.runtime.register(name, { durable: true, version: "1" }, agent);
    },
    ...(tenant !== undefined && { tenant }),
    input: inputOf({ name, program, tenant }),
    answer: ({ message, await_id }, log) => {
      if (message.parts[0]?.content?.endsWith(NO_ANSWER) === true) return undefined;
      const reply = replyBelow(nameIn(log), await_id, tenant);
      return "await_resume" in reply ? reply.await_resume : {};
    },
    decline: ({ await_id }, log) => {
      const reply = replyBelow(nameIn(log), await_id, tenant);
      return "decline" in reply ? reply.decline : undefined;
    },
    mail: ({ log }, name, number) => mailTo(nameIn(log), name, number, tenant),
    cancelWhen: (_state, log) => log.length >= cancelAt,
  };
}

/** The name in the program of a run: a fork of a sub-run has that of the sub-run. */
function nameIn(log: readonly Entry[]): string {
  return namedIn(log)?.name ?? "";
}

export function durabilityIn(random: Random): {
  leaseMs: number;
  heartbeatMs: number;
  scanMs: number;
  evictAfterMs: number;
} {
  return { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, evictAfterMs: random.pick([0, 50, 60_000]) };
}

/** Disturbs a process at random, up to a limit. */
export function disturb(world: World, trouble: Trouble, random: Random, counted: { crashes: number }): void {
  const { working } = world;
  if (trouble === "retention") {
    if (random.chance(0.2)) world.prune();
    if (random.chance(0.05)) void world.deleteOne(random);
  }
  // Long waits have many steps in which hardly anything happens.
  const chance = working.some(({ bodies }) => bodies > 0) ? 0.06 : 0.01;
  if (trouble === "none" || trouble === "always replay" || !random.chance(chance)) return;
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
    case "retention":
    case "take-overs":
      if (working.length < 3) world.start();
      if (random.chance(0.7)) process.kill();
      break;
    case "freezes":
      if (working.length < 2) world.start();
      process.freeze();
      process.wakesAt = world.now + random.below(3_000);
      break;
    case "set clocks":
      if (working.length < 3) world.start();
      if (random.chance(0.3)) process.kill();
      for (const each of world.living) each.aheadMs = random.pick([-HOUR_MS, -1_000, 0, 1_000, HOUR_MS]);
      break;
    case "stopped clocks":
      if (working.length < 2) world.start();
      process.stopClock();
      process.wakesAt = world.now + random.below(3_000);
      break;
  }
}

/** The one run of the agent counts once. */
function miscounted({ ending: { status, counted } }: Played): string[] {
  const must = { completed: 0, failed: 0, cancelled: 0, [status]: 1 };
  return isDeepStrictEqual(counted, must) ? [] : [`counts as ${JSON.stringify(counted)}, and is ${status}`];
}

/** The state that the agent has set is that of its session. Where the run ended meanwhile, either is right. */
function misset({ log, session: { state } }: Played): string[] {
  const types = log.flatMap((entry) => ("key" in entry && entry.key.startsWith("session.setState#") ? entry.type : []));
  const isSet = isDeepStrictEqual(state, { count: 7 });
  const isRight = types.includes("step") ? isSet : state === null || (isSet && types.includes("intent"));
  return isRight ? [] : [`the session has the state ${JSON.stringify(state)}`];
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
  return `npm run stress -- durable --seed ${seed} --trouble "${trouble}"`;
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
