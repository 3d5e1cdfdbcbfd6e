import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { HookedPool } from "../hooked-pool.ts";
import type { Listening } from "../outages/wire.ts";

/** What the same runs cost, for each of them. */
export interface FeedCost {
  readonly feed: boolean;
  readonly statements: number;
  /** Of the server's write-ahead log. */
  readonly bytes: number;
}

const RUNS = 400;
const ROUNDS = 8;

/** Runs with three steps and one question, one after the other, of a web process and a worker, without and with a feed, in turns. */
export async function feedCosts({ host, port }: Listening): Promise<readonly FeedCost[]> {
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 4 });
  const costs: FeedCost[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const hooked = new HookedPool(pool);
    const feed = round % 2 === 1 && { keepMs: 86_400_000 };
    const open = () => openPostgresStore({ pool: hooked, schema: `costs_${round}`, feed });
    const web = new AgentRuntime({ store: await open(), work: false }).declare({ name: "asker", durable: true });
    const worker = new AgentRuntime({ store: await open() });
    worker.register("asker", { durable: true }, async (_input, { ask, step }) => {
      for (let n = 0; n < 3; n++) await step("work", () => n);
      await ask("Well?");
    });
    const walOf = async (): Promise<number> => {
      const { rows } = await pool.query("SELECT pg_current_wal_insert_lsn() - '0/0' AS bytes");
      return Number(rows[0]?.bytes);
    };
    const [before, statements] = [await walOf(), hooked.statements.length];
    for (let run = 0; run < RUNS; run++) {
      const { run_id } = await web.createRun({ agent_name: "asker", input: "" });
      await web.resume({ run_id, await_resume: { ok: true } });
    }
    const bytes = Math.round(((await walOf()) - before) / RUNS);
    const sent = hooked.statements.slice(statements).filter((sql) => !/NOTIFY/i.test(sql)).length;
    costs.push({ feed: feed !== false, statements: sent / RUNS, bytes });
    await Promise.all([web.close(), worker.close()]);
  }
  await pool.end();
  return costs;
}
