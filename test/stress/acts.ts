import { command } from "../harness/commands/commands.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";
import { actAndKill, makeRuns } from "../harness/killed-acts/killed-acts.ts";

export const trial = command({
  about:
    "Cancels many runs and tries many again, each by an act whose process is killed on the way. The figures of the act have to be exact, each run changed once, and the same act again without an effect. No turn of the acting process may take more processor time than allowed.",
  options: {
    runs: { about: "How many runs wait for an answer, and how many have failed.", default: 100_000 },
    kills: { about: "How often the acting process is killed.", default: 3 },
    longest: { about: "The processor time of a turn that is allowed, in milliseconds.", default: 20 },
    store: { about: "Where they are stored.", oneOf: ["postgres", "sqlite", "both"], default: "both" },
  },
  async run({ runs, kills, longest, store }, report) {
    for (const name of ["sqlite", "postgres"] as const) {
      if (store !== "both" && store !== name) continue;
      const grown = await (name === "postgres" ? growOnPostgres() : growOnSqlite());
      await makeRuns(grown, runs);
      for (const act of ["cancel", "retry"] as const) {
        const ms = await actAndKill(grown, act, { runs, kills }, report);
        const said = `${name}, ${act}: the longest turn took ${ms.toFixed(1)} ms of processor time`;
        report.progress(said);
        report.check(ms <= longest, said);
      }
      await grown.close();
    }
    return `${runs} runs and ${kills} kills for each act`;
  },
});
