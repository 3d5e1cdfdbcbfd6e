import type { Options, Values } from "./options.ts";
import { describeOptions, flagsOf, readOptions, UsageError } from "./options.ts";
import { Report } from "./report.ts";

/** Something that an npm script starts by a name: a trial of `npm run stress`, a measurement of `npm run bench`. */
export interface Command<O extends Options = Options> {
  /** What it does. The first sentence stands in the list of all. */
  readonly about: string;
  readonly options: O;
  /** Resolves with what was tried, such as "1,000 runs", or with why nothing was. */
  run(values: Values<O>, report: Report<Values<O>>): Promise<string | Skipped>;
}

export interface Skipped {
  readonly skipped: string;
}

/** An npm script that starts commands. */
export interface Script {
  readonly name: string;
  readonly about: string;
  readonly names: readonly string[];
  readonly load: (name: string) => Promise<Command>;
  /** The command that is started where none is named. */
  readonly byDefault?: string;
}

/** Declares a command. */
export function command<const O extends Options>(declared: Command<O>): Command<O> {
  return declared;
}

/** Starts what the arguments name, and gives the exit code: 1 if something is wrong, 2 for a wrong command line. */
export async function start(script: Script, args: readonly string[], print = printLine): Promise<number> {
  const [first, ...others] = args;
  const isNamed = first !== undefined && !first.startsWith("-");
  if (first === "--help" || (first === undefined && script.byDefault === undefined)) {
    for (const line of await listOf(script)) print(line);
    return 0;
  }
  const name = isNamed ? first : script.byDefault;
  const given = isNamed ? others : args;
  if (name === undefined || !script.names.includes(name)) {
    print(`There is no ${name ?? first}: npm run ${script.name} knows ${script.names.join(", ")}.`);
    return 2;
  }
  const loaded = await script.load(name);
  const line = `npm run ${script.name} -- ${name}`;
  if (given.includes("--help")) {
    for (const text of [line, "", loaded.about, "", ...describeOptions(loaded.options)]) print(text);
    return 0;
  }
  try {
    return await run(name, line, loaded, readOptions(loaded.options, given), print);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    print(`${line}: ${error.message}`);
    return 2;
  }
}

async function run(
  name: string,
  line: string,
  { options, run }: Command,
  values: Values<Options>,
  print: (line: string) => void,
): Promise<number> {
  const seed = "seed" in values ? `, seed ${values["seed"]}` : "";
  const report = new Report(print, (again) => `${line} ${flagsOf(options, { ...values, ...again })}`.trimEnd());
  print(`${name}${seed}`);
  let tried: string | Skipped;
  try {
    tried = await run(values, report);
  } catch (error) {
    tried = "what was tried before an error";
    report.wrong(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
  if (typeof tried === "string") print(`${name}: ${report.wrongs} wrong in ${tried}${seed}, ${report.seconds} s`);
  else print(`${name}: skipped, since ${tried.skipped}`);
  return report.wrongs === 0 ? 0 : 1;
}

/** The names with a sentence each. */
async function listOf({ name, about, names, load, byDefault }: Script): Promise<readonly string[]> {
  const width = Math.max(...names.map(({ length }) => length));
  const lines = await Promise.all(
    names.map(async (one) => `  ${one.padEnd(width)}  ${firstSentence((await load(one)).about)}`),
  );
  const usual = byDefault === undefined ? "" : `, by default ${byDefault}`;
  return [
    `npm run ${name} -- <name>${usual}: ${about}`,
    "",
    ...lines,
    "",
    `npm run ${name} -- <name> --help prints its options.`,
  ];
}

function firstSentence(text: string): string {
  return /^.*?[.](?=\s|$)/s.exec(text)?.[0] ?? text;
}

function printLine(line: string): void {
  process.stdout.write(`${line}\n`);
}
