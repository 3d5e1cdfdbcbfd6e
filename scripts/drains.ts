/**
 * SIGTERM to workers under load: `npm run test:drains -- --times 200`. Part `load`, on PostgreSQL, exits with 1 if a run has
 * its next owner later than 0.5 s after the signal at the median, if a take-over is counted, or if a step that was done
 * runs once more. Part `beside`, on PostgreSQL and SQLite, sends the signal during steps beside waits of all kinds. It exits
 * with 1 if a step begins twice that was not stopped at the end of its drain, if too many runs are at work at once, or if
 * a run does not end. `--part beside --store sqlite --seed mine` runs one of them.
 */
import { parseArgs } from "node:util";
import type { NewPlace } from "../test/harness/crash/place.ts";
import { newFile, newSchemaOn } from "../test/harness/crash/place.ts";
import { drainsBesideWaits } from "../test/harness/drains/beside.ts";
import { drains } from "../test/harness/drains/drains.ts";
import { startServer } from "../test/harness/postgres-server.ts";

const MAX_MEDIAN_MS = 500;

const { values } = parseArgs({
  options: {
    times: { type: "string", default: "200" },
    "drain-ms": { type: "string" },
    part: { type: "string" },
    store: { type: "string" },
    seed: { type: "string", default: `${Date.now()}` },
  },
});
const times = Number(values.times);
const onDrained = (count: number): void => {
  if (count % 20 === 0) console.log(`${count} workers`);
};
const server = values.store === "sqlite" ? undefined : await startServer(18);
if (values.part !== "beside" && server !== undefined) await underLoad(server.address);
if (values.part !== "load" && server !== undefined) await besideWaits("PostgreSQL", newSchemaOn(server.address));
if (values.part !== "load" && values.store !== "postgres") await besideWaits("SQLite", newFile());
await server?.stop();

async function underLoad(address: Awaited<ReturnType<typeof startServer>>["address"]): Promise<void> {
  if ("missing" in address) throw new Error(address.missing);
  const { host, port } = address;
  const drainMs = Number(values["drain-ms"] ?? 200);
  const { wrong, ...figures } = await drains({ server: { host, port }, schema: "drains", times, drainMs, onDrained });
  console.log(JSON.stringify(figures));
  if (figures.median > MAX_MEDIAN_MS) wrong.push(`the next owner comes after ${figures.median} ms at the median`);
  report(wrong);
}

async function besideWaits(name: string, { place, remove }: NewPlace): Promise<void> {
  const { seed } = values;
  const drainMs = Number(values["drain-ms"] ?? 1_500);
  console.log(`Steps beside waits on ${name}, seed ${seed}.`);
  const { wrong, ...figures } = await drainsBesideWaits({ place, seed, times, drainMs, onDrained });
  remove();
  console.log(JSON.stringify(figures));
  report(wrong);
}

function report(wrong: readonly string[]): void {
  for (const line of wrong.slice(0, 20)) console.error(line);
  if (wrong.length > 0) process.exitCode = 1;
}
