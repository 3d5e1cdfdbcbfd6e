import type { Run } from "cadenza";
import { CadenzaError } from "cadenza";
import type { Entry } from "cadenza/store";
import { operationsOf, stopOf } from "../internals.ts";
import { CHILD, print } from "../program.ts";
import { agentOf } from "../program-player.ts";
import { Random } from "../random.ts";
import { playerIn } from "./bodies.ts";
import type { Played, PlayOptions, Script } from "./play.ts";
import { Play, play } from "./play.ts";
import type { Findings, Trial, Trouble } from "./trials.ts";
import { disturb, durabilityIn, noFindings, programOf, scriptOf, sumOf } from "./trials.ts";
import type { Process } from "./world.ts";
import { World } from "./world.ts";

/*
 * Random forks: a random program is run and forked at random, perhaps while it runs, then that fork or one of its
 * sub-runs is forked, also while the retention and clients delete what they may. Each is judged.
 */

/** How many forks follow each other. */
const GENERATIONS = 3;
/** How likely the first run is forked between two of its events. */
const WHILE_IT_RUNS = 0.01;

/** What is chosen for a fork. */
interface Choice {
  /** Undefined: to try again. */
  readonly before: string | undefined;
  readonly keys: "same" | "new";
}

/** The idempotency keys with which steps were run, by the names of their programs and their keys. */
type UsedKeys = Map<string, Set<string>>;

/** A run of which there may be a fork. */
interface Origin {
  readonly run_id: string;
  readonly log: readonly Entry[];
}

/** Runs a program and some forks, with one kind of trouble, and judges their logs. */
async function forkTrial(seed: number, trouble: Trouble): Promise<Trial & { readonly forks: number }> {
  const program = programOf(seed);
  const random = new Random(seed ^ 0xf0f0);
  const counted = { crashes: 0 };
  const wrong: string[] = [];
  const used: UsedKeys = new Map();
  let forks = 0;
  let hasNewKeys = false;
  const script = { ...scriptOf(program, seed), register: (process: Process) => register(process, used) };
  const world = new World({
    random,
    late: random.chance(0.4),
    reorders: seed % 2 === 1,
    runtime: { durability: { ...durabilityIn(random), alwaysReplay: trouble === "always replay" } },
    register: script.register,
  });
  // A client that cancels by the length of the log would cancel each fork at once.
  const { cancelWhen: _, ...patient } = script;
  const disturbed = { world, random, disturb: () => disturb(world, trouble, random, counted) };
  /** Forks a run, and judges the fork. Undefined: there is none. */
  const forkOne = async (of: Origin, now: () => Promise<Origin>): Promise<Played | undefined> => {
    const choice: Choice = {
      before: random.chance(0.2) ? undefined : random.pick([...operationsOf(of.log), undefined]),
      keys: random.chance(0.8) ? "same" : "new",
    };
    hasNewKeys ||= choice.keys === "new";
    const before = new Map([...used].map(([step, keys]) => [step, new Set(keys)]));
    const fork = await forkOf(of, choice, patient, disturbed);
    if (fork === undefined) return undefined;
    forks += 1;
    const { log } = fork;
    const origin = await now();
    const said = world.violations.splice(0);
    said.push(...repeated(fork, origin), ...(hasNewKeys ? [] : otherKeys(used, before)));
    if (log.filter(({ type }) => type === "forked").length !== 1) said.push("it does not say where it begins");
    wrong.push(...said.map((what) => `fork ${forks} of ${of.run_id} before ${choice.before}: ${what}`));
    return fork;
  };
  try {
    const first = new Play(script, {
      world,
      random,
      disturb: () => {
        if (early === undefined && random.chance(WHILE_IT_RUNS)) early = forkEarly();
      },
    });
    /** The fork of the first run, if it is made while that runs. */
    let early: Promise<Played | undefined> | undefined;
    const forkEarly = async (): Promise<Played | undefined> => {
      const { runId: run_id } = first;
      return forkOne({ run_id, log: await world.log(run_id) }, () => over);
    };
    await first.begin();
    const over = first.toTheEnd();
    const chain: Origin[] = [await over];
    for (const fork of [await early]) if (fork !== undefined) chain.push(fork);
    for (let generation = 1; generation <= GENERATIONS; generation++) {
      world.steps = 0;
      const of = await originIn(world, chain, random);
      if (of === undefined) break;
      const fork = await forkOne(of, () => Promise.resolve(of));
      if (fork !== undefined) chain.push(fork);
    }
  } catch (error) {
    wrong.push(...world.violations, error instanceof Error ? `${error.stack}` : String(error));
  }
  if (wrong.length > 0) wrong.push(print(program));
  return { seed, trouble, crashes: counted.crashes, steps: world.steps, forks, wrong };
}

/** One of the runs that the store still has, or one of the sub-runs of such a run. Undefined: it has none of the runs. */
async function originIn(world: World, chain: readonly Origin[], random: Random): Promise<Origin | undefined> {
  const left: Origin[] = [];
  for (const one of chain) if ((await world.find(one.run_id)) !== undefined) left.push(one);
  if (left.length === 0) return undefined;
  const of = random.pick(left);
  const below = of.log.flatMap((entry) => (entry.type === "intent" && entry.run_id !== null ? [entry.run_id] : []));
  const run_id = below.length > 0 && random.chance(0.3) ? random.pick(below) : of.run_id;
  if (run_id === of.run_id || (await world.find(run_id)) === undefined) return of;
  return { run_id, log: await world.log(run_id) };
}

function register(process: Process, used: UsedKeys): void {
  const player = playerIn(process);
  const agent = agentOf({
    ...player,
    work: (work) => {
      const step = `${work.name} ${work.key}`;
      used.set(step, (used.get(step) ?? new Set()).add(work.idempotencyKey));
      return player.work(work);
    },
  });
  for (const name of ["agent", CHILD]) process.runtime.register(name, { durable: true, version: "1" }, agent);
}

/** Makes and plays a fork. Undefined: it is refused, as it must be. */
async function forkOf(
  { run_id, log }: Origin,
  { before, keys }: Choice,
  script: Script,
  options: PlayOptions & { readonly world: World },
): Promise<Played | undefined> {
  const { world } = options;
  const idempotencyKey = `fork ${world.serial()}`;
  const create = ({ runtime }: Process): Promise<Run> =>
    runtime.fork(run_id, { ...(before !== undefined && { before }), keys, mode: "async", idempotencyKey });
  try {
    return await play({ ...script, create }, options);
  } catch (error) {
    const code = CadenzaError.is(error) ? error.code : "";
    if (code === "not_forkable" && stopOf(await world.log(run_id)) !== undefined) return undefined;
    // It was deleted meanwhile.
    if (code === "run_not_found" && (await world.find(run_id)) === undefined && log.length > 0) return undefined;
    throw error;
  }
}

/** Recorded results are taken over as they are. */
function repeated(fork: Played, of: Origin): string[] {
  const cut = fork.log.findIndex(({ type }) => type === "forked");
  const known = new Set(of.log.map((entry) => JSON.stringify(entry)));
  const results = fork.log.slice(0, cut).filter(({ type }) => type === "step" || type === "resumed");
  return results.filter((entry) => !known.has(JSON.stringify(entry))).map((entry) => `has ${JSON.stringify(entry)}`);
}

/** A step has one idempotency key in a run and in all forks that keep the keys. */
function otherKeys(used: UsedKeys, before: UsedKeys): string[] {
  const wrong: string[] = [];
  for (const [step, now] of used) {
    const then = before.get(step);
    if (then !== undefined && now.size > then.size) wrong.push(`${step} has the keys ${[...now].join(", ")}`);
  }
  return wrong;
}

const troubles: readonly Trouble[] = [
  "crashes",
  "take-overs",
  "freezes",
  "stopped clocks",
  "retention",
  "none",
  "always replay",
];

/** The command that repeats a trial. */
export function again({ seed }: Trial): string {
  return `npm run stress -- durable --part forks --seed ${seed} --forks 1`;
}

/** Makes at least so many random forks, of programs from a seed on. */
export async function forkAll(from: number, count: number): Promise<Findings> {
  let findings: Findings = noFindings;
  let forks = 0;
  for (let seed = from; forks < count; seed++) {
    const one = await forkTrial(seed, troubles[seed % troubles.length] ?? "none");
    forks += one.forks;
    const wrong = one.wrong.length > 0 ? [one] : [];
    findings = sumOf(findings, { programs: 1, trials: one.forks, troubles: one.crashes, wrong });
  }
  return findings;
}
