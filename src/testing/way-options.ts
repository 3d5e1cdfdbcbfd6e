import type { CadenzaErrorCode } from "../core/errors.ts";
import { messageOf } from "../core/failure.ts";
import type { EndedEntry, Entry, StepEntry } from "../core/log.ts";
import type { Run } from "../protocol/run.ts";
import { badArgument, checkFunction, checkObject } from "../runtime/agent/check.ts";
import type { DriveOptions, DriveSettings } from "./drive-options.ts";
import { readDriveOptions } from "./drive-options.ts";
import type { Answers } from "./rehearsal.ts";
import { lineOf } from "./report.ts";
import type { RunView } from "./run-view.ts";
import type { Messages, TestMessage } from "./supply.ts";
import { checkMessages } from "./supply.ts";
import { matches } from "./text-match.ts";

/** How an agent is executed in many ways. */
export interface WayOptions extends DriveOptions {
  /**
   * The answers to the agent's questions: a list in the order of the questions, or a function of the question. The
   * answer `decline(reason)` declines. Answers of a list for which the agent never asks are a problem. Default: none.
   */
  readonly answers?: Answers | undefined;
  /**
   * The messages that the agent receives: a list, or a function of the message's name. Each is sent when the agent waits
   * for a message of its name. Default: none. A receive without a message waits for its deadline. Messages of a list for
   * which the agent never waits are a problem.
   */
  readonly messages?: Messages | undefined;
  /** Called before each run of the agent. Open here what it uses. */
  readonly before?: (() => unknown) | undefined;
  /**
   * Called after each run of the agent, with the run as a client sees it. Check here whether the agent has closed what
   * it opened. A text that it returns, or an error that it throws, is a problem.
   */
  readonly after?: ((run: Run) => unknown) | undefined;
  /**
   * Problems to ignore: a text that the problem's line contains, or a pattern that it matches. The lines are those of
   * `report.problems`. Ignored problems are in `ignored` of the result, and the text of the report counts them.
   */
  readonly ignore?: readonly (string | RegExp)[] | undefined;
  /**
   * The only way to execute, beside the undisturbed one: its words as the report has them, or a pattern that the words of
   * several ways match. A failing report ends with those of its first one. Default: all ways.
   */
  readonly only?: string | RegExp | undefined;
  /**
   * What the numbers follow from that `Math.random()` gives to the agent, an integer. A failing report names it if the
   * agent has drawn any. Default: another one each time.
   */
  readonly seed?: number | undefined;
}

/** The options with their defaults. */
export interface WaySettings {
  readonly drive: DriveSettings;
  /** The messages of the errors that stand for steps and sub-agents. */
  readonly thrown: ReadonlySet<string>;
  readonly answers: Answers;
  readonly messages: Messages;
  readonly before: (() => unknown) | undefined;
  readonly after: ((run: Run) => unknown) | undefined;
  readonly ignore: readonly (string | RegExp)[];
  readonly only: string | RegExp | undefined;
  readonly seed: number | undefined;
}

const PATIENCE_MS = 250;

/** Reads the options. Throws `invalid_argument` for an invalid one. */
export function readWayOptions(options: WayOptions): WaySettings {
  checkObject("options", options);
  const { answers = [], messages = [], before, after, ignore = [], only, seed, ...drive } = options;
  if (typeof answers !== "function" && !Array.isArray(answers))
    throw badArgument("options.answers", "a list, or a function of the question", answers);
  checkMessages(messages);
  if (before !== undefined) checkFunction("options.before", before);
  if (after !== undefined) checkFunction("options.after", after);
  checkIgnore(ignore);
  if (only !== undefined && !(only instanceof RegExp) && typeof only !== "string")
    throw badArgument("options.only", "the words of a way, or a pattern", only);
  if (seed !== undefined && !Number.isSafeInteger(seed)) throw badArgument("options.seed", "an integer", seed);
  const settings = readDriveOptions({ patienceMs: PATIENCE_MS, ...drive });
  const standIns: readonly unknown[] = [drive.steps, drive.agents].flatMap((some) => Object.values(some ?? {}));
  const thrown = new Set(standIns.flatMap((one) => (one instanceof Error ? [one.message] : [])));
  return { drive: settings, thrown, answers, messages, before, after, ignore, only, seed };
}

/**
 * The ways to execute, of all that there are beside the undisturbed one.
 * @throws `invalid_argument` if `only` names none of them: a test would pass that tries nothing.
 */
export function chosenWays<W>(
  ways: readonly W[],
  undisturbed: W,
  whereOf: (way: W) => string,
  { only }: WaySettings,
): readonly W[] {
  if (only === undefined) return ways;
  const isChosen = (way: W): boolean =>
    typeof only === "string" ? whereOf(way) === only : matches(whereOf(way), only);
  const chosen = ways.filter(isChosen);
  if (chosen.length === 0 && !isChosen(undisturbed))
    throw badArgument("options.only", "the words of a way to run the agent, as the report has them", only);
  return chosen;
}

/** The problems that the caller's own check reports. `run` is undefined if it was never created. */
export async function problemsAfter({ after }: WaySettings, run: Run | undefined): Promise<readonly string[]> {
  if (after === undefined || run === undefined) return [];
  try {
    const said = await after(run);
    return typeof said === "string" && said !== "" ? [said] : [];
  } catch (error) {
    return [messageOf(error)];
  }
}

/** The codes of errors of the library that tell of a mistake in the agent's code. */
const MISTAKES: readonly unknown[] = [
  "invalid_argument",
  "invalid_yield",
  "invalid_output",
  "nested_operation",
] satisfies CadenzaErrorCode[];

/**
 * The failure of a run that nothing made to fail. An `AgentError` is meant, a declined answer, time and a budget come from the
 * test, and so does an error that stands for a step or a sub-agent.
 */
export function failureProblems({ thrown }: WaySettings, view: RunView | undefined): readonly string[] {
  const last = view?.entries.at(-1);
  if (last?.type !== "ended" || last.error === undefined) return [];
  const { cause = causeIn(view?.entries ?? [], last), error } = last;
  if (cause === undefined ? !MISTAKES.includes(error.data?.["reason"]) : thrown.has(cause.message)) return [];
  // Whether a sub-agent has failed with an error that stands for something is not known here.
  if (error.data?.["reason"] === "run_failed" && thrown.size > 0) return [];
  return [
    `It failed, and nothing made it fail. Where it is to fail, throw an AgentError. It threw: ${(cause ?? error).message}`,
  ];
}

/** What a step or a sub-run has thrown that is no error for clients, and with which the agent has failed. */
function causeIn(entries: readonly Entry[], { key, error }: EndedEntry): { readonly message: string } | undefined {
  const reason = error?.data?.["reason"];
  const failed = entries.findLast((entry): entry is StepEntry => entry.type === "step" && entry.key === key);
  if (reason === "agent_failed") return failed?.error ?? undefined;
  const run = failed?.result as unknown as Run | undefined;
  return reason === "run_failed" && run?.error?.data?.["reason"] === "agent_failed" ? error : undefined;
}

/** What an agent took of the answers and messages in one way to run it. */
interface Taken {
  /** How many questions there were. */
  readonly asked: number;
  readonly received: ReadonlySet<TestMessage>;
}

/** The answers and messages of lists that no way to run the agent took. With `only`, another way may take them. */
export function suppliesLeft({ answers, messages, only }: WaySettings, ways: readonly Taken[]): readonly string[] {
  if (only !== undefined) return [];
  const found: string[] = [];
  const most = Math.max(...ways.map(({ asked }) => asked));
  if (typeof answers !== "function" && answers.length > most) {
    const questions = most === 1 ? "1 question" : `${most} questions`;
    const are = answers.length === 1 ? "is 1 answer" : `are ${answers.length} answers`;
    found.push(
      `It asks ${questions}, and there ${are}. Remove the rest of { answers: [ … ] }, or look why it asks no more.`,
    );
  }
  const left =
    typeof messages === "function" ? [] : messages.filter((one) => !ways.some((way) => way.received.has(one)));
  if (left.length > 0) {
    const names = [...new Set(left.map(({ name }) => JSON.stringify(name)))].join(", ");
    found.push(
      `It does not receive ${names} of { messages: [ … ] }. Remove what is left of them, or look why it waits no more.`,
    );
  }
  return found;
}

/** Separates the problems to ignore from the others. */
export function sortOut(
  problems: readonly string[],
  where: string,
  { ignore }: WaySettings,
): { readonly problems: readonly string[]; readonly ignored: readonly string[] } {
  const isIgnored = (problem: string): boolean => ignore.some((one) => matches(lineOf(where, problem), one));
  return { problems: problems.filter((problem) => !isIgnored(problem)), ignored: problems.filter(isIgnored) };
}

function checkIgnore(ignore: unknown): void {
  const expected = "a list of texts and patterns";
  if (!Array.isArray(ignore)) throw badArgument("options.ignore", expected, ignore);
  for (const [index, one] of ignore.entries())
    if (!(one instanceof RegExp) && (typeof one !== "string" || one === ""))
      throw badArgument(`options.ignore[${index}]`, "a text that is not empty, or a pattern", one);
}
