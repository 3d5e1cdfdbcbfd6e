import type { Run } from "cadenza";
import { CadenzaError } from "cadenza";
import { operationsOf, stopOf } from "../../../src/core/fork.ts";
import { misjudged } from "../judge.ts";
import { CHILD, print } from "../program.ts";
import { agentOf } from "../program-player.ts";
import { Random } from "../random.ts";
import { playerIn } from "./bodies.ts";
import type { Played, Script } from "./play.ts";
import { play } from "./play.ts";
import type { Findings, Trial, Trouble } from "./trials.ts";
import { disturb, durabilityIn, noFindings, programOf, scriptOf, sumOf } from "./trials.ts";
import type { Process } from "./world.ts";

/* Random forks: a random program is run, then forked at random, then that fork is forked. Each is judged. */

/** How many forks follow each other. */
const GENERATIONS = 3;

/** What is chosen for a fork. */
interface Choice {
  /** Undefined: to try again. */
  readonly before: string | undefined;
  readonly keys: "same" | "new";
}

/** The idempotency keys with which steps were run, by the names of their programs and their keys. */
type UsedKeys = Map<string, Set<string>>;

/** Runs a program and some forks, with one kind of trouble, and judges their logs. */
async function forkTrial(seed: number, trouble: Trouble): Promise<Trial & { readonly forks: number }> {
  const program = programOf(seed);
  const random = new Random(seed ^ 0xf0f0);
  const counted = { crashes: 0 };
  const wrong: string[] = [];
  const used: UsedKeys = new Map();
  let forks = 0;
  let hasNewKeys = false;
  let played: Played | undefined;
  try {
    const script = { ...scriptOf(program, seed), register: (process: Process) => register(process, used) };
    const options = {
      random,
      late: random.chance(0.4),
      runtime: { durability: { ...durabilityIn(random), alwaysReplay: trouble === "always replay" } },
    };
    played = await play(script, options);
    const chain: Played[] = [played];
    const origin = played;
    // A client that cancels by the length of the log would cancel each fork at once.
    const { cancelWhen: _, ...patient } = script;
    for (let generation = 1; generation <= GENERATIONS; generation++) {
      const of = random.pick(chain);
      const choice: Choice = {
        before: random.chance(0.2) ? undefined : random.pick([...operationsOf(of.log), undefined]),
        keys: random.chance(0.8) ? "same" : "new",
      };
      hasNewKeys ||= choice.keys === "new";
      const before = new Map([...used].map(([step, keys]) => [step, new Set(keys)]));
      origin.world.steps = 0;
      const fork = await forkOf(of, choice, patient, {
        ...options,
        world: origin.world,
        disturb: (world) => disturb(world, trouble, random, counted),
      });
      if (fork === undefined) continue;
      forks += 1;
      chain.push(fork);
      const { world, run_id, log } = fork;
      const said = [...world.violations.splice(0), ...(await misjudged(run_id, (id) => world.log(id)))];
      if (program.certainty === "fixed") said.push(...otherwise(fork, of));
      said.push(...repeated(fork, of), ...(hasNewKeys ? [] : otherKeys(used, before)));
      wrong.push(...said.map((what) => `fork ${generation} of ${of.run_id} before ${choice.before}: ${what}`));
      if (log.filter(({ type }) => type === "forked").length !== 1) wrong.push("A fork does not say where it begins.");
    }
  } catch (error) {
    wrong.push(error instanceof Error ? `${error.stack}` : String(error));
  }
  if (wrong.length > 0) wrong.push(print(program));
  return { seed, trouble, crashes: counted.crashes, steps: played?.world.steps ?? 0, forks, wrong };
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
  of: Played,
  { before, keys }: Choice,
  script: Script,
  options: Parameters<typeof play>[1],
): Promise<Played | undefined> {
  const idempotencyKey = `fork ${options?.world?.serial()}`;
  const create = ({ runtime }: Process): Promise<Run> =>
    runtime.fork(of.run_id, { ...(before !== undefined && { before }), keys, mode: "async", idempotencyKey });
  try {
    return await play({ ...script, create }, options);
  } catch (error) {
    if (CadenzaError.is(error) && error.code === "not_forkable" && stopOf(of.log) !== undefined) return undefined;
    throw error;
  }
}

/** A program whose output depends on nothing else ends as its origin has ended. */
function otherwise({ ending }: Played, of: Played): string[] {
  if (of.ending.status === "cancelled" || ending.status === "cancelled") return [];
  const [is, must] = [ending, of.ending].map(({ status, output }) => JSON.stringify({ status, output }));
  return is === must ? [] : [`ended as ${is}, and its origin as ${must}`];
}

/** Recorded results are taken over as they are. */
function repeated(fork: Played, of: Played): string[] {
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

const troubles: readonly Trouble[] = ["crashes", "take-overs", "freezes", "stopped clocks", "none", "always replay"];

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
