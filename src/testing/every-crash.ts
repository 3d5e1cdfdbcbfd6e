import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Agent, AgentFunction } from "../runtime/agent.ts";
import { checkFunction } from "../runtime/check.ts";
import type { RunInput } from "../runtime/input.ts";
import { Chance } from "./chance.ts";
import { crashPointsOf } from "./crash-point.ts";
import type { CrashResult } from "./crash-report.ts";
import { CrashReport } from "./crash-report.ts";
import type { CrashOutcome, CrashPlay, StepPlace, Way } from "./crash-trial.ts";
import { tryWay } from "./crash-trial.ts";
import { readAgent } from "./drive-options.ts";
import { describeOutside } from "./outside.ts";
import { diffLines } from "./text-diff.ts";
import type { WayOptions, WaySettings } from "./way-options.ts";
import { problemsAfter, readWayOptions, sortOut } from "./way-options.ts";

/** How an agent is crashed. `patienceMs` is 250 here, unless it is given. */
export interface CrashOptions extends WayOptions {
  /**
   * What the agent has done to the world outside, as the world has it after a run: the charges that a payment service holds, the mails in an outbox.
   * It has to be the same whether there was a crash or not. The order of items in lists does not count. Make the world anew in `before`. Default: only the
   * run is compared.
   */
  readonly world?: (() => unknown) | undefined;
}

/** What is compared of a run. */
interface Ending {
  readonly status: string;
  readonly reason: string;
  readonly output: string;
  readonly outside: string;
}

/**
 * Runs a durable agent again and again, and kills its process at every point there is: before, in and after the body of each step and each sub-run, around
 * each question and answer, and before the end. Another process takes over each time. Beside that, each step fails once when its work was done, as when a reply is
 * lost; and the agent is run again after every commit. Then the run has to end as it does when it is left alone, and the world outside has to be the same.
 *
 * The agent is run as a durable one, also if it is not registered so. `Math.random()` gives other numbers to an agent that is run again.
 *
 * @example
 * const report = await everyCrash(order, "Three apples", {
 *   answers: [{ ok: true }],
 *   before: () => shop.reset(),
 *   world: () => shop.charges,
 * });
 * report.assert();
 */
export async function everyCrash(
  agent: Agent | AgentFunction,
  input: RunInput,
  options: CrashOptions = {},
): Promise<CrashReport> {
  const { world, ...rest } = options;
  if (world !== undefined) checkFunction("options.world", world);
  const settings = readWayOptions(rest);
  const { drive, answers } = settings;
  const play: CrashPlay = { agent: readAgent(agent), input, settings: drive, answers, chance: new Chance() };

  const run = async (way: Way): Promise<Tried> => {
    await settings.before?.();
    const outcome = await tryWay(play, way);
    const outside = world === undefined ? "" : describeOutside(await world());
    const { state } = outcome.disk.view ?? {};
    const ending = endingOf(state, outside);
    return { way, outcome, ending, after: await problemsAfter(settings, state && runRecord(state)) };
  };

  return Chance.during(async () => {
    const alone = await run({ kind: "none" });
    const results = [resultOf(alone, alone, settings)];
    for (const way of hasEnded(alone) ? waysOf(alone.outcome) : []) {
      const tried = await run(way);
      // An agent that goes by real time may not come there another time: then there is nothing to tell.
      if (tried.outcome.isReached) results.push(resultOf(tried, alone, settings));
    }
    return new CrashReport(play.agent.name, results);
  });
}

/** One way, and what came of it. */
interface Tried {
  readonly way: Way;
  readonly outcome: CrashOutcome;
  readonly ending: Ending;
  /** What the user's own check says. */
  readonly after: readonly string[];
}

/** Every way to run an agent that does this when it is left alone. */
function waysOf({ disk, operations }: CrashOutcome): readonly Way[] {
  const steps = operations.filter(({ kind }) => kind === "step");
  const runsOnce = (path: string, key: string): boolean =>
    steps.some((step) => step.runsOnce && step.key === key && disk.pathOf(step.run_id) === path);
  const places = steps
    .filter(({ state }) => state === "done")
    .map((step): StepPlace => {
      const path = disk.pathOf(step.run_id);
      const of = path === "" ? "" : ` of ${step.agent_name}`;
      return { path, key: step.key, where: `step ${step.key}${of} failed when its work was done` };
    });
  return [
    ...crashPointsOf(disk.writes, runsOnce).map((point): Way => ({ kind: "crash", point })),
    ...places.map((step): Way => ({ kind: "lost reply", step })),
    { kind: "replay" },
  ];
}

function resultOf(tried: Tried, alone: Tried, settings: WaySettings): CrashResult {
  const { way, ending, after } = tried;
  const where = whereOf(way);
  const problems = [...(tried === alone ? tried.outcome.problems : differences(tried, alone)), ...after];
  return { kind: way.kind, where, status: ending.status, ...sortOut(problems, where, settings) };
}

function whereOf(way: Way): string {
  switch (way.kind) {
    case "none":
      return "left alone";
    case "crash":
      return `crashed ${way.point.where}`;
    case "lost reply":
      return way.step.where;
    case "replay":
      return "run again after every commit";
  }
}

/** What is not as it is when the agent is left alone, in sentences. */
function differences({ way, outcome, ending }: Tried, alone: Tried): readonly string[] {
  const { blocked, problems } = outcome;
  if (blocked !== undefined) {
    const { position, expected, asked } = blocked;
    return [
      `It is blocked: its code does not match its history at entry ${position + 1} (history: ${expected}; code: ${asked}). ` +
        "An agent that is run again has to do the same again: put chance, time and the world into steps.",
    ];
  }
  if (problems.length > 0) return problems;
  const isSame = ending.status === alone.ending.status && ending.output === alone.ending.output;
  // An agent may go another way when a step of it fails, and then another world is right.
  const mayDiffer = way.kind === "lost reply" || (way.kind === "crash" && way.point.mayDiffer);
  if (mayDiffer && (!isSame || outcome.isOffScript)) return [];
  return [...endingProblems(ending, alone.ending), ...outsideProblems(ending, alone.ending)];
}

function endingProblems(ending: Ending, alone: Ending): readonly string[] {
  if (ending.status !== alone.status)
    return [
      `It ended as ${ending.status}${ending.reason}, and ends as ${alone.status}${alone.reason} when it is left alone.`,
    ];
  if (ending.output === alone.output) return [];
  return [
    `Its output is not what it is without the crash: - left alone, + here\n${diffLines(alone.output, ending.output)}`,
  ];
}

function outsideProblems(ending: Ending, alone: Ending): readonly string[] {
  if (ending.outside === alone.outside) return [];
  const diff = diffLines(alone.outside, ending.outside);
  return [`The world outside is not what it is without the crash: - left alone, + here\n${diff}`];
}

function hasEnded({ outcome }: Tried): boolean {
  const { state } = outcome.disk.view ?? {};
  return state !== undefined && isFinal(state.status);
}

function endingOf(state: RunState | undefined, outside: string): Ending {
  if (state === undefined) return { status: "created", reason: "", output: "", outside };
  const { status, error, output } = runRecord(state);
  const parts = output.flatMap((message) =>
    message.parts.map(({ content, content_url }) => content ?? content_url ?? ""),
  );
  const reason = error === null ? "" : ` (${error.message})`;
  return { status, reason, output: parts.join(""), outside };
}
