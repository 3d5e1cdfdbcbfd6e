import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** A page for readers, by its path from the root. */
export interface Page {
  readonly path: string;
  readonly text: string;
}

/** The README, all of `docs/`, and the skill. */
export function readPages(): readonly Page[] {
  return ["README.md", "examples/README.md", "skills/cadenza/SKILL.md", ...pathsOfDocs()]
    .filter((path) => existsSync(ROOT + path))
    .map(readPage);
}

/** The pages of `docs/` and its folders, by their paths from the root. */
export function pathsOfDocs(): readonly string[] {
  return readdirSync(`${ROOT}docs`, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => join("docs", file).split(sep).join("/"))
    .sort();
}

export function readPage(path: string): Page {
  return { path, text: readFileSync(ROOT + path, "utf8") };
}

/** The files of `src/`. */
export function readSources(): readonly Page[] {
  return readdirSync(`${ROOT}src`, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .sort()
    .map((file) => readPage(join("src", file).split(sep).join("/")));
}

/** The `@example`s in the comments of a source file, each as a page. Its code has the lines that it has in the file. */
export function examplesOf({ path, text }: Page): readonly Page[] {
  return [...text.matchAll(/^ *\* @example\n([\s\S]*?)^ *\*\//gm)].map(({ 1: example = "", index }) => ({
    path,
    text: "\n".repeat(text.slice(0, index).split("\n").length) + example.replace(/^ *\* ?/gm, ""),
  }));
}

/** A fenced block of code. */
export interface Block {
  readonly language: string;
  /** The text after the language. */
  readonly note: string;
  readonly code: string;
  /** The line of its first line of code, from 1 on. */
  readonly line: number;
}

/** The fenced blocks of a page. */
export function blocksOf({ text }: Page): readonly Block[] {
  return [...text.matchAll(/^```(\w*)[ \t]*(.*)\n([\s\S]*?)^```$/gm)].map(
    ([, language = "", note = "", code = ""], index, all) => {
      const start = all[index]?.index ?? 0;
      return { language, note: note.trim(), code, line: text.slice(0, start).split("\n").length + 1 };
    },
  );
}

/** The rows of all tables of a page whose first cell is code: that code, and the other cells. */
export function rowsOf({ text }: Page): readonly (readonly [names: readonly string[], ...cells: string[]])[] {
  return [...text.matchAll(/^\| (`.*) \|$/gm)].map(([, row = ""]) => {
    const [first = "", ...cells] = row.split(" | ");
    return [[...first.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name), ...cells];
  });
}
