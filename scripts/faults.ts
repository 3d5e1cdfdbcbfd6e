/**
 * Runs processes on one file and a client of them, and injects faults: kills, freezes, restarts, failing stores.
 * `npm run test:faults -- --runs 5000 --faults 500 --processes 4 --seed mine --driver libsql --synchronous mixed --keep`
 */
import { parseArgs } from "node:util";
import { underFaults } from "../test/harness/faults/faults.ts";
import { describe, kindsOf } from "../test/harness/faults/report.ts";
import { drivers } from "../test/harness/sqlite-files.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "5000" },
    faults: { type: "string", default: "500" },
    processes: { type: "string", default: "4" },
    seed: { type: "string", default: `${Date.now()}` },
    driver: { type: "string", default: drivers.at(-1)?.name ?? "libsql" },
    synchronous: { type: "string", default: "mixed" },
    "every-ms": { type: "string", default: "1200" },
    "lease-ms": { type: "string", default: "2000" },
    "at-once": { type: "string", default: "60" },
    minutes: { type: "string", default: "20" },
    shown: { type: "string", default: "20" },
    keep: { type: "boolean", default: false },
  },
});
const { seed, driver, synchronous, keep } = values;
if (synchronous !== "FULL" && synchronous !== "NORMAL" && synchronous !== "mixed")
  throw new Error("--synchronous is FULL, NORMAL or mixed.");
console.log(`seed ${seed}`);
const startedAt = Date.now();
const seconds = () => Math.round((Date.now() - startedAt) / 1_000);
let faults = 0;
const { figures, anomalies, said, folder } = await underFaults({
  seed,
  driver,
  synchronous,
  keep,
  runs: Number(values.runs),
  faults: Number(values.faults),
  processes: Number(values.processes),
  everyMs: Number(values["every-ms"]),
  leaseMs: Number(values["lease-ms"]),
  atOnce: Number(values["at-once"]),
  atMostMs: 60_000 * Number(values.minutes),
  onProgress: (progress) => {
    faults += 1;
    if (faults % 20 === 0) console.log(`${seconds()} s: ${JSON.stringify(progress)}`);
  },
});
for (const [line, times] of said) console.log(`${times} × ${line}`);
for (const anomaly of anomalies.slice(0, Number(values.shown))) console.error(`\n${describe(anomaly, seed)}`);
console.log(`\n${seconds()} s: ${JSON.stringify({ ...figures, anomalies: kindsOf(anomalies) })}`);
if (keep) console.log(`The store and the record of the steps' effects lie in ${folder}.`);
process.exitCode = anomalies.length === 0 ? 0 : 1;
