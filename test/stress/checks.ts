import { beginRuns, blockedOn, namedIn } from "../harness/checked-runs.ts";
import { command } from "../harness/commands/commands.ts";
import { growOnPostgres, growOnSqlite } from "../harness/growth/grown-stores.ts";

/** How long a check may take, in milliseconds. */
const MOST_MS = 10_000;

export const trial = command({
  about:
    "Checks many open runs of five agents against new code. It is wrong if the check takes ten seconds, or names other runs than the new code blocks once it is deployed.",
  options: {
    runs: { about: "How many open runs there are.", default: 1_000 },
    store: { about: "Where they are stored.", default: "both", oneOf: ["both", "postgres", "sqlite"] },
  },
  async run({ runs, store }, report) {
    for (const name of ["sqlite", "postgres"] as const) {
      if (store !== "both" && store !== name) continue;
      const grown = await (name === "postgres" ? growOnPostgres() : growOnSqlite());
      await beginRuns(await grown.open(), runs);
      const reader = await grown.open();
      const { ids, tookMs } = await namedIn(reader);
      await reader.close();
      report.check(tookMs < MOST_MS, `${runs} open runs on ${name} are checked in ${(tookMs / 1_000).toFixed(2)} s`);
      const blocked = await blockedOn(await grown.open());
      report.check(blocked.join() === ids.join(), `${ids.length} are named, and ${blocked.length} are blocked`);
      await grown.close();
    }
    return `checks of ${runs} runs`;
  },
});
