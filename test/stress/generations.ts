import { command } from "../harness/commands/commands.ts";
import { seed } from "../harness/commands/options.ts";
import { newFile, newSchemaOn } from "../harness/crash/place.ts";
import { tryGenerations } from "../harness/generations/generations.ts";
import { startServer } from "../harness/postgres-server.ts";
import { Random } from "../harness/random.ts";

export const trial = command({
  about:
    "Lets one run take many turns in many generations, and kills its process again and again. It is wrong if a turn, the memory of a process or the way back after a kill costs more in the last generations than in the first, or if a reader misses an event.",
  options: {
    seed,
    turns: { about: "How many turns the run takes.", default: 1_000_000 },
    each: { about: "How many turns a generation has.", default: 1_000 },
    kills: { about: "How many processes are killed.", default: 200 },
    kept: { about: "How many generations are kept. 0: all.", default: 0 },
    store: { about: "Where the run is stored.", default: "sqlite", oneOf: ["sqlite", "postgres"] },
  },
  async run({ seed, turns, each, kills, kept, store }, report) {
    const server = store === "postgres" ? await startServer(18) : undefined;
    const { place, remove } = server === undefined ? newFile() : newSchemaOn(server.address);
    await tryGenerations(place, { turns, each, kills, ...(kept > 0 && { kept }) }, new Random(seed), report);
    remove();
    await server?.stop();
    return `${turns} turns with ${kills} kills`;
  },
});
