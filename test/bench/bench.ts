import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { startServer } from "../harness/postgres-server.ts";
import type { Figures } from "./figures.ts";
import { describeCode, describeMachine } from "./machine.ts";
import { writeFiles } from "./pages.ts";
import { peerPackages, plans } from "./plan.ts";
import { fullTable } from "./table.ts";
import { takeTurns } from "./turns.ts";

/*
 * `npm run bench`, `bench:peers`, `bench:growth` and `bench:postgres` measure; `bench:pages` writes the kept figures into
 * the pages. Options:
 *   --json <file>     keeps the figures of every round
 *   --rounds <count>  3 by default; on PostgreSQL 5
 *   --cases <a,b>     only these
 *   --node <path>     the Node to measure with
 *   --library <path>  the module to measure in place of dist/index.js
 */
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string" },
    cases: { type: "string" },
    node: { type: "string", default: process.execPath },
    library: { type: "string" },
  },
});
const [command = "floors"] = positionals;

if (command === "pages") {
  for (const path of writeFiles()) console.log(`${path} has changed.`);
} else {
  const onServer = command === "postgres" ? withServer : (work: () => Promise<Figures>) => work();
  console.log(fullTable(await onServer(() => measure(command))));
}

/** Measures what a plan says, and writes the figures to the `--json` file. */
async function measure(name: string): Promise<Figures> {
  const plan = plans[name]?.filter((turn) => options.cases?.split(",").includes(turn.case) ?? true);
  if (plan === undefined) throw new Error(`There is no plan ${name}; there are ${Object.keys(plans).join(", ")}.`);
  const rounds = Number(options.rounds ?? (name === "postgres" ? 5 : 3));
  const { node, library } = options;
  const machine = describeMachine();
  const results = await takeTurns(plan, {
    rounds,
    node,
    library: library === undefined ? undefined : pathToFileURL(resolve(library)).href,
    onMeasured: (turn) => process.stderr.write(`${turn}\n`),
  });
  const figures = {
    plan: name,
    ...describeCode(node, peerPackages[name] ?? []),
    machine,
    rounds,
    results: results.map(rounded),
  };
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(figures, null, 1)}\n`);
  return figures;
}

/** Measures beside a PostgreSQL server, which the measured processes find by their environment. */
async function withServer(work: () => Promise<Figures>): Promise<Figures> {
  const { address, stop } = await startServer(18);
  process.env["CADENZA_BENCH_POSTGRES"] = JSON.stringify(address);
  try {
    return await work();
  } finally {
    await stop();
  }
}

/** Rounds the values to six digits. */
function rounded<Result extends { readonly values: readonly number[] }>(result: Result): Result {
  return { ...result, values: result.values.map((value) => Number(value.toPrecision(6))) };
}
