import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { TestProjectInlineConfiguration } from "vitest/config";
import { demos } from "../../examples/start.ts";
import packageJson from "../../package.json" with { type: "json" };
import { check } from "../../scripts/check.ts";
import { generate } from "../../scripts/generate.ts";
import application from "../../templates/app/package.json" with { type: "json" };
import config from "../../vitest.config.ts";
import { bench } from "../bench/bench.ts";
import { ROOT } from "../docs/pages.ts";
import type { Script } from "../harness/commands/commands.ts";
import { start } from "../harness/commands/commands.ts";
import { readOptions } from "../harness/commands/options.ts";
import { stress } from "../harness/commands/stress.ts";

const MOST_SCRIPTS = 16;
const MOST_FILES = 10;

/** Where commands are named. */
const PLACES = [
  ...["README.md", "CONTRIBUTING.md", "CHANGELOG.md", ".ci", ".github", "docs", "examples", "scripts", "skills", "src"],
  ...["templates", "test", "tsup.config.ts", "vitest.config.ts"],
];
const scripts: readonly Script[] = [stress, bench, check, generate];

it(`package.json has at most ${MOST_SCRIPTS} scripts`, () => {
  expect(Object.keys(packageJson.scripts).length).toBeLessThanOrEqual(MOST_SCRIPTS);
});

it(`scripts/ has at most ${MOST_FILES} files`, () => {
  expect(readdirSync(`${ROOT}scripts`).length).toBeLessThanOrEqual(MOST_FILES);
});

describe.each(scripts.map((script) => [script.name, script] as const))("npm run %s", (_name, script) => {
  it("lists each of its commands with a sentence", async () => {
    const lines = await said(script, "--help");
    for (const name of script.names) expect(lines).toContainEqual(expect.stringMatching(`^  ${name} +[A-Z].*\\.$`));
  });

  it.each(script.names)("prints the options of %s", async (name) => {
    const { about, options } = await script.load(name);
    const lines = await said(script, name, "--help");
    expect(lines).toContain(about);
    for (const [key, option] of Object.entries(options)) {
      expect(key).toMatch(/^[a-z][A-Za-z]*$/);
      expect(lines).toContain(`      ${option.about}`);
    }
  });

  it("names what it knows for a wrong name and a wrong option", async () => {
    expect((await said(script, "none")).join()).toContain(script.names.join(", "));
    expect((await said(script, script.names[0] ?? "", "--none")).join()).toContain("--help");
  });
});

// Two projects that are left out (`!one`, `!other`) leave out none: each of the two lets the other in.
it("npm run test:quick is the first stage", () => {
  const projects = config.test?.projects as readonly TestProjectInlineConfiguration[];
  const first = projects.filter(({ test }) => test?.sequence?.groupOrder === undefined).map(({ test }) => test?.name);

  expect(first).toEqual(["alone", "once", "replayed"]);
  expect(packageJson.scripts["test:quick"]).toBe(`vitest run ${first.map((name) => `--project ${name}`).join(" ")}`);
});

it("each file of test/stress is a trial", () => {
  expect(readdirSync(`${ROOT}test/stress`).sort()).toEqual(stress.names.map((name) => `${name}.ts`));
});

it("each command that a page or a comment names exists, with its options", async () => {
  const found = PLACES.flatMap(textsIn).flatMap(([path, text]) =>
    commandsIn(text).map((line) => [path, line] as const),
  );
  expect(found.length).toBeGreaterThan(80);
  const wrong: string[] = [];
  for (const [path, line] of found) {
    const what = await wrongWith(line);
    if (what !== undefined) wrong.push(`${path}: ${line}: ${what}`);
  }
  expect(wrong).toEqual([]);
});

it.each([
  ["test:crash", "no script test:crash"],
  ["stress -- tests", "no tests"],
  ["stress -- crash --kill 5", "no option --kill"],
  ["stress -- durable --part crash", "has to be one of"],
  ["bench -- --rounds two", "has to be a number"],
])("npm run %s would be found", async (line, what) => {
  expect(await wrongWith(line)).toContain(what);
});

it.each(["stress -- crash --kills 5", "bench", "bench -- --json", "check -- types", "demo -- --yes", "demo -- chat"])(
  "npm run %s is right",
  async (line) => {
    expect(await wrongWith(line)).toBeUndefined();
  },
);

/** What is wrong with the words after `npm run`. */
async function wrongWith(line: string): Promise<string | undefined> {
  const [name = "", ...others] = line.split(" ");
  // The application that `npx cadenza init` makes has scripts of its own, without options.
  if (name in application.scripts && others.length === 0) return undefined;
  if (!(name in packageJson.scripts)) return `there is no script ${name}`;
  const script = scripts.find((one) => one.name === name);
  const [, first, ...rest] = others;
  if (name === "demo")
    return [undefined, "--yes", "--help", ...Object.keys(demos)].includes(first) ? undefined : `there is no ${first}`;
  if (script === undefined || first === undefined) return undefined;
  const isNamed = !first.startsWith("-");
  const command = isNamed ? first : (script.byDefault ?? "");
  if (!script.names.includes(command)) return `there is no ${command}`;
  const given = isNamed ? rest : [first, ...rest];
  // What is told to a reader in general, and what is filled in.
  if (given.some((one) => one === "--help" || /^[<$"[]/.test(one)) || given.at(-1) === "--json") return undefined;
  try {
    readOptions((await script.load(command)).options, given);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** The words after each `npm run` of a text, up to the end of the code or of the line. */
function commandsIn(text: string): readonly string[] {
  const joined = text.replaceAll(/\n \* /g, " ");
  return [...joined.matchAll(/npm run ((?:[a-z]+:)?[a-z]+(?: --(?: [^\s`"#,;:)\\&|]+)*)?)/g)]
    .map(([, line = ""]) => line)
    .filter((line) => !line.includes("<name>"));
}

function textsIn(place: string): readonly (readonly [path: string, text: string])[] {
  const path = join(ROOT, place);
  if (statSync(path).isFile()) return [[place, readFileSync(path, "utf8")]];
  return readdirSync(path, { withFileTypes: true })
    .filter(
      ({ name }) => name !== "node_modules" && name !== "scripts.test.ts" && !/\.(?:png|svg|webp|jsonl)$/.test(name),
    )
    .flatMap(({ name }) => textsIn(`${place}/${name}`));
}

async function said(script: Script, ...args: readonly string[]): Promise<readonly string[]> {
  const lines: string[] = [];
  await start(script, args, (line) => lines.push(line));
  return lines;
}
