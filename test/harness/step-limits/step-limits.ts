import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { openPostgresStore } from "cadenza/postgres";
import { newSchemaOn } from "../crash/place.ts";
import { quoteName } from "../internals.ts";
import { connect } from "../limits/task.ts";
import { startServer } from "../postgres-server.ts";
import { endOf } from "../processes.ts";
import type { Task } from "./task.ts";

export interface StepLimitOptions extends Pick<Task, "count" | "max" | "work"> {
  readonly seconds: number;
  readonly processes: number;
}

export interface StepLimitFigures {
  /** How many grants lie in any second, and how many bodies have begun in any second, at most. */
  readonly granted: number;
  readonly begun: number;
  /** How many bodies have begun in a second, on average, but in the first and the last two. */
  readonly rate: number;
  /** How many bodies were at work at a time, at most. */
  readonly atWork: number;
  readonly worked: number;
  /** The same on average, while there was more work. */
  readonly busy: number;
}

/** Lets several processes execute steps with limits on PostgreSQL, and counts by its clock which of them are granted, begin and are at work. */
export async function runStepLimits({ seconds, processes, ...limits }: StepLimitOptions): Promise<StepLimitFigures> {
  const server = await startServer(18);
  const { place } = newSchemaOn(server.address);
  if (!("host" in place)) throw new Error("The server has no address.");
  const pool = connect(place);
  const schema = quoteName(place.schema);
  await (await openPostgresStore({ pool, schema: place.schema })).close();
  await pool.query(`
    CREATE UNLOGGED TABLE begun (at float8 NOT NULL);
    CREATE UNLOGGED TABLE work (began timestamptz NOT NULL, ended timestamptz);
    CREATE UNLOGGED TABLE granted (at float8 NOT NULL);
    CREATE FUNCTION note_grant() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO granted VALUES (NEW.at); RETURN NULL; END $$;
    CREATE TRIGGER note_grant AFTER INSERT ON ${schema}.step_grants FOR EACH ROW EXECUTE FUNCTION note_grant()`);
  const worker = fileURLToPath(new URL("./worker.ts", import.meta.url));
  const children = Array.from({ length: processes }, () => fork(worker));
  const task: Task = { place, ms: seconds * 1_000, ...limits };
  for (const child of children) child.send(task);
  await Promise.all(children.map(endOf));
  const { rows } = await pool.query<StepLimitFigures>(
    `WITH bounds AS (SELECT min(at) + 2000 AS low, max(at) - 2000 AS high FROM begun),
       most AS (SELECT max(x.n)::int AS n FROM work w, LATERAL
         (SELECT count(*) AS n FROM work o WHERE o.began <= w.began AND o.ended > w.began) x)
     SELECT
       (SELECT max(x.n)::int FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN 999.999 PRECEDING AND CURRENT ROW) AS n FROM granted) x) AS granted,
       (SELECT max(x.n)::int FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN 999.999 PRECEDING AND CURRENT ROW) AS n FROM begun) x) AS begun,
       (SELECT count(*) FILTER (WHERE at BETWEEN low AND high)::float8 * 1000 / (max(high) - max(low)) FROM begun, bounds) AS rate,
       (SELECT n FROM most) AS "atWork",
       (SELECT count(*)::int FROM work) AS worked,
       (SELECT sum(extract(epoch FROM ended - began))::float8 / extract(epoch FROM max(ended) - min(began))::float8 FROM work) AS busy`,
  );
  await pool.end();
  await server.stop();
  const [found] = rows;
  if (found === undefined) throw new Error("There is no result.");
  return found;
}
