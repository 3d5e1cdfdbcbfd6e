import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { newSchemaOn } from "../crash/place.ts";
import { startServer } from "../postgres-server.ts";
import { endOf } from "../processes.ts";
import type { Task } from "./task.ts";
import { connect } from "./task.ts";

export interface LimitOptions extends Pick<Task, "max" | "work"> {
  /** How many runs the processes create together. */
  readonly runs: number;
  readonly processes: number;
}

export interface LimitFigures {
  readonly done: number;
  /** How many runs were at work at a time, at most. */
  readonly most: number;
  readonly seconds: number;
  /** How many seconds it would take if the slots were never free. */
  readonly ideal: number;
}

/** Lets several processes execute runs of one agent with `concurrency` on PostgreSQL, and counts which are at work. */
export async function runLimited({ runs, processes, max, work }: LimitOptions): Promise<LimitFigures> {
  const server = await startServer(18);
  const { place } = newSchemaOn(server.address);
  if (!("host" in place)) throw new Error("The server has no address.");
  const pool = connect(place);
  await pool.query("CREATE UNLOGGED TABLE work (began timestamptz NOT NULL, ended timestamptz)");
  const task: Task = { place, runs: runs / processes, total: runs, max, work };
  const worker = fileURLToPath(new URL("./worker.ts", import.meta.url));
  const children = Array.from({ length: processes }, () => fork(worker));
  const began = performance.now();
  for (const child of children) child.send(task);
  await Promise.all(children.map(endOf));
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
  return { ...found, seconds };
}
