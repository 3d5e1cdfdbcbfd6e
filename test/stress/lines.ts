import { openPostgresStore } from "cadenza/postgres";
import pg from "pg";
import { append, create, ended, over, runKey, waiting, write } from "../../src/stores/contract/samples.ts";
import { command } from "../harness/commands/commands.ts";
import { quoteName } from "../harness/internals.ts";
import { startServer } from "../harness/postgres-server.ts";

const MAX_RATIO = 3;
const CALLS = 40;
const AT_ONCE = 250;
/** How often a slot is handed on for one median. */
const LAST = 500;
const LEASE_MS = 1_000_000_000;
const hot = { key: "hot", max: 1 };
const echo = { agent_name: "echo", version: null };
const taker = { owner: "taker", agents: [echo], limit: 8, cancelledForMs: 60_000 };

/** What a call of take costs: the median time in milliseconds, and the pages that it reads. */
interface Cost {
  readonly ms: number;
  readonly pages: number;
}

export const trial = command({
  about:
    "Measures on PostgreSQL what take costs while many runs wait for full slots, then after many runs were executed while a transaction stayed open, and what a slot costs that was held as often. It is wrong if a median time is three times that of the beginning.",
  options: {
    waiting: { about: "How many runs wait for slots.", default: 1_000_000 },
    keys: { about: "For how many slots, all of them full.", default: 100_000 },
    executed: { about: "How many runs are executed while the transaction is open.", default: 300_000 },
    held: { about: "How often one slot is handed on meanwhile.", default: 10_000 },
  },
  async run(options, report) {
    const server = await startServer(18, { shared_buffers: "256MB", max_wal_size: "8GB" });
    if ("missing" in server.address) throw new Error(server.address.missing);
    const { host, port } = server.address;
    const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 6 });
    const schema = quoteName("lines");
    let last: readonly [text: string, values: unknown[]] = ["", []];
    const watched = {
      query(text: string, values: unknown[]) {
        if (text.includes("take_v2")) last = [text, values];
        return pool.query(text, values);
      },
    };
    const store = await openPostgresStore({ pool: watched, schema: "lines", hints: false });
    const client = await pool.connect();
    let made = 0;
    const makeDue = (count: number) =>
      Promise.all(Array.from({ length: count }, () => create(store, made++, { head: waiting(Date.now()) })));
    const endAll = async (): Promise<void> => {
      const taken = await store.take({ ...taker, limit: 1_000 });
      await Promise.all(taken.map(({ key }) => append(store, key, 1, write([ended()], { head: over() }), 2)));
    };
    /** The store takes what is due, and the same call is explained for some more runs. */
    const measure = async (what: string, count: number, first?: Cost): Promise<Cost> => {
      const costs: Cost[] = [];
      for (let call = 0; call < CALLS; call++) {
        await endAll();
        await makeDue(count);
        const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${last[0]}`, last[1]);
        const [{ Plan: plan }] = rows[0]["QUERY PLAN"];
        costs.push({ ms: plan["Actual Total Time"], pages: plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] });
      }
      const cost = { ms: median(costs.map(({ ms }) => ms)), pages: median(costs.map(({ pages }) => pages)) };
      const said = `${what}, ${count} due: ${cost.ms.toFixed(2)} ms, ${cost.pages} pages`;
      report.check(first === undefined || cost.ms <= MAX_RATIO * first.ms, said);
      return cost;
    };
    const measureBoth = async (what: string, first?: readonly [Cost, Cost]): Promise<readonly [Cost, Cost]> => [
      await measure(what, 0, first?.[0]),
      await measure(what, 8, first?.[1]),
    ];
    let holder = -1;
    /** A run joins the line of a slot, and the one that holds it ends. Returns the median time of the two writes. */
    const handOn = async (count: number): Promise<number> => {
      const times: number[] = [];
      for (let n = 0; n < count; n++) {
        const began = performance.now();
        const next = made++;
        await create(store, next, { slot: hot, created: { agent_name: "hot" }, head: waiting(Date.now()) });
        if (holder >= 0) await append(store, runKey(holder), 1, write([ended()], { head: over() }));
        holder = next;
        times.push(performance.now() - began);
      }
      return median(times.slice(-LAST));
    };

    await store.renew(taker.owner, LEASE_MS);
    const few = await measureBoth("nothing waits");
    await fill(pool, schema, options.waiting, options.keys);
    await measureBoth(`${options.waiting} runs wait for ${options.keys} slots`, few);
    await handOn(LAST);
    const old = await pool.connect();
    await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await old.query("SELECT 1");
    const before = await measureBoth("a transaction is open");
    const handed = await handOn(LAST);
    for (let done = 0; done < options.executed; done += AT_ONCE) {
      await makeDue(AT_ONCE);
      await endAll();
      report.progress(`${done} runs executed`);
    }
    await measureBoth(`${options.executed} runs were executed`, before);
    const handedLast = await handOn(options.held);
    const said = `a slot is handed on in ${handedLast.toFixed(2)} ms, in the beginning in ${handed.toFixed(2)} ms`;
    report.check(handedLast <= MAX_RATIO * handed, said);
    const held = await store.find(runKey(holder));
    report.check(held?.head.holds_slot === true, "the last run that joined holds the slot");
    await old.query("ROLLBACK");
    old.release();
    client.release();
    await store.close();
    await pool.end();
    await server.stop();
    return `${options.waiting} waiting and ${options.executed} executed runs`;
  },
});

/** Lets runs wait for slots that other runs hold. */
async function fill(pool: pg.Pool, schema: string, runs: number, keys: number): Promise<void> {
  const columns = `tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, owner, due_at,
    holds_slot, takeovers, position, created_at, line, rank`;
  const statements = [
    `INSERT INTO ${schema}.runs (${columns})
      SELECT 'acme', 'waiting ' || n, 'echo', '', n, '=key ' || n % ${keys}, 1, 'created', 1, NULL, n, false, 0, 1, n,
        '=key ' || n % ${keys}, n FROM generate_series(1, ${runs}) n`,
    `INSERT INTO ${schema}.runs (${columns})
      SELECT 'acme', 'holder ' || n, 'echo', '', n, '=key ' || n, 1, 'in-progress', 1, 'taker', 1, true, 0, 1, n,
        NULL, NULL FROM generate_series(0, ${keys - 1}) n`,
    `INSERT INTO ${schema}.slots (key, gen, n, held, first, last)
      SELECT '=key ' || n, 1, 0, 1, 0, ${runs} FROM generate_series(0, ${keys - 1}) n`,
    `INSERT INTO ${schema}.entries SELECT r.id, 0, '{"type":"created"}' || chr(10) FROM ${schema}.runs r
      WHERE r.slot <> ''`,
    ...["runs", "slots", "entries"].map((table) => `VACUUM ANALYZE ${schema}.${table}`),
  ];
  for (const sql of statements) await pool.query(sql);
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)] ?? Number.NaN;
}
