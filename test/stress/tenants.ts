import { SqliteStore } from "cadenza/sqlite";
import { command } from "../harness/commands/commands.ts";
import { openDatabase, withFile } from "../harness/sqlite-files.ts";
import { takeTurns } from "../harness/tenants/turns.ts";

export const trial = command({
  about:
    "Lets one tenant stay at each of its limits, and measures what the others notice. In turns without and with the greedy tenant three others do what customers do, as fast as they can. The greedy one waits between its refused requests as long as Retry-After says. It is wrong if another tenant lost a request, a run, a session or a key, or if the rate in the turns with the greedy tenant is less than 90 % of the rate in the turns around each, by the median. Other work on the machine makes the rates differ from turn to turn: what the greedy tenant costs alone, in a turn of its own, is printed, too.",
  options: {
    seconds: { about: "How long all takes, of which each store has half.", default: 600 },
    turn: { about: "How long a turn takes, in seconds.", default: 10 },
    clients: { about: "How many clients the greedy tenant has.", default: 5 },
    store: { about: "The store.", default: "all", oneOf: ["all", "memory", "sqlite"] },
  },
  async run({ seconds, turn, clients, store }, report) {
    const times = { forMs: 500 * seconds, turnMs: 1_000 * turn, clients };
    let turns = 0;
    // In memory with the limits by default, of which a tenant has half. It keeps 10,000 ended runs in all.
    if (store !== "sqlite") turns += await takeTurns({ ...times, name: "memory", runtime: {}, ended: 11_000 }, report);
    if (store !== "memory")
      await withFile(async (file) => {
        const perTenant = { storedRuns: 1_000, sessions: 1_000 };
        const runtime = {
          store: new SqliteStore(openDatabase(file), { closeDatabase: true }),
          limits: { maxLiveRuns: 2_000, perTenant },
        };
        turns += await takeTurns({ ...times, name: "sqlite", runtime, ended: 1_500 }, report);
      });
    return `${turns} turns with a greedy tenant`;
  },
});
