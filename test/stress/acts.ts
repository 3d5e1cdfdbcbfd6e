import type { Acting } from "../harness/acting/acting.ts";
import { tryAct } from "../harness/acting/acting.ts";
import { command } from "../harness/commands/commands.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";

const ACTS = ["cancel", "retry", "pause"] as const satisfies readonly Acting[];

export const trial = command({
  about:
    "Cancels, tries again and pauses many runs, and kills the process that does so again and again. It is wrong if the report of the act is not exact, a run is changed twice or not at all, the same act has an effect once more, a run of a paused tenant begins or one of another waits for it, or a turn of the event loop takes more processor time than allowed.",
  options: {
    runs: { about: "How many runs there are.", default: 100_000 },
    kills: { about: "How many processes are killed during an act.", default: 5 },
    longest: { about: "The processor time of a turn that is allowed, in milliseconds.", default: 20 },
    act: { about: "What is done to the runs.", default: "all", oneOf: ["all", ...ACTS] },
    store: { about: "Where they are stored.", default: "both", oneOf: ["both", "postgres", "sqlite"] },
  },
  async run({ runs, kills, longest, act, store }, report) {
    for (const name of ["sqlite", "postgres"] as const) {
      if (store !== "both" && store !== name) continue;
      for (const one of ACTS) {
        if (act !== "all" && act !== one) continue;
        report.say(`${one} on ${name}`);
        const grown = await (name === "postgres" ? growOnPostgres() : growOnSqlite());
        await tryAct(one, grown, { runs, kills, longest }, report);
        await grown.close();
      }
    }
    return `acts on ${runs} runs`;
  },
});
