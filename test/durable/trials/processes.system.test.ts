import { expect, it } from "vitest";
import { manyProcesses } from "../../harness/crash/processes.ts";
import { share } from "../../harness/share.ts";

const RUNS = share(150, 60);
const seed = process.env["CRASH_SEED"] ?? `${Date.now()}`;

it(`processes on one file that are killed in turn lose no run, and no two of them execute a run at once (CRASH_SEED=${seed})`, {
  timeout: 120_000,
}, async () => {
  const { runs, kills, wrong, said } = await manyProcesses({
    seed,
    processes: 3,
    runs: RUNS,
    killEveryMs: 1_000,
    // A disk that holds up a renewal for two seconds loses no lease.
    leaseMs: 10_000,
    atMostMs: 60_000,
  });
  expect(wrong).toEqual([]);
  expect(said).toEqual([]);
  expect(runs).toBe(RUNS);
  expect(kills).toBeGreaterThan(0);
});
