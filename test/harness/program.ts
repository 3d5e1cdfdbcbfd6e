/*
 * The language of random agents. A program is a tree of what an agent does. What it does depends on its name and on the
 * results of its own operations, and on nothing else. `program-maker.ts` makes programs, `program-player.ts` plays them
 * in a run, and `judge.ts` says what a run of one must have emitted.
 */

export interface Program {
  readonly body: Block;
  /**
   * What it does in its later generations: it continues as new after each but the last, with its total. Left out: there are
   * none.
   */
  readonly generations?: readonly Block[];
  /** Whether it ends by throwing. */
  readonly fails: boolean;
}

/** What a program does in each of its generations. */
export function bodiesOf({ body, generations = [] }: Program): readonly Block[] {
  return [body, ...generations];
}

/** Statements, one after the other. */
export type Block = readonly Statement[];

export type Statement =
  | Emission
  /** A step that takes some time, and fails its first attempts. It is repeated until it succeeds. */
  | { readonly does: "step"; readonly name: string; readonly ms: number; readonly failures: number }
  /** A step that fails at each of its attempts. The agent catches the error. */
  | { readonly does: "fail"; readonly name: string; readonly attempts: number }
  /** A step whose body emits one token after the other. */
  | { readonly does: "stream"; readonly name: string; readonly tokens: number; readonly ms: number }
  /** A step that runs at most once. `tells`: the output tells whether it was interrupted. */
  | { readonly does: "once"; readonly name: string; readonly ms: number; readonly tells: boolean }
  | Wait
  /** Waits side by side. The first to end makes the agent abort the others. */
  | { readonly does: "first"; readonly waits: readonly Wait[] }
  /** A question that is asked by `yield`, which no branch can do. */
  | { readonly does: "await" }
  /** A sub-run. Its agent performs the program in its input. `show`: its output is shown. */
  | { readonly does: "run"; readonly agent: string; readonly program: Program; readonly show?: boolean }
  /** Reports the use of tokens. */
  | { readonly does: "report"; readonly tokens: number }
  /** Emits whether the time and the random values are those of the first execution. */
  | { readonly does: "draw" }
  /** Sets and reads the state of the session. */
  | { readonly does: "state" }
  /** Reads the messages of the session. */
  | { readonly does: "history" }
  /** Does something only in runs that have a patch. */
  | { readonly does: "patched"; readonly id: string; readonly body: Block }
  | { readonly does: "repeat"; readonly times: number | "total"; readonly body: Block }
  /** Goes one of several ways, by the value of a step with this name, or by the total. */
  | { readonly does: "branch"; readonly by: string | null; readonly ways: readonly Block[] }
  | { readonly does: "all"; readonly branches: readonly Block[] }
  /** The first branch to end decides how it goes on. `leaves`: the others go on without being waited for. */
  | { readonly does: "race"; readonly branches: readonly Block[]; readonly leaves: boolean }
  | { readonly does: "try"; readonly body: Block; readonly otherwise: Block; readonly last: Block }
  | { readonly does: "throw" };

/** What an agent waits for beside its own work. */
export type Wait =
  /** A question. The client may decline to answer. `details`: the output tells how it was answered. */
  | { readonly does: "ask"; readonly schema: boolean; readonly details?: boolean }
  /** A question that is left to its deadline. */
  | { readonly does: "ask in vain"; readonly ms: number; readonly details?: boolean }
  | { readonly does: "sleep"; readonly ms: number; readonly name: string | null }
  /** Takes a message that the client sends. `schema`: one that does not fit is refused. */
  | { readonly does: "receive"; readonly name: string; readonly schema: boolean }
  /** The same with a deadline. 0: takes only a message that is there. `otherwise`: it has a default. */
  | {
      readonly does: "receive in time";
      readonly name: string;
      readonly schema: boolean;
      readonly ms: number;
      readonly otherwise: boolean;
    };

export interface Emission {
  readonly does: "emit";
  readonly what: "part" | "message" | "object" | "close";
  readonly text: string;
  readonly by: "yield" | "emit";
}

/** A program with the name of its run, which is unique in a trial. */
export interface NamedProgram {
  readonly name: string;
  readonly program: Program;
  /** Whether it is the program of a sub-run that its parent shows. */
  readonly isShown?: boolean;
  /** Whose run it is, if tenants are told apart: all values of the run carry this name. See `tenants.ts`. */
  readonly tenant?: string | undefined;
}

/** The names under which agents receive messages. */
export const MAIL = ["mail", "news"] as const;

/** The agent of the sub-runs that programs start. */
export const CHILD = "child";

/** The input of a run of a program. */
export function inputOf(named: NamedProgram): string {
  return JSON.stringify(named);
}

export function parseInput(input: string): NamedProgram {
  return JSON.parse(input) as NamedProgram;
}

/** Whether a statement of a block is such a statement, at any depth. Sub-runs are not searched. */
export function contains(block: Block, isSuch: (statement: Statement) => boolean): boolean {
  return block.some((one) => isSuch(one) || blocksOf(one).some((inner) => contains(inner, isSuch)));
}

/** The program as text, a statement a line. */
export function print({ body, generations = [], fails }: Program): string {
  const later = generations.flatMap((block) => ["continue as new", ...linesOf(block)]);
  return [...linesOf(body), ...later, ...(fails ? ["fails"] : [])].join("\n");
}

function linesOf(block: Block): string[] {
  return block.flatMap((statement) => [headOf(statement), ...indented(innerLines(statement))]);
}

function headOf(statement: Statement): string {
  const details = Object.entries(statement).filter(([name, value]) => name !== "does" && typeof value !== "object");
  return [statement.does, ...details.map(([name, value]) => `${name}=${value}`)].join(" ");
}

function innerLines(statement: Statement): string[] {
  if (statement.does === "run") return print(statement.program).split("\n");
  const blocks = blocksOf(statement);
  if (blocks.length === 1) return linesOf(blocks[0] ?? []);
  return blocks.flatMap((block) => ["-", ...indented(linesOf(block))]);
}

function indented(lines: readonly string[]): string[] {
  return lines.map((line) => `  ${line}`);
}

function blocksOf(statement: Statement): readonly Block[] {
  switch (statement.does) {
    case "repeat":
    case "patched":
      return [statement.body];
    case "branch":
      return statement.ways;
    case "all":
    case "race":
      return statement.branches;
    case "try":
      return [statement.body, statement.otherwise, statement.last];
    case "first":
      return [statement.waits];
    default:
      return [];
  }
}
