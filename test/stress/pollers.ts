import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { pollThroughKills } from "../harness/pollers/pollers.ts";
import { startServer } from "../harness/postgres-server.ts";
import { Random } from "../harness/random.ts";

export const trial = command({
  about:
    "Polls tasks of MCP at three processes behind one address, which are killed in turn. It is wrong if a client sees a state twice, out of order or not at all.",
  options: {
    seed,
    kills: { about: "How many processes are killed.", default: 200 },
    store: {
      about: "A SQLite file, or a PostgreSQL server that is started for it.",
      default: "sqlite",
      oneOf: ["sqlite", "postgres"],
    },
  },
  async run({ seed, kills, store }, report) {
    const server = store === "postgres" ? await startServer(18) : undefined;
    const place = server === undefined ? newFile() : newSchemaOn(server.address);
    const { tasks, states, refusals, wrong, kills: done } = await pollThroughKills(place, kills, new Random(seed));
    await server?.stop();
    for (const line of wrong) report.wrong(line);
    return `${done} kills, ${tasks} tasks, ${states} states, ${refusals} refusals of a store that failed`;
  },
});
