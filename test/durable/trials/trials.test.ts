import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import type { Program } from "../../harness/program.ts";
import { anySeed, wholeSeed } from "../../harness/random.ts";
import { share } from "../../harness/share.ts";
import { again as againForked, forkAll } from "../../harness/world/forks.ts";
import type { Trouble } from "../../harness/world/trials.ts";
import { again, trial, tryAll } from "../../harness/world/trials.ts";

/** A share of what `npm run stress -- durable` tries. */
const PROGRAMS = share(60, 24);
/** How often a kept program is tried, each time with its trouble at other moments. */
const TIMES = share(3, 1);
const seed = wholeSeed(process.env["DURABLE_SEED"] ?? anySeed());

it(`random programs survive crashes, take-overs, freezes, and stopped and set clocks of their processes (DURABLE_SEED=${seed})`, async () => {
  const { programs, troubles, wrong } = await tryAll(seed, PROGRAMS);
  expect(wrong.map((one) => `${again(one)}\n${one.wrong.join("\n")}`)).toEqual([]);
  expect(programs).toBe(PROGRAMS);
  expect(troubles).toBeGreaterThan(PROGRAMS / 2);
});

/** Programs that have once found a fault, and the trouble in which they did. */
const kept = readFileSync(new URL("./kept-programs.jsonl", import.meta.url), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as { readonly seed: number; readonly trouble: Trouble; readonly program: Program });

it.each(kept)("the program of seed $seed survives $trouble", async ({ seed, trouble, program }) => {
  for (let time = 0; time < TIMES; time++) expect((await trial(seed + time, trouble, { program })).wrong).toEqual([]);
});

/** A share of what `npm run stress -- durable --part forks` tries. */
const FORKS = share(150, 60);

it(`random forks of random programs end as they must (DURABLE_SEED=${seed})`, async () => {
  const { trials, troubles, wrong } = await forkAll(seed, FORKS);
  expect(wrong.map((one) => `${againForked(one)}\n${one.wrong.join("\n")}`)).toEqual([]);
  expect(trials).toBeGreaterThanOrEqual(FORKS);
  expect(troubles).toBeGreaterThan(FORKS / 10);
});
