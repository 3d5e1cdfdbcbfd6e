import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "../harness/commands/commands.ts";
import { command } from "../harness/commands/commands.ts";
import { runNpm } from "../harness/commands/npm.ts";
import { startServer } from "../harness/postgres-server.ts";
import type { Figures } from "./figures.ts";
import { describeCode, describeMachine } from "./machine.ts";
import { peerPackages, plans } from "./plan.ts";
import { fullTable } from "./table.ts";
import { takeTurns } from "./turns.ts";

/** The measurement of a plan. */
export function planned(name: string, about: string): Command {
  const turns = plans[name] ?? [];
  const known = [...new Set(turns.map((turn) => turn.case))];
  const peers = peerPackages[name] ?? [];
  return command({
    about,
    options: {
      json: { about: "The file that keeps the figures of every round.", default: "" },
      rounds: { about: "How often each case is measured.", default: name === "postgres" ? 5 : 3 },
      cases: { about: "The cases.", default: known, oneOf: known },
      node: { about: "The path of the Node that is measured, by default this one.", default: "" },
      library: { about: "The module that is measured, by default dist/index.js, which is built first.", default: "" },
    },
    async run({ json, rounds, cases, node, library }, report) {
      if (library === "") await runNpm("run", "build", "--silent");
      if (peers.length > 0) await runNpm("ci", "--prefix", "test/bench", "--ignore-scripts");
      const path = node === "" ? process.execPath : node;
      const measure = async (): Promise<Figures> => {
        const machine = describeMachine();
        const results = await takeTurns(
          turns.filter((turn) => cases.includes(turn.case)),
          {
            rounds,
            node: path,
            library: library === "" ? undefined : pathToFileURL(resolve(library)).href,
            onMeasured: (turn) => report.say(turn),
          },
        );
        return { plan: name, ...describeCode(path, peers), machine, rounds, results: results.map(rounded) };
      };
      const figures = await (name === "postgres" ? withServer(measure) : measure());
      if (json !== "") writeFileSync(json, `${JSON.stringify(figures, null, 1)}\n`);
      report.say(fullTable(figures));
      return `${figures.results.length} figures`;
    },
  });
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
