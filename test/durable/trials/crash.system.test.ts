import { expect, it } from "vitest";
import { crash } from "../../harness/crash/crash.ts";

const seed = process.env["CRASH_SEED"] ?? `${Date.now()}`;

it(`a process that is killed at random moments loses nothing, repeats no finished step and gives the same output (CRASH_SEED=${seed})`, {
  timeout: 120_000,
}, async () => {
  const { kills, runs, wrong, said } = await crash({ seed, kills: 8, runs: 100 });
  expect(wrong).toEqual([]);
  expect(said).toEqual([]);
  expect(kills).toBeGreaterThanOrEqual(8);
  expect(runs).toBeGreaterThanOrEqual(100);
});
