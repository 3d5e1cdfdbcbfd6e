import { command } from "../harness/commands/commands.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";
import { tryMove } from "../harness/moving/moving.ts";

export const trial = command({
  about:
    "Moves many open runs to another version of their agents while a third of them is answered and executed, and kills processes meanwhile. A tenth of the runs has code that does not match. It is wrong if a run is neither moved nor named nor ended, is blocked, is moved to code that does not match, or is executed by the former version after its move.",
  options: {
    runs: { about: "How many open runs there are.", default: 10_000 },
    kills: { about: "How many processes are killed during the move.", default: 5 },
    store: { about: "Where they are stored.", default: "both", oneOf: ["both", "postgres", "sqlite"] },
  },
  async run({ runs, kills, store }, report) {
    for (const name of ["sqlite", "postgres"] as const) {
      if (store !== "both" && store !== name) continue;
      report.say(`on ${name}`);
      const grown = await (name === "postgres" ? growOnPostgres() : growOnSqlite());
      await tryMove(grown, { runs, kills }, report);
      await grown.close();
    }
    return `moves of ${runs} runs`;
  },
});
