/**
 * Watchers and workers that are killed, beside transactions that stay open: `npm run test:watches -- --runs 1000 --kills 150
 * --open-ms 60000 --seed mine`. Each event of each run has to be noted, in its order, and each question mailed once to each
 * address. Exits with 1 otherwise. Then prints what a feed costs: statements and bytes of the log of the server for each run.
 */
import { parseArgs } from "node:util";
import { startServer } from "../test/harness/postgres-server.ts";
import { feedCosts } from "../test/harness/watches/costs.ts";
import { watches } from "../test/harness/watches/watches.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "1000" },
    kills: { type: "string", default: "150" },
    "at-once": { type: "string", default: "400" },
    "open-ms": { type: "string", default: "60000" },
    seed: { type: "string", default: `${Date.now()}` },
  },
});
console.log(`seed ${values.seed}`);
// A page that is written whole after a checkpoint belongs to no run.
const server = await startServer(18, { full_page_writes: "off" });
if ("missing" in server.address) throw new Error(server.address.missing);
const { host, port } = server.address;
const { wrong, ...figures } = await watches({
  server: { host, port },
  schema: "watches",
  seed: values.seed,
  runs: Number(values.runs),
  atOnce: Number(values["at-once"]),
  kills: Number(values.kills),
  mailsBetweenKills: 20,
  openMs: Number(values["open-ms"]),
  onProgress: (runs, kills) => runs % 100 === 0 && console.log(`${runs} runs, ${kills} kills`),
});
console.log(JSON.stringify(figures));
for (const line of wrong.slice(0, 20)) console.error(line);
for (const cost of await feedCosts({ host, port })) console.log(JSON.stringify(cost));
await server.stop();
process.exitCode = wrong.length > 0 ? 1 : 0;
