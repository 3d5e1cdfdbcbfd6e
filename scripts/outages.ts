/**
 * Outages of a PostgreSQL server under load: `npm run test:outages -- --part outages --seed mine`. The parts: `outages`,
 * `losses`, `failovers` and `joins`; by default all.
 */
import { parseArgs } from "node:util";
import { afterFailovers } from "../test/harness/outages/failover.ts";
import { joinedSessions } from "../test/harness/outages/joins.ts";
import { kinds } from "../test/harness/outages/lossy-pool.ts";
import type { Outage } from "../test/harness/outages/outages.ts";
import { complaintsIn, underOutages } from "../test/harness/outages/outages.ts";
import { startServer } from "../test/harness/postgres-server.ts";
import { buildProgram } from "../test/harness/worker-process.ts";

const { values } = parseArgs({
  options: {
    part: { type: "string", default: "all" },
    seed: { type: "string", default: `${Date.now()}` },
    seconds: { type: "string", default: "20" },
    "lease-ms": { type: "string", default: "10000" },
    processes: { type: "string", default: "3" },
    "at-once": { type: "string", default: "30" },
    "load-ms": { type: "string", default: "5000" },
    rounds: { type: "string", default: "10" },
    joins: { type: "string", default: "1000" },
    kinds: { type: "string" },
    only: { type: "string" },
  },
});
const { seed, part } = values;
console.log(`seed ${seed}`);
const leaseMs = Number(values["lease-ms"]);
const ms = 1_000 * Number(values.seconds);
const server = await startServer(18, { log_min_duration_statement: `${0.4 * leaseMs}`, log_statement: "all" });
if ("missing" in server.address) throw new Error(server.address.missing);
const { host, port } = server.address;
const at = { host, port };
const program = await buildProgram(new URL("../test/harness/crash/worker.ts", import.meta.url));
let failures = 0;
const base = {
  seed,
  program,
  server,
  leaseMs,
  processes: Number(values.processes),
  atOnce: Number(values["at-once"]),
  loadMs: Number(values["load-ms"]),
};

const trials: Readonly<Record<string, readonly Outage[]>> = {
  "the server crashes": [1, 2, 3].map(() => ({ is: "crash", ms })),
  "connections are cut": [{ is: "cut", ms }],
  "half-open connections": [{ is: "half-open", ms: 1.25 * ms }],
  "half-open connections of one process": [{ is: "half-open one", ms: 1.25 * ms }],
};
if (part === "all" || part === "outages") {
  for (const [name, outages] of Object.entries(trials)) {
    if (values.only !== undefined && !outages.some(({ is }) => is === values.only)) continue;
    const { wrong, healed, ...figures } = await underOutages({ ...base, outages });
    const isUnreachable = outages.some(({ is }) => is === "half-open one");
    tell(name, figures, isUnreachable ? wrong.filter(isNoOverlap) : wrong);
    for (const one of healed) console.log(`  ${JSON.stringify(one)}`);
    if (figures.takeovers > 0 && !isUnreachable) tell(name, { takeovers: figures.takeovers }, ["runs were taken over"]);
  }
}
if (part === "all" || part === "losses") {
  // A lease is short, so that what is lost is found soon; a machine with few processors carries a few trials at once.
  const trials = (values.kinds?.split(",") ?? [...kinds, "all"]).flatMap((kind) =>
    [1, 2, 3, 4, 5, 6, 7].flatMap((nth) => (kind === "all" && nth === 1 ? [] : [{ kind, nth }])),
  );
  const work = async (): Promise<void> => {
    for (let losses = trials.shift(); losses !== undefined; losses = trials.shift()) {
      const options = { ...base, losses, outages: [], processes: 2, atOnce: 8, leaseMs: 2_000, loadMs: 4_000 };
      const { wrong, healed: _healed, ...figures } = await underOutages(options);
      tell(`every ${losses.nth}. answer to ${losses.kind}`, figures, wrong.filter(isNoOverlap));
    }
  };
  await Promise.all([work(), work(), work()]);
}
if (part === "all" || part === "failovers") {
  for (let round = 1; round <= Number(values.rounds); round++) {
    const lost = [1, 2, 3, 4, 5];
    const options = { seed: `${seed} ${round}`, server: at, lost, leaseMs: 2_000, areWaiting: round % 2 === 0 };
    const { wrong, ...figures } = await afterFailovers(options);
    tell(`failovers ${round}${options.areWaiting ? ", with waits" : ""}`, figures, wrong);
  }
}
if (part === "all" || part === "joins") tell("joined sessions", {}, await joinedSessions(at, Number(values.joins)));
tell("the server's log", {}, complaintsIn(server));
program.remove();
await server.stop();
process.exitCode = failures === 0 ? 0 : 1;

function tell(name: string, figures: object, wrong: readonly string[]): void {
  failures += wrong.length;
  console.log(`${name}: ${JSON.stringify({ ...figures, wrong: wrong.length })}`);
  for (const line of wrong.slice(0, 10)) console.error(`  ${line}`);
}

/** A process that cannot renew its lease ends the step that it has begun, while another one begins it again. */
function isNoOverlap(complaint: string): boolean {
  return !/was running it|which belonged to/.test(complaint);
}
