import { expect, it } from "vitest";
import { underFaults } from "../../harness/faults/faults.ts";
import { describe as inWords } from "../../harness/faults/report.ts";
import { share } from "../../harness/share.ts";
import { drivers } from "../../harness/sqlite-files.ts";

/** `npm run stress -- faults` tries many more. */
const RUNS = share(120, 50);
/** How many findings are printed. */
const SHOWN = 10;
const seed = process.env["FAULTS_SEED"] ?? `${Date.now()}`;

it(`processes that are killed, frozen and closed, with slow disks and lost answers, keep what they have acknowledged (FAULTS_SEED=${seed})`, {
  timeout: 300_000,
}, async () => {
  const { figures, anomalies } = await underFaults({
    seed,
    runs: RUNS,
    faults: share(10, 4),
    processes: 3,
    driver: drivers.at(-1)?.name ?? "",
    synchronous: "mixed",
    everyMs: 900,
    leaseMs: 1_000,
    atOnce: 40,
    atMostMs: 150_000,
  });
  expect(anomalies.slice(0, SHOWN).map((anomaly) => inWords(anomaly, seed))).toEqual([]);
  expect(figures.runs).toBeGreaterThanOrEqual(RUNS);
});
