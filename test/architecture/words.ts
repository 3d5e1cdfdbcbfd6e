/**
 * Finds indefinite persons in the tracked files: `npm run check -- words`. A text names the thing that acts: the process,
 * the store, the caller, the reader. In the two rooms it also finds turns of phrase that leave it to the reader who is
 * meant.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const PERSONS = ["somebody", "nobody", "anybody", "whoever", "someone", "anyone", "everybody", "everyone"];
const RIDDLES = ["those of", "that of", "is told", "are told", "goes on", "there is none", "beside", "now and then"];

/** The paths that git is asked for. */
const PLACES = ["src", "docs", "test", "examples", "scripts", "skills", "templates", "README.md", "llms.txt"];

/** Data, figures, and the two files that have to name the words. */
const LEFT_OUT = [/\.json$/, /\.svg$/, /^test\/architecture\/words(?:\.test)?\.ts$/];

/** Whose prose has no riddles. */
const ROOMS = /^src\/(?:runtime|durable)\//;

const person = wordsOf(PERSONS);
const riddle = wordsOf(RIDDLES);

/** A line of a comment may end between two words. */
function wordsOf(words: readonly string[]): RegExp {
  const gap = String.raw`\s+(?:(?:\/\/|\*)\s*)?`;
  return new RegExp(String.raw`(?<![\p{L}\p{N}])(?:${words.join("|").replaceAll(" ", gap)})(?![\p{L}\p{N}])`, "giu");
}

interface Found {
  readonly line: number;
  readonly word: string;
}

/**
 * The indefinite persons in a text, in any case, each with its line (from 1). A word ends at anything but a letter or a
 * digit: "nobody's" and `nobody_asks` hold one, `nobodyAsks` and "nobodys" do not.
 */
export function findPersons(text: string): Found[] {
  return found(text, person);
}

/** The riddles in a text, also where a line ends between their words. */
export function findRiddles(text: string): Found[] {
  return found(text, riddle);
}

function found(text: string, pattern: RegExp): Found[] {
  return Array.from(text.matchAll(pattern), ({ 0: word, index }) => ({
    line: text.slice(0, index).split("\n").length,
    word,
  }));
}

function main(): void {
  const cwd = fileURLToPath(new URL("../../", import.meta.url));
  const tracked = execFileSync("git", ["ls-files", "-z", "--", ...PLACES], { cwd, encoding: "utf8" }).split("\0");
  const files = tracked.filter((file) => file !== "" && !LEFT_OUT.some((pattern) => pattern.test(file)));
  for (const file of files) {
    const text = readFileSync(`${cwd}${file}`, "utf8");
    const riddles = ROOMS.test(file) ? findRiddles(text) : [];
    for (const { line, word } of [...findPersons(text), ...riddles]) {
      console.log(`${file}:${line}: ${JSON.stringify(word)}: name the thing that acts`);
      process.exitCode = 1;
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
