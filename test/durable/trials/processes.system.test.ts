import { expect, it } from "vitest";
import { manyProcesses } from "../../harness/crash/processes.ts";

const seed = process.env["CRASH_SEED"] ?? `${Date.now()}`;

it(`processes on one file that are killed in turn lose no run, and no two of them execute a run at once (CRASH_SEED=${seed})`, {
  timeout: 120_000,
}, async () => {
  const { runs, kills, wrong, said } = await manyProcesses({
    seed,
    processes: 3,
    runs: 150,
    killEveryMs: 1_000,
    atMostMs: 60_000,
  });
  expect(wrong).toEqual([]);
  expect(said).toEqual([]);
  expect(runs).toBe(150);
  expect(kills).toBeGreaterThan(0);
});
