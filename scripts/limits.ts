/**
 * Lets several processes execute runs of one agent with `concurrency` on PostgreSQL, and checks how many were at work at
 * a time. `npm run test:limits -- --runs 4000 --processes 4 --max 3 --work 20`
 */
import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { AgentRuntime } from "cadenza";
import pg from "pg";
import type { Place } from "../test/harness/crash/place.ts";
import { newSchemaOn, openPlace } from "../test/harness/crash/place.ts";
import { startServer } from "../test/harness/postgres-server.ts";

interface Task {
  readonly place: Place & { readonly host: string; readonly port: number };
  readonly runs: number;
  readonly max: number;
  /** How long a run works, in milliseconds. */
  readonly work: number;
}

const connect = ({ host, port }: Task["place"]): pg.Pool =>
  new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });

if (process.send === undefined) process.exitCode = await lead();
else process.once("message", (task: Task) => void follow(task));

async function lead(): Promise<number> {
  const { values } = parseArgs({
    options: {
      runs: { type: "string", default: "4000" },
      processes: { type: "string", default: "4" },
      max: { type: "string", default: "3" },
      work: { type: "string", default: "20" },
    },
  });
  const [runs, processes, max, work] = [values.runs, values.processes, values.max, values.work].map(Number) as [
    number,
    number,
    number,
    number,
  ];
  const server = await startServer(18);
  const { place } = newSchemaOn(server.address);
  if (!("host" in place)) throw new Error("The server has no address.");
  const pool = connect(place);
  await pool.query("CREATE UNLOGGED TABLE work (began timestamptz NOT NULL, ended timestamptz)");
  const task: Task = { place, runs: runs / processes, max, work };
  const children = Array.from({ length: processes }, () => fork(fileURLToPath(import.meta.url)));
  const began = performance.now();
  for (const child of children) child.send(task);
  await Promise.all(children.map(ended));
  const seconds = (performance.now() - began) / 1_000;
  const { rows } = await pool.query<{ done: number; most: number; ideal: number }>(
    `SELECT count(*)::int AS done, max(atonce)::int AS most, sum(extract(epoch FROM ended - began))::float8 / $1 AS ideal
     FROM work w, LATERAL (SELECT count(*) AS atonce FROM work o WHERE o.began <= w.began AND o.ended > w.began) x`,
    [max],
  );
  await pool.end();
  await server.stop();
  const [found] = rows;
  if (found === undefined) throw new Error("There is no result.");
  const { done, most, ideal } = found;
  console.log(JSON.stringify({ runs, processes, max, done, most, seconds, ideal, ratio: seconds / ideal }));
  return done === runs && most <= max && seconds <= 4 * ideal ? 0 : 1;
}

async function ended(child: ChildProcess): Promise<void> {
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`A process ended with ${code}.`);
}

/** Creates its share of the runs, and executes those that it takes. */
async function follow({ place, runs, max, work }: Task): Promise<void> {
  const pool = connect(place);
  const runtime = new AgentRuntime({ store: await openPlace(place) });
  runtime.register("limited", { durable: true, concurrency: { max } }, (_input, { step }) =>
    step("work", async () => {
      const { rows } = await pool.query<{ ctid: string }>("INSERT INTO work VALUES (clock_timestamp()) RETURNING ctid");
      await wait(work);
      await pool.query("UPDATE work SET ended = clock_timestamp() WHERE ctid = $1", [rows[0]?.ctid]);
    }),
  );
  await Promise.all(Array.from({ length: runs }, () => runtime.createRun({ agent_name: "limited", input: "" })));
  await runtime.close();
  await pool.end();
  process.disconnect();
}
