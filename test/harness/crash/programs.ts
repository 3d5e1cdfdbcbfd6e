import { Random } from "../random.ts";

/**
 * A random agent program, as a tree. What it does depends on its input and on the results of its own operations, and on
 * nothing else.
 */
export interface Program {
  readonly body: readonly Statement[];
  /** Whether it ends by throwing. */
  readonly fails: boolean;
}

export type Statement =
  | { readonly is: "say"; readonly text: string }
  | { readonly is: "message"; readonly text: string }
  | { readonly is: "generic" }
  | { readonly is: "close" }
  /** A step that takes some time, and may fail its first attempts. */
  | { readonly is: "step"; readonly name: string; readonly ms: number; readonly failures: number }
  /** A step that always fails; the agent catches that. */
  | { readonly is: "failing"; readonly name: string }
  /** A step whose body emits one token after the other. */
  | { readonly is: "stream"; readonly name: string; readonly tokens: number; readonly ms: number }
  /** A step that runs at most once; the output does not tell whether it was interrupted. */
  | { readonly is: "once"; readonly name: string; readonly ms: number }
  | { readonly is: "ask"; readonly schema: boolean }
  /** A question that is not answered in time. */
  | { readonly is: "unanswered"; readonly ms: number }
  /** A question that is asked by `yield`: at the top of a program only. */
  | { readonly is: "await" }
  /** Emits whether the time and the random values are the same as at their first use. */
  | { readonly is: "chance" }
  | { readonly is: "loop"; readonly times: number | "result"; readonly body: readonly Statement[] }
  /** Takes a branch that depends on the results so far. */
  | { readonly is: "branch"; readonly ways: readonly (readonly Statement[])[] }
  | { readonly is: "all"; readonly branches: readonly (readonly Statement[])[] }
  /** The first branch to end decides how it goes on; the others go on without being awaited. */
  | { readonly is: "race"; readonly branches: readonly (readonly Statement[])[] }
  | { readonly is: "child" };

interface Place {
  readonly depth: number;
  /** Whether statements run side by side. What they emit must not depend on how long their bodies take. */
  readonly parallel: boolean;
  readonly top: boolean;
  /**
   * Whether there are races. The losers of a race go on at their own pace, so that such programs emit nothing in steps
   * and await no deadline: the order of their entries would depend on time.
   */
  readonly races: boolean;
  /** The programs of sub-runs do one thing after the other, and start none themselves. */
  readonly child: boolean;
}

const NAMES = ["fetch", "plan", "call", "look up"] as const;
const MAX_DEPTH = 3;

/** The program that belongs to an input: always the same. */
export function programOf(input: string): Program {
  const random = new Random(input);
  const child = input.includes(".");
  const races = !child && random.chance(0.5);
  const body = statements(random, { depth: 0, parallel: false, top: true, races, child }, child ? 3 : 5);
  return { body, fails: random.chance(0.06) };
}

function statements(random: Random, place: Place, most: number): Statement[] {
  return Array.from({ length: 1 + random.below(most) }, () => statement(random, place));
}

function statement(random: Random, place: Place): Statement {
  const { parallel, top, races, child } = place;
  const nests = place.depth < MAX_DEPTH;
  const sideBySide = nests && !child;
  const inner = () => ({ body: statements(random, { ...place, depth: place.depth + 1, top: false }, 3) });
  const blocks = (count: number, sideways: boolean, filled: boolean): Statement[][] =>
    Array.from({ length: count }, () =>
      !filled && random.chance(0.3)
        ? []
        : statements(random, { ...place, depth: place.depth + 1, parallel: sideways, top: false }, 3),
    );
  const make = random.weighted<() => Statement>([
    [8, () => ({ is: "step", name: random.pick(NAMES), ms: random.below(8), failures: random.chance(0.1) ? 1 : 0 })],
    [3, () => ({ is: "say", text: `${random.pick(NAMES)} ` })],
    [1, () => ({ is: "failing", name: random.pick(NAMES) })],
    [1, () => ({ is: "once", name: "pay", ms: random.below(5) })],
    [1.5, () => ({ is: "ask", schema: random.chance(0.5) })],
    [1, () => ({ is: "chance" })],
    [parallel ? 0 : 1, () => ({ is: "message", text: random.pick(NAMES) })],
    [parallel ? 0 : 1, () => ({ is: "generic" })],
    [parallel ? 0 : 1, () => ({ is: "close" })],
    [
      parallel || races ? 0 : 3,
      () => ({ is: "stream", name: "model", tokens: 1 + random.below(6), ms: random.below(6) }),
    ],
    [parallel || races ? 0 : 0.7, () => ({ is: "unanswered", ms: 5 + random.below(20) })],
    [top ? 1 : 0, () => ({ is: "await" })],
    [parallel || child ? 0 : 0.7, () => ({ is: "child" })],
    [nests ? 1.5 : 0, () => ({ is: "loop", times: random.chance(0.5) ? "result" : random.below(4), ...inner() })],
    [nests ? 2 : 0, () => ({ is: "branch", ways: blocks(2 + random.below(2), parallel, false) })],
    [sideBySide ? 2 : 0, () => ({ is: "all", branches: blocks(2 + random.below(3), true, true) })],
    [sideBySide && races ? 2 : 0, () => ({ is: "race", branches: blocks(2 + random.below(2), true, true) })],
  ]);
  return make();
}

/**
 * Whether the position of a question, and with it the end of the message that it completes, depends on time: it is
 * asked beside other branches, or beside one that has lost a race and goes on; or a sub-run asks it, with a deadline
 * that may pass before its parent has heard of it.
 */
export function questionsFallAnywhere({ body }: Program, subRuns: readonly Program[]): boolean {
  return (
    contains(body, ({ is }) => is === "race") ||
    asksBesideOthers(body) ||
    subRuns.some((subRun) => contains(subRun.body, ({ is }) => is === "unanswered"))
  );
}

function asksBesideOthers(body: readonly Statement[]): boolean {
  return contains(body, (one) => one.is === "all" && contains(one.branches.flat(), ({ is }) => is === "ask"));
}

function contains(body: readonly Statement[], fits: (statement: Statement) => boolean): boolean {
  return body.some((one) => fits(one) || contains(insideOf(one), fits));
}

function insideOf(statement: Statement): readonly Statement[] {
  switch (statement.is) {
    case "loop":
      return statement.body;
    case "branch":
      return statement.ways.flat();
    case "all":
    case "race":
      return statement.branches.flat();
    default:
      return [];
  }
}
