import type { Run } from "../protocol/run.ts";
import { badArgument, checkFunction, checkObject } from "../runtime/check.ts";
import { messageOf } from "../runtime/failure.ts";
import type { DriveOptions, DriveSettings } from "./drive-options.ts";
import { readDriveOptions } from "./drive-options.ts";
import type { Answers } from "./rehearsal.ts";
import { lineOf } from "./report.ts";
import { matches } from "./text-match.ts";

/** How an agent is run in many ways. `patienceMs` is 250 here, unless it is given. */
export interface WayOptions extends DriveOptions {
  /** The answers to the agent's questions, in the order in which they come, or a function of the question. Default: none. */
  readonly answers?: Answers | undefined;
  /** Called before the agent is run, each time: the place to open what it uses. */
  readonly before?: (() => unknown) | undefined;
  /**
   * Called after the agent was run, each time, with the run as a client sees it then: the place to look whether it has closed what it opened.
   * What it throws, or a text that it gives, is a problem.
   */
  readonly after?: ((run: Run) => unknown) | undefined;
  /**
   * Problems that are none: a text that is in the problem's line, or a pattern for it. The lines are those of `report.problems`; what is ignored
   * is in `ignored` of its result, and counted in the text of the report.
   */
  readonly ignore?: readonly (string | RegExp)[] | undefined;
}

/** The options with their defaults. */
export interface WaySettings {
  readonly drive: DriveSettings;
  readonly answers: Answers;
  readonly before: (() => unknown) | undefined;
  readonly after: ((run: Run) => unknown) | undefined;
  readonly ignore: readonly (string | RegExp)[];
}

const PATIENCE_MS = 250;

/** Reads the options. Throws `invalid_argument` for one that cannot be. */
export function readWayOptions(options: WayOptions): WaySettings {
  checkObject("options", options);
  const { answers = [], before, after, ignore = [], ...drive } = options;
  if (typeof answers !== "function" && !Array.isArray(answers))
    throw badArgument("options.answers", "a list, or a function of the question", answers);
  if (before !== undefined) checkFunction("options.before", before);
  if (after !== undefined) checkFunction("options.after", after);
  checkIgnore(ignore);
  return { drive: readDriveOptions({ patienceMs: PATIENCE_MS, ...drive }), answers, before, after, ignore };
}

/** What the user's own check finds wrong. `run` is undefined for one that was never created. */
export async function problemsAfter({ after }: WaySettings, run: Run | undefined): Promise<readonly string[]> {
  if (after === undefined || run === undefined) return [];
  try {
    const said = await after(run);
    return typeof said === "string" && said !== "" ? [said] : [];
  } catch (error) {
    return [messageOf(error)];
  }
}

/** Takes the problems that are to be ignored out of the others. */
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
