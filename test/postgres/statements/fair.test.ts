import type { PostgresPool, PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { StoredRun } from "cadenza/store";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  ended,
  head,
  over,
  parts,
  runId,
  runKey,
  take,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { amount, LONG_MS, seededRandom } from "../../harness/fuzz.ts";
import { noting, TELLS_DEADLOCKS } from "../../harness/hooked-pool.ts";
import { MOST_THROUGH, quoteName } from "../../harness/internals.ts";
import { borrowSchema, missingServer, newPool, PATIENT } from "../../harness/postgres-stores.ts";
import { lineComplaints } from "./line-judge.ts";

const missing = missingServer(18);
const START = Date.UTC(2030, 0, 1);
const one = { key: "one", max: 1 };
const holding = head({ holds_slot: true });

describe.skipIf(missing !== undefined)(`gates of customers on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let name: string;
  let schema: string;
  let now: number;
  let stores: PostgresStore[];
  let store: PostgresStore;

  beforeAll(() => {
    pool = newPool(18, { max: 12, options: TELLS_DEADLOCKS });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    name = borrowSchema(pool);
    schema = quoteName(name);
    now = START;
    stores = [];
    store = await open({ now: () => now });
  });
  afterEach(async () => {
    expect(await lineComplaints(pool, schema)).toEqual([]);
    for (const one of stores) await one.close();
  });

  const open = async (clock?: { now(): number }, its: PostgresPool = pool): Promise<PostgresStore> => {
    const opened = await openPostgresStore({ pool: its, schema: name, hints: false, clock, ...PATIENT });
    stores.push(opened);
    return opened;
  };
  const range = (count: number, from = 0) => Array.from({ length: count }, (_, n) => from + n);
  const crowd = (numbers: readonly number[], changes: object = {}) =>
    Promise.all(numbers.map((n) => create(store, n, { head: waiting(now), gate: "crowd", ...changes })));
  const behind = async (): Promise<number> => {
    const { rows } = await pool.query(`SELECT count(*) AS count FROM ${schema}.runs WHERE line = fair`);
    return Number(rows[0].count);
  };
  const end = async (id: string, epoch = 2): Promise<void> => {
    const key = { tenant: "acme", run_id: id };
    await append(store, key, 1, write([ended()], { head: over(now, { epoch: epoch + 1 }) }), epoch);
  };

  it("of 2,000 runs of one customer few go before 99 others that come later", async () => {
    const others = range(99, 5_000);
    for (let from = 0; from < 2_000; from += 500) await crowd(range(500, from));
    expect(await behind()).toBe(2_000 - MOST_THROUGH);
    now += 1;
    for (const n of others) await create(store, n, { head: waiting(now), gate: `gate ${n}` });
    const order: string[] = [];
    while (others.some((n) => !order.includes(runId(n)))) {
      now += 10;
      order.push(...(await take(store, { limit: 8 })));
    }
    expect(order.length).toBeLessThan(99 + 200);
  });

  it("runs of a higher priority have another gate, and go first", async () => {
    await crowd(range(100));
    await crowd(range(100, 1_000), { priority: 3, gate: "crowd 3" });
    now += 5;
    expect(await take(store, { limit: MOST_THROUGH })).toEqual(range(MOST_THROUGH, 1_000).map(runId));
    const left = 100 - MOST_THROUGH;
    expect(await take(store, { limit: left })).toEqual(range(left, 1_000 + MOST_THROUGH).map(runId));
    expect(await take(store, { limit: 50 })).toEqual(range(50).map(runId));
  });

  it("a run behind a gate waits for its slot once it is through", async () => {
    await store.renew("owner-1", 1_000_000_000);
    await create(store, 900, { slot: one, head: holding });
    await crowd(range(80), { slot: one });
    expect([await behind(), (await store.lines({ limit: 9 })).map(({ waiting }) => waiting)]).toEqual([16, [64]]);
    await append(store, runKey(900), 1, write([ended()], { head: over() }));
    const order: string[] = [];
    for (let n = 0; n < 80; n++) {
      now += 1;
      const [id = ""] = await take(store, { limit: 1 });
      order.push(id);
      await end(id);
      expect(await lineComplaints(pool, schema)).toEqual([]);
    }
    expect(order).toEqual(range(80).map(runId));
  });

  it("a run that goes behind a gate as the last one there passes is found", async () => {
    const client = await pool.connect();
    let its: Pick<pg.PoolClient, "query"> = pool;
    const other = await open({ now: () => now }, { query: (text, values) => its.query(text, values) });
    await crowd(range(MOST_THROUGH + 1));
    expect(await behind()).toBe(1);
    its = client;
    await client.query("BEGIN");
    await create(other, 900, { head: waiting(now), gate: "crowd" });
    now += 1;
    const taken = [...(await take(store, { limit: 500 })), ...(await take(store, { limit: 500 }))];
    expect(taken).toEqual(range(MOST_THROUGH + 1).map(runId));
    await client.query("COMMIT");
    client.release();
    its = pool;
    expect(await behind()).toBe(1);
    expect([...(await take(store, { limit: 1 })), ...(await take(store))]).toEqual([runId(900)]);
  });

  it("a run passes if another transaction is making the first one stay behind, or its rows are locked", async () => {
    const client = await pool.connect();
    await crowd(range(MOST_THROUGH));
    await client.query("BEGIN");
    await client.query(`SELECT pg_advisory_xact_lock(${schema}.slot_lock_v1('~crowd'))`);
    await crowd([900]);
    expect(await behind()).toBe(0);
    await client.query("ROLLBACK");
    await crowd([901, 902]);
    expect(await behind()).toBe(2);
    await client.query("BEGIN");
    await client.query(`SELECT 1 FROM ${schema}.runs WHERE run_id = $1 FOR NO KEY UPDATE`, [runId(901)]);
    now += 1;
    expect((await take(store)).slice(-1)).toEqual([runId(900)]);
    expect(await take(store)).toEqual([runId(902)]);
    await client.query("ROLLBACK");
    client.release();
    expect([...(await take(store)), ...(await take(store))]).toEqual([runId(901)]);
  });

  it(
    "after random calls of several processes no run is lost, and none met a deadlock",
    async () => {
      const random = seededRandom();
      const refused: unknown[] = [];
      const hooked = noting(pool, refused);
      const callers = await Promise.all([1, 2, 3, 4].map(() => open(undefined, hooked)));
      const there: number[] = [];
      let made = 0;
      let most = 0;
      for (let round = 0; round < amount(40, 2); round++) {
        await Promise.all(
          callers.map(async (caller, m) => {
            const owner = `owner ${m}`;
            for (let turn = 0; turn < 5; turn++) {
              const calls = range(random.below(70)).map(async () => {
                const slot = random.chance(0.4) ? { key: `key ${random.below(2)}`, max: 2 } : undefined;
                const its = random.pick([waiting(Date.now()), waiting(Date.now() - 500), waiting(), head({ owner })]);
                const priority = random.pick([0, 0, 2]);
                const gate = random.chance(0.9) ? `gate ${random.below(2)} ${priority}` : undefined;
                // A run that creates another one is there before.
                const wake = there.length > 0 && random.chance(0.2) ? runKey(random.pick(there)) : undefined;
                const n = made++;
                await create(caller, n, { head: its, slot, gate, priority, wake });
                there.push(n);
              });
              await Promise.all(calls);
              const some = await caller.list({ tenant: "acme", limit: 20, offset: random.below(100) });
              const live = some.filter((run): run is StoredRun => run.head.finished_at === null);
              for (const { key, head: its, position } of live) {
                const expected = { epoch: its.epoch, position };
                const kind = random.below(6);
                if (kind === 0)
                  await caller.post(key, { entries: parts("p"), due: random.pick(["work", "look"] as const) });
                else if (kind === 1) await caller.post(key, { entries: parts("c"), status: "cancelling", due: "look" });
                else if (kind === 2)
                  await caller.append(key, expected, write([], { head: waiting(Date.now(), { epoch: its.epoch }) }));
                else if (kind === 3)
                  await caller.append(key, expected, write([ended()], { head: over(5, { epoch: its.epoch + 1 }) }));
                else if (kind === 4) await caller.claim(key, expected, head({ owner, epoch: its.epoch + 1 }));
              }
              await take(caller, { owner, limit: random.below(8), cancelledForMs: 50 });
            }
          }),
        );
        most = Math.max(most, await behind());
        expect(await lineComplaints(pool, schema)).toEqual([]);
      }
      expect(refused).toEqual([]);
      expect(most).toBeGreaterThan(0);
      for (let rounds = 0; ; rounds++) {
        const all = await store.list({ tenant: "acme", limit: 100_000, offset: 0 });
        const left = all.filter(({ head: { finished_at } }) => finished_at === null);
        if (left.length === 0) break;
        expect(rounds).toBeLessThan(1_000);
        const [caller = store] = callers;
        await caller.renew("last", 60_000);
        const taken = await caller.take({ owner: "last", agents: [{ agent_name: "echo", version: null }], limit: 200 });
        const others = left.filter(({ head: { due_at, owner } }) => due_at === null || owner !== null);
        const ends = taken.length > 0 ? taken : others;
        expect(ends.length).toBeGreaterThan(0);
        await Promise.all(
          ends.map(async ({ key }) => {
            const run = await caller.find(key, "with inbox");
            if (run === undefined) return;
            const { epoch } = run.head;
            const last = write([ended()], { head: over(5, { epoch: epoch + 1 }) });
            const takes = run.inbox?.map(({ id }) => id);
            await caller.append(key, { epoch, position: run.position }, { ...last, takes });
          }),
        );
      }
    },
    LONG_MS,
  );

  it("where no run has a gate, no key is written, and none is looked for", async () => {
    await Promise.all(range(200).map((n) => create(store, n, { head: waiting(now) })));
    expect(await take(store, { limit: 500 })).toHaveLength(200);
    const { rows } = await pool.query(
      `SELECT (SELECT count(*) FROM ${schema}.slots) AS slots, count(fair) AS gates FROM ${schema}.runs`,
    );
    expect(rows).toEqual([{ slots: "0", gates: "0" }]);
  });

  it(
    "counts and lets through as few rows as before, while a transaction stays open",
    async () => {
      const old = await pool.connect();
      const executed = 600;
      await crowd(range(MOST_THROUGH + 200));
      await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
      await old.query("SELECT 1");
      const round = async (n: number): Promise<void> => {
        // The clock goes on: what is long past is not counted again.
        now += 1_000;
        await crowd([n]);
        const [id = ""] = await take(store, { limit: 1 });
        await end(id);
      };
      for (let n = 0; n < 64; n++) await round(10_000 + n);
      const before = await readOf(() => round(20_000));
      for (let n = 0; n < executed; n++) await round(30_000 + n);
      const costs: number[] = [];
      for (let n = 0; n < 9; n++) costs.push(await readOf(() => round(40_000 + n)));
      costs.sort((one, other) => one - other);
      expect(costs[4]).toBeLessThan(before + executed / 4);
      await old.query("ROLLBACK");
      old.release();
    },
    LONG_MS,
  );

  /** How many entries of the indexes of gates were read. */
  async function readOf(call: () => Promise<void>): Promise<number> {
    const read = async (): Promise<number> => {
      await Promise.all(range(12).map(() => pool.query("SELECT pg_stat_force_next_flush()")));
      const { rows } = await pool.query(
        `SELECT sum(idx_tup_read) AS read FROM pg_stat_user_indexes
         WHERE schemaname = $1 AND indexrelname IN ('runs_in_line', 'runs_through')`,
        [name],
      );
      return Number(rows[0].read);
    };
    const before = await read();
    await call();
    return (await read()) - before;
  }
});
