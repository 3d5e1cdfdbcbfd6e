import { whereBlocked } from "../core/blocked-error.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import { checkFunction } from "../runtime/agent/check.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { Chance } from "./chance.ts";
import { crashPointsOf } from "./crash-point.ts";
import type { CrashResult } from "./crash-report.ts";
import { CrashReport } from "./crash-report.ts";
import type { CrashOutcome, CrashPlay, CrashWay, StepPlace } from "./crash-trial.ts";
import { shownText, tryWay } from "./crash-trial.ts";
import { readAgent } from "./drive-options.ts";
import { describeOutside } from "./outside.ts";
import { diffLines } from "./text-diff.ts";
import type { WayOptions, WaySettings } from "./way-options.ts";
import { chosenWays, failureProblems, problemsAfter, readWayOptions, sortOut, suppliesLeft } from "./way-options.ts";

/** How an agent is crashed. `patienceMs` is 250 by default. */
export interface CrashOptions extends WayOptions {
  /**
   * The agent's effects on the world outside after a run: the charges of a payment service, the mails in an outbox.
   * They must be the same with and without a crash. The order of items in lists is ignored. Reset the world in
   * `before`. Default: only the run is compared.
   */
  readonly world?: (() => unknown) | undefined;
}

/** The compared outcome of a run. */
interface Ending {
  readonly status: string;
  readonly reason: string;
  readonly output: string;
  readonly outside: string;
}

/**
 * Executes a durable agent many times, and kills its process at every possible point: before, in and after the body of
 * each step and each sub-run, around each question, answer, message and sleep, and before the end. The clock moves by
 * itself when the agent only waits for it. Another process takes over each
 * time. Besides, each step fails once after its work was done, as if its reply were lost, and the agent is replayed
 * after every commit. Each time the run must end as it does when it is left alone, and the world outside must be the
 * same. Left alone, it must not fail, unless by an `AgentError`, a declined answer, time or its budget. All `answers` of a
 * list must be asked for.
 *
 * The agent is made durable, even if it is not registered so. `Math.random()` gives other numbers to an agent in a
 * replay.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { everyCrash } from "cadenza/testing";
 *
 * const charges = new Map<string, number>(); // what the payment service holds
 * const order = defineAgent("order", async (_input, { step, ask }) => {
 *   await step("charge", ({ idempotencyKey }) => void charges.set(idempotencyKey, 30));
 *   return ask("Ship?");
 * });
 * const report = await everyCrash(order, "Three apples", {
 *   answers: [{ ok: true }],
 *   before: () => charges.clear(),
 *   world: () => [...charges],
 * });
 * report.assert();
 * ```
 */
export async function everyCrash(
  agent: Agent | AgentFunction,
  input: RunInput,
  options: CrashOptions = {},
): Promise<CrashReport> {
  const { world, ...rest } = options;
  if (world !== undefined) checkFunction("options.world", world);
  const settings = readWayOptions(rest);
  const { drive, answers, messages } = settings;
  const chance = new Chance(settings.seed);
  const play: CrashPlay = { agent: readAgent(agent), input, settings: drive, answers, messages, chance };

  const run = async (way: CrashWay): Promise<Tried> => {
    await settings.before?.();
    const outcome = await tryWay(play, way);
    const outside = world === undefined ? "" : describeOutside(await world());
    const { state } = outcome.disk.view ?? {};
    const ending = endingOf(state, outside);
    return { way, outcome, ending, after: await problemsAfter(settings, state && runRecord(state)) };
  };

  return Chance.during(async () => {
    const alone = await run({ kind: "none" });
    const results: CrashResult[] = [];
    const outcomes = [alone.outcome];
    const ways = hasEnded(alone) ? chosenWays(waysOf(alone.outcome), alone.way, whereOf, settings) : [];
    for (const way of ways) {
      const tried = await run(way);
      // An agent that uses real time may not reach that point again. Then there is no result.
      if (!tried.outcome.isReached) continue;
      results.push(resultOf(tried, differences(tried, alone), settings));
      outcomes.push(tried.outcome);
    }
    const { problems, disk } = alone.outcome;
    const found = [...problems, ...failureProblems(settings, disk.view), ...suppliesLeft(settings, outcomes)];
    results.unshift(resultOf(alone, found, settings));
    return new CrashReport(play.agent.name, results, chance.isUsed ? chance.seed : undefined);
  });
}

/** One way, and its outcome. */
interface Tried {
  readonly way: CrashWay;
  readonly outcome: CrashOutcome;
  readonly ending: Ending;
  /** What the caller's own check reports. */
  readonly after: readonly string[];
}

/** Every way to execute an agent that does this when it is left alone. */
function waysOf({ disk, operations }: CrashOutcome): readonly CrashWay[] {
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
    ...crashPointsOf(disk.writes, runsOnce).map((point): CrashWay => ({ kind: "crash", point })),
    ...places.map((step): CrashWay => ({ kind: "lost reply", step })),
    { kind: "replay" },
  ];
}

function resultOf({ way, ending, after }: Tried, found: readonly string[], settings: WaySettings): CrashResult {
  const where = whereOf(way);
  return { kind: way.kind, where, status: ending.status, ...sortOut([...found, ...after], where, settings) };
}

function whereOf(way: CrashWay): string {
  switch (way.kind) {
    case "none":
      return "left alone";
    case "crash":
      return `crashed ${way.point.where}`;
    case "lost reply":
      return way.step.where;
    case "replay":
      return "replayed after every commit";
  }
}

/** The differences from the agent that is left alone, in sentences. */
function differences({ way, outcome, ending }: Tried, alone: Tried): readonly string[] {
  const { blocked, problems } = outcome;
  if (blocked !== undefined) {
    return [
      `It is blocked: its code does not match its history ${whereBlocked(blocked)}. ` +
        "A replay must do the same as the first time: put randomness, time and side effects into steps.",
    ];
  }
  if (problems.length > 0) return problems;
  const isSame = ending.status === alone.ending.status && ending.output === alone.ending.output;
  // An agent may behave differently when one of its steps fails. Its effects may then differ, too.
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
  const reason = error === null ? "" : ` (${error.message})`;
  return { status, reason, output: output.map(shownText).join(""), outside };
}
