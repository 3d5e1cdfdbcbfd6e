/**
 * Finds indefinite persons in the tracked files: `npm run check:words`. A text names the thing that acts: the process,
 * the store, the caller, the reader. In the two rooms it also counts the turns of phrase that hide who does what: their
 * number may only fall.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FORBIDDEN = ["somebody", "nobody", "anybody", "whoever", "someone", "anyone", "everybody", "everyone"];

/** The paths that git is asked for. */
const PLACES = ["src", "docs", "test", "examples", "scripts", "README.md"];

/** Who is meant is left to the reader: a noun and a verb say it. */
const RIDDLES = ["those of", "that of", "is told", "are told", "goes on", "there is none", "beside", "now and then"];

/** In how many places the two rooms have one of these. Who writes one of them anew writes it down. */
const MOST_RIDDLES = 0;

/** Data, figures, and the two files that have to name the words. */
const LEFT_OUT = [/\.json$/, /\.svg$/, /^scripts\/check-words\.ts$/, /^test\/words\.test\.ts$/];

const WORD = wordsOf(FORBIDDEN);
const RIDDLE = wordsOf(RIDDLES);

function wordsOf(words: readonly string[]): RegExp {
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|").replaceAll(" ", "\\s+(?:(?:\\/\\/|\\*)\\s*)?")})(?![\\p{L}\\p{N}])`, "giu");
}

/**
 * The forbidden words in a text, in any case, each with its line (from 1). A word ends at anything but a letter or a
 * digit: "nobody's" and `nobody_asks` hold one, `nobodyAsks` and "nobodys" do not.
 */
export function findForbiddenWords(text: string): { readonly line: number; readonly word: string }[] {
  return text
    .split("\n")
    .flatMap((line, index) => Array.from(line.matchAll(WORD), ([word]) => ({ line: index + 1, word })));
}

/** How many turns of phrase in a text hide who does what, also where a line of a comment ends between their words. */
export function countRiddles(text: string): number {
  return Array.from(text.matchAll(RIDDLE)).length;
}

function main(): void {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const tracked = execFileSync("git", ["ls-files", "-z", "--", ...PLACES], { cwd, encoding: "utf8" }).split("\0");
  const files = tracked.filter((file) => file !== "" && !LEFT_OUT.some((pattern) => pattern.test(file)));
  const rooms = files.filter((file) => /^src\/(?:runtime|durable)\//.test(file));
  const riddles = rooms.reduce((sum, file) => sum + countRiddles(readFileSync(`${cwd}${file}`, "utf8")), 0);
  if (riddles !== MOST_RIDDLES) {
    console.log(`${riddles} riddles in the two rooms, known are ${MOST_RIDDLES}: write nouns, and the new number.`);
    process.exitCode = 1;
  }
  for (const file of files) {
    for (const { line, word } of findForbiddenWords(readFileSync(`${cwd}${file}`, "utf8"))) {
      console.log(`${file}:${line}: "${word}": name the thing that acts`);
      process.exitCode = 1;
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
