import { expect, it } from "vitest";
import { crash } from "../../harness/crash/crash.ts";
import { share } from "../../harness/share.ts";

const KILLS = share(8, 4);
const RUNS = share(100, 50);
const seed = process.env["CRASH_SEED"] ?? `${Date.now()}`;

it(`a process that is killed at random moments loses nothing, repeats no finished step and gives the same output (CRASH_SEED=${seed})`, {
  timeout: 400_000,
}, async () => {
  const { kills, runs, wrong, said } = await crash({ seed, kills: KILLS, runs: RUNS });
  expect(wrong).toEqual([]);
  expect(said).toEqual([]);
  expect(kills).toBeGreaterThanOrEqual(KILLS);
  expect(runs).toBeGreaterThanOrEqual(RUNS);
});
