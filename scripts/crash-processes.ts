/**
 * Four processes run random agent programs on one file, and a random one of them is killed every second.
 * `npm run test:processes -- --runs 20000 --seconds 600 --seed mine`. With `--store postgres` on a server of its own.
 * `--clocks wrong` sets the clocks wrong by up to an hour, again and again: each by itself on a server, and on a file, whose
 * processes have one clock, all at once. `--punctual` judges delays too, which needs a quiet machine and few kills:
 * `--kill-every 30`, in seconds. `--webs 1` adds a process that executes nothing.
 */
import { parseArgs } from "node:util";
import { newSchemaOn } from "../test/harness/crash/place.ts";
import { manyProcesses } from "../test/harness/crash/processes.ts";
import { startServer } from "../test/harness/postgres-server.ts";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "20000" },
    processes: { type: "string", default: "4" },
    webs: { type: "string", default: "0" },
    seconds: { type: "string", default: "900" },
    seed: { type: "string", default: `${Date.now()}` },
    clocks: { type: "string", default: "right" },
    "kill-every": { type: "string", default: "1" },
    punctual: { type: "boolean", default: false },
    store: { type: "string", default: "sqlite" },
  },
});
console.log(`seed ${values.seed}`);
const server = values.store === "postgres" ? await startServer(18) : undefined;
const started = Date.now();
const { wrong, said, ...figures } = await manyProcesses({
  seed: values.seed,
  processes: Number(values.processes),
  webs: Number(values.webs),
  runs: Number(values.runs),
  killEveryMs: 1_000 * Number(values["kill-every"]),
  wrongClocks: values.clocks === "wrong",
  punctual: values.punctual,
  atMostMs: 1_000 * Number(values.seconds),
  place: server && newSchemaOn(server.address),
  onProgress: (progress) => {
    if (progress.kills % 20 === 0)
      console.log(`${Math.round((Date.now() - started) / 1000)} s: ${JSON.stringify(progress)}`);
  },
});
await server?.stop();
for (const line of said.slice(0, 20)) console.log(line);
for (const line of wrong.slice(0, 50)) console.error(line);
console.log(JSON.stringify({ ...figures, wrong: wrong.length }));
process.exitCode = wrong.length === 0 ? 0 : 1;
