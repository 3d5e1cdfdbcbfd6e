import { whereBlocked } from "../core/blocked-error.ts";
import type { Entry } from "../core/log.ts";
import { resultKey } from "../core/operation-keys.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import type { Agent, AgentFunction } from "../runtime/agent/agent.ts";
import { newAgent } from "../runtime/agent/agent.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { Chance } from "./chance.ts";
import type { SeenWrite } from "./crash-point.ts";
import type { CrashOutcome, CrashPlay, UpgradeWay, Way } from "./crash-trial.ts";
import { shownText, tryWay } from "./crash-trial.ts";
import { readAgent } from "./drive-options.ts";
import type { WayResult } from "./report.ts";
import { Report } from "./report.ts";
import type { WayOptions } from "./way-options.ts";
import { chosenWays, failureProblems, problemsAfter, readWayOptions, sortOut, suppliesLeft } from "./way-options.ts";

/** How an agent is upgraded. `patienceMs` is 250 by default. */
export interface UpgradeOptions extends WayOptions {
  /** Default: an empty text. */
  readonly input?: RunInput | undefined;
}

/** One upgrade, and its outcome. */
interface UpgradeResult extends WayResult {
  /** How many entries the old code had written to the log of the run. */
  readonly entries: number;
  /** What the run shows in the end: the texts of its output. */
  readonly output: string;
}

/** The result of `everyUpgrade`. As text it is the message of a failing test. */
export class UpgradeReport extends Report<UpgradeResult> {}

/**
 * Executes a durable agent many times, and replaces its code once each time: after every write of the old code its process
 * dies, and a process with the new code continues the run. Each run must come to its end: code that does not match the
 * history blocks it, which is a problem. So is a failure, unless by an `AgentError`, a declined answer, time or a budget, and
 * so are `answers` of a list for which no run asks. `report.results` says for each upgrade where it was, how the run ended and what
 * it shows. `options.after` checks the run further.
 *
 * Both are taken for the same version of the agent. `options.agents` are the sub-agents, before and after.
 *
 * @example
 * ```ts
 * import { defineAgent } from "cadenza";
 * import { everyUpgrade } from "cadenza/testing";
 *
 * const before = defineAgent("order", async (_input, { ask }) => {
 *   return `${await ask("Order it?")}`;
 * });
 * const after = defineAgent("order", async (_input, { ask, step, patched }) => {
 *   if (patched("check the stock first")) await step("check the stock", () => true);
 *   return `${await ask("Order it?")}`;
 * });
 * const report = await everyUpgrade(before, after, { answers: ["yes"] });
 * report.assert();
 * ```
 */
export async function everyUpgrade(
  before: Agent | AgentFunction,
  after: Agent | AgentFunction,
  options: UpgradeOptions = {},
): Promise<UpgradeReport> {
  const { input = "", ...rest } = options;
  const settings = readWayOptions(rest);
  const { drive, answers, messages } = settings;
  const chance = new Chance(settings.seed);
  const agent = readAgent(before);
  const next = asSuccessor(readAgent(after), agent);
  const play: CrashPlay = { agent, next, input, settings: drive, answers, messages, chance };

  const run = async (way: Way): Promise<Tried> => {
    await settings.before?.();
    const outcome = await tryWay(play, way);
    const { view } = outcome.disk;
    const found = way.kind === "none" ? outcome.problems : problemsOf(outcome, view?.state);
    const after = await problemsAfter(settings, view && runRecord(view.state));
    return { way, outcome, problems: [...found, ...failureProblems(settings, view), ...after] };
  };

  return Chance.during(async () => {
    const alone = await run(noWay);
    const tries = [alone];
    const hasEnded = alone.outcome.disk.view !== undefined && isFinal(alone.outcome.disk.view.state.status);
    const ways = hasEnded ? chosenWays<Way>(waysOf(alone.outcome.disk.writes), noWay, whereOf, settings) : [];
    for (const way of ways) {
      const tried = await run(way);
      // An agent that uses real time may write less.
      if (tried.outcome.isReached) tries.push(tried);
    }
    const outcomes = tries.map(({ outcome }) => outcome);
    const results = tries.map((tried): UpgradeResult => {
      const where = whereOf(tried.way);
      const problems = tried === alone ? [...tried.problems, ...suppliesLeft(settings, outcomes)] : tried.problems;
      return { ...resultOf(tried.way, tried.outcome.disk.view?.state), where, ...sortOut(problems, where, settings) };
    });
    return new UpgradeReport(agent.name, results, chance.isUsed ? chance.seed : undefined);
  });
}

/** One way, and its outcome. */
interface Tried {
  readonly way: Way;
  readonly outcome: CrashOutcome;
  readonly problems: readonly string[];
}

const noWay: Way = { kind: "none" };

/** The new code under the name and the version of the old one. */
function asSuccessor({ options, fn }: Agent, { name, options: { version } }: Agent): Agent {
  return newAgent(name, { ...options, version }, fn, "typed");
}

/** An upgrade after each write, but for the last one of the run: nothing of it is open then. */
function waysOf(writes: readonly SeenWrite[]): readonly UpgradeWay[] {
  const ways: UpgradeWay[] = [];
  let entries = 0;
  let written = 0;
  for (const { run, entries: added } of writes) {
    if (added.length === 0) continue;
    written += 1;
    const last = added.at(-1);
    if (run.path === "") entries += added.length;
    if (last === undefined || (run.path === "" && last.type === "ended")) continue;
    const of = run.path === "" ? "" : ` of ${run.agent_name}`;
    const where = `upgraded after ${entries} entries, ${wordOf(last)}${of}`;
    ways.push({ kind: "upgrade", writes: written, entries, where });
  }
  return ways;
}

function wordOf(entry: Entry): string {
  const key = entry.type === "intent" ? entry.key : entry.type === "awaited" ? entry.await_id : resultKey(entry);
  return key === undefined ? entry.type : `${entry.type} ${key}`;
}

function whereOf(way: Way): string {
  return way.kind === "upgrade" ? way.where : "left alone";
}

function problemsOf({ blocked, problems, isOffScript }: CrashOutcome, state: RunState | undefined): readonly string[] {
  if (blocked !== undefined) {
    return [
      `It is blocked: the new code does not match its history ${whereBlocked(blocked)}. ` +
        "Ask `context.patched` before what is new, or give the new code another version.",
    ];
  }
  if (isOffScript && problems.length === 0) return ["It waits for an answer or a message that the test does not have."];
  if (problems.length > 0 || (state !== undefined && isFinal(state.status))) return problems;
  return [`It does not come to an end: it is ${state?.status ?? "not created"}.`];
}

function resultOf(way: Way, state: RunState | undefined) {
  const output = state === undefined ? [] : runRecord(state).output;
  const texts = output.map(shownText);
  const entries = way.kind === "upgrade" ? way.entries : (state?.position ?? 0);
  return { kind: way.kind, status: state?.status ?? "created", entries, output: texts.join("\n") };
}
