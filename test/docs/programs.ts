import { faultOf, runProgram } from "../harness/processes.ts";
import { javascriptOf, write } from "../harness/project.ts";
import { examplesOf, readPages, readSources } from "./pages.ts";
import type { Snippet } from "./snippets.ts";
import { snippetsOf } from "./snippets.ts";

/** Answers in the place of the AI gateway, so that pages may show a real model. */
const GATEWAY = new URL("./gateway.mjs", import.meta.url).href;

/** A program of the documentation, or an example in a comment of the source, as its reader would save it. */
export interface Program {
  /** The page and the line of the first block. */
  readonly name: string;
  readonly code: string;
  /** The program's output by its comments: the whole output, or empty. */
  readonly promised: string;
  /** Whether it is a test, for vitest. */
  readonly isTest: boolean;
}

/** The programs of all pages and examples that can be run under a version of Node. */
export function programsFor(nodeVersion: string): readonly Program[] {
  return [...readPages(), ...readSources().flatMap(examplesOf)]
    .flatMap(snippetsOf)
    .flatMap((snippet) => programOf(snippet, nodeVersion) ?? []);
}

/** Saves a program in a file of the project and runs it. Answers with what went wrong, or undefined. */
export async function tryPage(
  { name, code, promised, isTest }: Program,
  project: { readonly cwd: string; readonly node?: string },
): Promise<string | undefined> {
  const file = `pages/${name.replace(/\W/g, "-")}${isTest ? ".test" : ""}.js`;
  write(project.cwd, file, javascriptOf(code));
  const program = isTest ? ["node_modules/vitest/vitest.mjs", "run", file] : ["--import", GATEWAY, file];
  const env = { ...process.env, AI_GATEWAY_API_KEY: "a-key-of-the-tests" };
  const ended = await runProgram(program, { ...project, env });
  const said = onOneLine(ended.stdout);
  return (
    faultOf(ended) ??
    (promised === "" || said === promised ? undefined : `${promised}\nis the expected output:\n${said}`)
  );
}

/** The program of a snippet; undefined if there is nothing to run. */
function programOf({ name, blocks }: Snippet, nodeVersion: string): Program | undefined {
  const run = blocks.filter(({ note }) => isRun(note, nodeVersion));
  if (run.length === 0) return undefined;
  const code = run.map((block) => block.code).join("\n");
  const promised = [...code.matchAll(/\/\/ → (.*?)(?=\s*(?:\/\/ →|$))/gm)].map(([, text = ""]) => text);
  return { name, code, promised: onOneLine(promised.join(" ")), isTest: /from "vitest"/.test(code) };
}

function isRun(note: string, nodeVersion: string): boolean {
  const [, needed] = /^node (\d+\.\d+)/.exec(note) ?? [];
  if (needed !== undefined) return compareVersions(nodeVersion.replace("v", ""), needed) >= 0;
  return !note.startsWith("no-run");
}

function compareVersions(one: string, other: string): number {
  const [a, b] = [one, other].map((version) => version.split(".").map(Number));
  return (a?.[0] ?? 0) - (b?.[0] ?? 0) || (a?.[1] ?? 0) - (b?.[1] ?? 0);
}

/** Joins lines, since the lines of a page may be broken anywhere. */
function onOneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
