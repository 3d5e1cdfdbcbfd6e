import type { PostgresPool, PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { append, create, ended, over, waiting, write } from "../../../src/stores/contract/samples.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const START = Date.UTC(2030, 0, 1);
const LONG_MS = 1_000_000_000;
/** How many runs wait, and for how many slots, all of them full. */
const WAITING = 20_000;
const KEYS = 2_000;
const EXECUTED = 3_000;
const taker = { owner: "taker", agents: [{ agent_name: "echo", version: null }], limit: 8, cancelledForMs: 60_000 };

describe.skipIf(missing !== undefined)(`what take reads on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let name: string;
  let schema: string;
  let store: PostgresStore;
  let client: pg.PoolClient;
  let now: number;
  /** The last call of take, as the store has made it. */
  let last: readonly [text: string, values: unknown[]];

  beforeAll(() => {
    pool = newPool(18, { max: 8 });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    name = newSchema();
    schema = quoteName(name);
    now = START;
    store = await open({ now: () => now });
    client = await pool.connect();
    await store.renew(taker.owner, LONG_MS);
  });
  afterEach(async () => {
    client.release(true);
    await store.close();
  });

  it("depends on no run that waits for a slot", async () => {
    await waitInLine(10, 10);
    const few = await buffersOf(takeNothing);
    const fewTaken = await buffersOf(takeSome);
    await waitInLine(WAITING, KEYS);
    expect(await buffersOf(takeNothing)).toBeLessThanOrEqual(2 * few);
    expect(await buffersOf(takeSome)).toBeLessThanOrEqual(2 * fewTaken);
  });

  it("is found by conditions of indexes, whatever was in the tables when it was planned", async () => {
    const notices: string[] = [];
    client.on("notice", ({ message }) => notices.push(String(message)));
    await client.query("LOAD 'auto_explain'");
    for (const setting of ["log_min_duration = 0", "log_nested_statements = on", "log_analyze = on"])
      await client.query(`SET auto_explain.${setting}`);
    await client.query("SET client_min_messages = log");
    await takeNothing();
    await waitInLine(1_000, 100);
    await takeSome();
    await pool.query(`UPDATE ${schema}.slots SET look_at = 0, held = 0 WHERE key = '=key 7'`);
    await client.query(...last);
    const scans = notices.flatMap(
      (notice) => notice.match(/[^\n]*Scan[^\n]*(runs|slots|entries)[^\n]*\n[^\n]*/g) ?? [],
    );
    expect(scans.length).toBeGreaterThan(10);
    const unbounded = scans.filter(
      (scan) => !/Index Cond/.test(scan) && !/using (slots_to_look_at|runs_cancelling)/.test(scan),
    );
    expect(unbounded.filter((scan) => !/never executed/.test(scan))).toEqual([]);
  });

  it("by a clock of the caller, which may leap, is also what was long in being written", async () => {
    await takeNothing();
    await client.query("BEGIN");
    await client.query(`INSERT INTO ${schema}.runs
        (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, due_at, holds_slot, takeovers, position,
          created_at)
      VALUES ('', 'slow', 'echo', '', '', '', 0, 'created', 1, ${now}, false, 0, 1, ${now})`);
    now += 3_600_000;
    await takeNothing();
    await client.query("COMMIT");
    expect(await store.take(taker)).toMatchObject([{ key: { run_id: "slow" } }]);
  });

  it("is not what was executed while a transaction stays open", async () => {
    await store.close();
    store = await open();
    await takeNothing();
    const before = await buffersOf(takeNothing);
    const old = await pool.connect();
    await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await old.query("SELECT 1");
    for (let n = 0; n < EXECUTED; n += 300) {
      const numbers = Array.from({ length: 300 }, (_, m) => n + m);
      await Promise.all(numbers.map((m) => create(store, m, { head: waiting(Date.now() - 100) })));
      const taken = await store.take({ ...taker, limit: 300 });
      expect(taken).toHaveLength(300);
      await Promise.all(taken.map(({ key }) => append(store, key, 1, write([ended()], { head: over() }), 2)));
    }
    // Some calls begin earlier. The others have come by the server's time to where all of that is behind them.
    const executed = Date.now();
    do await takeNothing();
    while (beginning() < executed);
    expect(await buffersOf(async () => undefined)).toBeLessThanOrEqual(3 * before);
    // The first call of another process begins at the front.
    const [text, values] = last;
    last = [text, values.with(1, '[["echo", ""]]')];
    expect(await buffersOf(async () => undefined)).toBeGreaterThan(5 * before);
    await old.query("ROLLBACK");
    old.release();
  });

  function open(clock?: { now(): number }): Promise<PostgresStore> {
    const watched: PostgresPool = {
      query(text, values) {
        if (text.includes("take_v2")) last = [text, values];
        return pool.query(text, values);
      },
    };
    return openPostgresStore({ pool: watched, schema: name, hints: false, ...PATIENT, clock });
  }

  /** Where the last call of take has begun. */
  function beginning(): number {
    const [[, , from]] = JSON.parse(String(last[1][1]));
    return from ?? Number.NEGATIVE_INFINITY;
  }

  async function takeNothing(): Promise<void> {
    expect(await store.take(taker)).toEqual([]);
  }

  let made = 0;
  async function takeSome(): Promise<void> {
    now += 1_000;
    expect(await store.take(taker)).toEqual([]);
    const numbers = Array.from({ length: 8 }, () => 1_000_000 + made++);
    await Promise.all(numbers.map((n) => create(store, n, { head: waiting(now) })));
  }

  /** How many pages the last call of take reads when it is made again, at the least of several times. */
  async function buffersOf(prepare: () => Promise<void>): Promise<number> {
    const counts: number[] = [];
    for (let n = 0; n < 9; n++) {
      await prepare();
      const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${last[0]}`, last[1]);
      const [{ Plan: plan }] = rows[0]["QUERY PLAN"];
      counts.push(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]);
    }
    return Math.min(...counts);
  }

  /** Lets runs wait for slots that other runs hold. */
  async function waitInLine(runs: number, keys: number): Promise<void> {
    const columns = `tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, owner, due_at,
      holds_slot, takeovers, position, created_at, line, rank`;
    await pool.query(`DELETE FROM ${schema}.runs; DELETE FROM ${schema}.slots; DELETE FROM ${schema}.entries`);
    await pool.query(`INSERT INTO ${schema}.runs (${columns})
      SELECT 'acme', 'waiting ' || n, 'echo', '', n, '=key ' || n % ${keys}, 1, 'created', 1, NULL, n, false, 0, 1, n,
        '=key ' || n % ${keys}, n FROM generate_series(1, ${runs}) n`);
    await pool.query(`INSERT INTO ${schema}.runs (${columns})
      SELECT 'acme', 'holder ' || n, 'echo', '', n, '=key ' || n, 1, 'in-progress', 1, 'taker', 1, true, 0, 1, n,
        NULL, NULL FROM generate_series(0, ${keys - 1}) n`);
    await pool.query(`INSERT INTO ${schema}.slots (key, gen, n, held, first, last)
      SELECT '=key ' || n, 1, 0, 1, 0, ${runs} FROM generate_series(0, ${keys - 1}) n`);
    await pool.query(
      `INSERT INTO ${schema}.entries SELECT r.id, 0, '{"type":"created"}' || chr(10) FROM ${schema}.runs r`,
    );
    for (const table of ["runs", "slots", "entries"]) await pool.query(`VACUUM ANALYZE ${schema}.${table}`);
  }
});
