import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type pg from "pg";

import { newSchemaOn } from "../crash/place.ts";
import { quoteName } from "../internals.ts";
import { startServer } from "../postgres-server.ts";
import { endOf } from "../processes.ts";
import type { QueueTask } from "./task.ts";
import { connectTo } from "./task.ts";

/** What the processes of a trial share. */
interface Trial {
  readonly pool: pg.Pool;
  readonly schema: string;
  /** Creates runs of these customers, in order, in a process that executes none. */
  create(customers: readonly string[]): Promise<void>;
  /** Starts a process that executes runs. */
  start(): Worker;
}

interface Worker {
  /** Whether it takes runs. */
  readonly isReady: boolean;
  /** Kills it, and records what it was doing as ended. */
  kill(): Promise<void>;
}

type Options = Pick<QueueTask, "limit" | "atWork" | "work">;

async function onServer<T>(options: Options, body: (trial: Trial) => Promise<T>): Promise<T> {
  const server = await startServer(18);
  const { place } = newSchemaOn(server.address);
  if (!("host" in place)) throw new Error("The server has no address.");
  const pool = connectTo(place);
  await pool.query(`CREATE UNLOGGED TABLE work (n bigserial PRIMARY KEY, worker int NOT NULL, tenant text NOT NULL,
    run uuid NOT NULL, began timestamptz NOT NULL, ended timestamptz)`);
  let started = 0;
  const children = new Set<ChildProcess>();
  const begin = (task: Partial<QueueTask>): [ChildProcess, number] => {
    const worker = started++;
    const child = fork(fileURLToPath(new URL("./worker.ts", import.meta.url)));
    children.add(child);
    child.once("exit", () => children.delete(child));
    child.send({ place, worker, ...options, ...task } satisfies QueueTask);
    return [child, worker];
  };
  try {
    return await body({
      pool,
      schema: place.schema,
      create: async (creates) => endOf(begin({ creates })[0]),
      start: () => {
        const [child, worker] = begin({});
        let isReady = false;
        child.once("message", () => {
          isReady = true;
        });
        return {
          get isReady() {
            return isReady;
          },
          async kill() {
            child.kill("SIGKILL");
            await once(child, "exit");
            await pool.query("UPDATE work SET ended = clock_timestamp() WHERE worker = $1 AND ended IS NULL", [worker]);
          },
        };
      },
    });
  } finally {
    for (const child of children) child.kill("SIGKILL");
    await pool.end();
    await server.stop();
  }
}

async function runsDone(pool: pg.Pool): Promise<number> {
  const { rows } = await pool.query<{ done: number }>(
    "SELECT count(DISTINCT run)::int AS done FROM work WHERE ended IS NOT NULL",
  );
  return rows[0]?.done ?? 0;
}

export interface CustomersOptions {
  readonly processes: number;
  readonly runs: number;
  readonly customers: number;
  /** How many of the runs the first customer has. The others have as many as each other. */
  readonly first: number;
  readonly max: number;
  readonly count: number;
  readonly perMs: number;
  readonly work: number;
  readonly killEveryMs: number;
  readonly onDone: (done: number) => void;
}

export interface CustomersFigures {
  readonly kills: number;
  /** How many runs a second all processes executed without a limit. */
  readonly capacity: number;
  /** How many runs of one customer were at work at a time, at most. */
  readonly most: number;
  /** How many permits one customer got in one window, at most. */
  readonly granted: number;
  readonly seconds: number;
  /** How long the runs would take at this capacity: see {@link idealSeconds}. */
  readonly ideal: number;
}

/** Lets processes execute runs of customers with a limit each, after as many without a limit. Kills one process every `killEveryMs`. */
export async function tryCustomers(options: CustomersOptions): Promise<CustomersFigures> {
  const { max, count, perMs, runs, work } = options;
  const free = await onServer({ atWork: 100, work }, async (trial) => {
    await createAll(trial, options);
    return executeAll(trial, options);
  });
  const capacity = runs / free.seconds;
  return onServer({ limit: { max, rate: { count, perMs } }, atWork: 100, work }, async (trial) => {
    const { pool, schema } = trial;
    await createAll(trial, options);
    const grants = `${quoteName(schema)}.grants`;
    await pool.query(`CREATE UNLOGGED TABLE granted (key text NOT NULL, at float8 NOT NULL);
      CREATE FUNCTION keep_grant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO granted VALUES (NEW.key, NEW.at); RETURN NULL; END $$;
      CREATE TRIGGER keep AFTER INSERT ON ${grants} FOR EACH ROW EXECUTE FUNCTION keep_grant();
      INSERT INTO granted SELECT key, at FROM ${grants}`);
    const { kills, seconds } = await executeAll(trial, options);
    const { rows } = await pool.query<{ most: number; granted: number }>(
      `SELECT (SELECT max(together)::int FROM work w, LATERAL (SELECT count(*) AS together FROM work o
          WHERE o.tenant = w.tenant AND o.began <= w.began AND o.ended > w.began) x) AS most,
        (SELECT max(together)::int FROM granted g, LATERAL (SELECT count(*) AS together FROM granted o
          WHERE o.key = g.key AND o.at <= g.at AND o.at > g.at - $1) x) AS granted`,
      [perMs],
    );
    const ideal = idealSeconds(options, capacity);
    return { kills, capacity, most: rows[0]?.most ?? 0, granted: rows[0]?.granted ?? 0, seconds, ideal };
  });
}

async function createAll({ create }: Trial, { runs, customers, first }: CustomersOptions): Promise<void> {
  const others = Array.from({ length: runs - first }, (_, n) => `customer ${1 + (n % (customers - 1))}`);
  await create([...Array.from({ length: first }, () => "customer 0"), ...others]);
}

/** Lets processes execute all runs, and kills one process every `killEveryMs`. */
async function executeAll(
  { pool, start }: Trial,
  { processes, runs, killEveryMs, onDone }: CustomersOptions,
): Promise<{ kills: number; seconds: number }> {
  const began = performance.now();
  const workers = Array.from({ length: processes }, start);
  let [kills, killAt] = [0, began + killEveryMs];
  for (let done = 0; done < runs; ) {
    await wait(200);
    done = await runsDone(pool);
    onDone(done);
    // On a busy machine a process may need longer to start than it would live.
    if (performance.now() < killAt || done === runs || workers[kills % processes]?.isReady !== true) continue;
    killAt = performance.now() + killEveryMs;
    const [victim] = workers.splice(kills++ % processes, 1, start());
    await victim?.kill();
  }
  return { kills, seconds: (performance.now() - began) / 1_000 };
}

const STEP_MS = 100;

/**
 * How long all runs take where nothing is lost but what the machine, the limits and fairness ask: each customer that has
 * runs gets the same part of the capacity, in runs a second, and the first one no more than its rate and its slots let in.
 */
export function idealSeconds(
  { runs, customers, first, max, count, perMs, work }: Omit<CustomersOptions, "processes" | "killEveryMs" | "onDone">,
  capacity: number,
): number {
  let left = { first, others: runs - first };
  const begun: number[] = [];
  const perStep = (capacity * STEP_MS) / 1_000;
  for (let step = 1; ; step++) {
    const inWindow = begun.slice(-perMs / STEP_MS).reduce((sum, some) => sum + some, 0);
    const admitted = Math.min(left.first, count - inWindow, (max * STEP_MS) / work);
    const ofFirst = Math.min(admitted, Math.max(perStep / customers, perStep - left.others));
    left = { first: left.first - ofFirst, others: Math.max(0, left.others - (perStep - ofFirst)) };
    begun.push(ofFirst);
    if (left.first < 1e-6 && left.others < 1e-6) return (step * STEP_MS) / 1_000;
  }
}

export interface FairOptions {
  readonly processes: number;
  /** How many runs the first customer has. Each of the other 99 has one, made afterwards. */
  readonly many: number;
  readonly work: number;
  /** How many runs of the first customer may begin before those of the others. */
  readonly until: number;
}

/** How many runs of a customer with many began before the last of 99 customers with one each. */
export function tryFairness({ processes, many, work, until }: FairOptions): Promise<number> {
  return onServer({ atWork: 5, work }, async ({ pool, create, start }) => {
    await create(Array.from({ length: many }, () => "many"));
    await create(Array.from({ length: 99 }, (_, n) => `few ${n}`));
    const workers = Array.from({ length: processes }, start);
    const counted =
      "SELECT count(*) FILTER (WHERE tenant = 'many')::int AS many, count(*) FILTER (WHERE tenant <> 'many')::int AS few FROM work";
    for (let few = 0, before = 0; few < 99 && before < until; ) {
      await wait(100);
      const { rows } = await pool.query<{ many: number; few: number }>(counted);
      [few, before] = [rows[0]?.few ?? 0, rows[0]?.many ?? 0];
    }
    for (const worker of workers) await worker.kill();
    const { rows } = await pool.query<{ before: number; few: number }>(
      `SELECT count(*) FILTER (WHERE tenant = 'many' AND n < (SELECT max(n) FROM work WHERE tenant <> 'many'))::int AS before,
        count(*) FILTER (WHERE tenant <> 'many')::int AS few FROM work`,
    );
    const [found] = rows;
    return found?.few === 99 ? found.before : Number.POSITIVE_INFINITY;
  });
}
