/**
 * Finds indefinite persons in the tracked files: `npm run check:words`. A text names the thing that acts: the process,
 * the store, the caller, the reader.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FORBIDDEN = ["somebody", "nobody", "anybody", "whoever", "someone", "anyone", "everybody", "everyone"];

/** The paths that git is asked for. */
const PLACES = ["src", "docs", "test", "examples", "scripts", "README.md"];

/** Data, figures, and the two files that have to name the words. */
const LEFT_OUT = [/\.json$/, /\.svg$/, /^scripts\/check-words\.ts$/, /^test\/words\.test\.ts$/];

const WORD = new RegExp(`(?<![\\p{L}\\p{N}])(?:${FORBIDDEN.join("|")})(?![\\p{L}\\p{N}])`, "giu");

/**
 * The forbidden words in a text, in any case, each with its line (from 1). A word ends at anything but a letter or a
 * digit: "nobody's" and `nobody_asks` hold one, `nobodyAsks` and "nobodys" do not.
 */
export function findForbiddenWords(text: string): { readonly line: number; readonly word: string }[] {
  return text
    .split("\n")
    .flatMap((line, index) => Array.from(line.matchAll(WORD), ([word]) => ({ line: index + 1, word })));
}

function main(): void {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const tracked = execFileSync("git", ["ls-files", "-z", "--", ...PLACES], { cwd, encoding: "utf8" }).split("\0");
  const files = tracked.filter((file) => file !== "" && !LEFT_OUT.some((pattern) => pattern.test(file)));
  for (const file of files) {
    for (const { line, word } of findForbiddenWords(readFileSync(`${cwd}${file}`, "utf8"))) {
      console.log(`${file}:${line}: "${word}": name the thing that acts`);
      process.exitCode = 1;
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
