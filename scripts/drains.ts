/**
 * SIGTERM to workers under load on a PostgreSQL server: `npm run test:drains -- --times 200 --drain-ms 200`. Exits with 1 if
 * a run has its next owner later than 0.5 s after the signal at the median, if a take-over is counted, or if a step that
 * was done runs once more.
 */
import { parseArgs } from "node:util";
import { drains } from "../test/harness/drains/drains.ts";
import { startServer } from "../test/harness/postgres-server.ts";

const MAX_MEDIAN_MS = 500;

const { values } = parseArgs({
  options: { times: { type: "string", default: "200" }, "drain-ms": { type: "string", default: "200" } },
});
const server = await startServer(18);
if ("missing" in server.address) throw new Error(server.address.missing);
const { host, port } = server.address;
const { wrong, ...figures } = await drains({
  server: { host, port },
  schema: "drains",
  times: Number(values.times),
  drainMs: Number(values["drain-ms"]),
  onDrained: (times) => times % 20 === 0 && console.log(`${times} workers`),
});
await server.stop();
console.log(JSON.stringify(figures));
for (const line of wrong.slice(0, 20)) console.error(line);
if (figures.median > MAX_MEDIAN_MS) console.error(`the next owner comes after ${figures.median} ms at the median`);
process.exitCode = wrong.length > 0 || figures.median > MAX_MEDIAN_MS ? 1 : 0;
