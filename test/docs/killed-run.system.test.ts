import { readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { expect, it } from "vitest";
import type { Said } from "./killed-run.ts";
import { killRun, pictureOf } from "./killed-run.ts";
import { ROOT } from "./pages.ts";

/** Long enough for the two processes on a busy machine. */
const LIMIT_MS = 60_000;

/** A picture without its positions, which differ from run to run. */
function shapeOf(picture: string): string {
  return picture.replace(/\b(x|x1|x2|width)="\d+"/g, '$1=""');
}

// Node has SQLite from 22.13 on.
it.skipIf(!isBuiltin("node:sqlite"))(
  "the picture of the README shows what a run does whose process is killed",
  async () => {
    const run = await killRun();
    const steps = (said: readonly Said[]): readonly string[] =>
      said.filter(({ what }) => what !== "runs").map(({ what, name }) => `${what} ${name}`);
    expect(steps(run.first)).toEqual(["begins find a train", "ends find a train", "begins hold a seat"]);
    expect(steps(run.second)).toEqual([
      "begins hold a seat",
      "ends hold a seat",
      "asks Book it?",
      "answered yes",
      "begins pay",
      "ends pay",
      "ends the run",
    ]);
    expect(shapeOf(readFileSync(`${ROOT}docs/killed-run.svg`, "utf8"))).toBe(shapeOf(pictureOf(run)));
  },
  LIMIT_MS,
);
