import { beside } from "../harness/bounds/beside.ts";
import { longLogs } from "../harness/bounds/long-logs.ts";
import { refused } from "../harness/bounds/refused.ts";
import { command } from "../harness/commands/commands.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { startServer } from "../harness/postgres-server.ts";

export const trial = command({
  about:
    "Holds up single writes on PostgreSQL, and gives stores what is too large for them. While a row, a lock, a statement or a connection does not move, the other runs of the process have to keep 90 % of their rate, compared with a process beside it that nothing holds up; no lease may end, and no step begin twice. A run whose entry or log is too large has to fail with a clear error, in workers with a small heap, while others go on.",
  options: {
    part: { about: "The part that is tried.", default: "all", oneOf: ["all", "holds", "refused", "logs"] },
    store: { about: "The store.", default: "all", oneOf: ["all", "postgres", "sqlite"] },
    seconds: { about: "How long something does not move.", default: 60 },
    atOnce: { about: "How many runs each of the two processes has under way at a time.", default: 25 },
    step: { about: "How long a step of these takes, in milliseconds.", default: 20 },
    only: { about: "A part of the name of what does not move, such as session.", default: "" },
    megabytes: { about: "How long the longest log is.", default: 2_000 },
    heap: { about: "How many megabytes of heap the workers have that get it.", default: 512 },
  },
  async run({ part, store, seconds, atOnce, step, only, megabytes, heap }, report) {
    const has = (one: string): boolean => part === "all" || part === one;
    let cases = 0;
    if (store !== "sqlite") {
      const server = await startServer(18);
      const { address } = server;
      if ("missing" in address) throw new Error(address.missing);
      const times = { heldMs: 1_000 * seconds, freeMs: 333 * seconds };
      if (has("holds")) cases += await beside(address, { ...times, atOnce, stepMs: step, only }, report);
      const { place } = newSchemaOn(address);
      if (has("refused")) cases += await refused(place, report);
      if (has("logs")) cases += await longLogs(place, { megabytes, heap }, report);
      await server.stop();
    }
    if (store !== "postgres") {
      const { place, remove } = newFile();
      if (has("refused")) cases += await refused(place, report);
      if (has("logs")) cases += await longLogs(place, { megabytes, heap }, report);
      remove();
    }
    return `${cases} cases`;
  },
});
