import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { underFaults } from "../harness/faults/faults.ts";
import { describe, kindsOf } from "../harness/faults/report.ts";
import { drivers } from "../harness/sqlite-files.ts";

export const trial = command({
  about:
    "Runs processes on one file and a client of them, and injects faults. These are kills, freezes, restarts and failing stores.",
  options: {
    seed,
    runs: { about: "How many runs are made.", default: 5_000 },
    faults: { about: "How many faults are injected.", default: 500 },
    processes: { about: "How many processes execute runs.", default: 4 },
    driver: {
      about: "The driver of SQLite.",
      default: drivers.at(-1)?.name ?? "libsql",
      oneOf: drivers.map(({ name }) => name),
    },
    synchronous: {
      about: "How the processes write: mixed means that some of them do so in another way.",
      default: "mixed",
      oneOf: ["FULL", "NORMAL", "mixed"],
    },
    everyMs: { about: "The milliseconds from one fault to the next.", default: 1_200 },
    leaseMs: { about: "The lease of a process, in milliseconds.", default: 2_000 },
    atOnce: { about: "How many runs are open at a time.", default: 60 },
    minutes: { about: "How long it may take.", default: 20 },
    keep: { about: "Keeps the store and the record of the steps' effects.", default: false },
  },
  async run({ seed, minutes, ...options }, report) {
    const { figures, anomalies, said, folder } = await underFaults({
      ...options,
      seed: String(seed),
      atMostMs: 60_000 * minutes,
      onProgress: (progress) => report.progress(progress),
    });
    for (const [line, times] of said) report.say(`${times} × ${line}`);
    report.say({ ...figures, anomalies: kindsOf(anomalies) });
    for (const anomaly of anomalies) report.wrong(describe(anomaly, String(seed)));
    if (options.keep) report.say(`The store and the record of the steps' effects lie in ${folder}.`);
    return `${options.runs} runs under ${options.faults} faults`;
  },
});
