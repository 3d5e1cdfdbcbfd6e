import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  ended,
  forget,
  head,
  over,
  parts,
  runId,
  runKey,
  take,
  tryCreate,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { amount } from "../../harness/fuzz.ts";
import { quoteName } from "../../harness/internals.ts";
import { borrowSchema, missingServer, newPool, PATIENT } from "../../harness/postgres-stores.ts";
import { lineComplaints } from "./line-judge.ts";

const missing = missingServer(18);
const START = Date.UTC(2030, 0, 1);
const PER_MS = 1_000;
const a = { key: "a", max: 1 };
const b = { key: "b", max: 1 };
const rated = { key: "r", rate: { count: 3, perMs: PER_MS } };
const holding = head({ holds_slot: true });

describe.skipIf(missing !== undefined)(`several slots and rates on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let name: string;
  let schema: string;
  let now: number;
  let stores: PostgresStore[];
  let store: PostgresStore;
  let other: PostgresStore;

  const open = async (): Promise<PostgresStore> => {
    const opened = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock: { now: () => now } });
    stores.push(opened);
    return opened;
  };
  const queued = () => waiting(now, { status: "created" });
  const end = (n: number, epoch = 1) =>
    append(store, runKey(n), 1, write([ended()], { head: over(now, { epoch: epoch + 1 }) }), epoch);
  /** Holds the lock of a key until the returned function is called. */
  const lock = async (key: string): Promise<() => Promise<void>> => {
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query(`SELECT pg_advisory_xact_lock(${schema}.slot_lock_v1($1))`, [`=${key}`]);
    return async () => {
      await client.query("ROLLBACK");
      client.release();
    };
  };
  const counted = async (sql: string): Promise<number> => Number((await pool.query(sql)).rows[0].count);

  beforeAll(() => {
    pool = newPool(18, { max: 12 });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    name = borrowSchema(pool);
    schema = quoteName(name);
    now = START;
    stores = [];
    store = await open();
    other = await open();
    await store.renew("owner-1", 1_000_000_000);
  });
  afterEach(async () => {
    expect(await lineComplaints(pool, schema)).toEqual([]);
    for (const one of stores) await one.close();
  });

  it("a free permit whose first needs a key that another transaction has is given by the next take", async () => {
    await create(store, 1, { slots: [a], head: holding });
    await create(store, 2, { slots: [a, b], head: queued() });
    const unlock = await lock("b");
    await end(1);
    expect([await take(store), await lineComplaints(pool, schema)]).toEqual([[], []]);
    await unlock();
    expect(await take(store)).toEqual([runId(2)]);
  });

  it("a run whose time has come while a key of its is locked is taken by a later call", async () => {
    await create(store, 1, { slots: [a, b], head: waiting(now + 5) });
    now += 5;
    const unlock = await lock("b");
    expect(await take(store)).toEqual([]);
    await unlock();
    expect(await take(store)).toEqual([runId(1)]);
  });

  it("runs that move from one line to another as that is freed are not forgotten", async () => {
    for (let round = 0; round < amount(100, 25); round++) {
      const from = 10 * round;
      const [one, two] = [
        { key: `a ${round}`, max: 1 },
        { key: `b ${round}`, max: 1 },
      ];
      await create(store, from, { slots: [one], head: holding });
      await create(store, from + 1, { slots: [two], head: holding });
      await create(store, from + 2, { slots: [one, two], head: queued() });
      await create(store, from + 3, { slots: [one, two], head: queued(), priority: round % 2 });
      await Promise.all([
        end(from),
        append(other, runKey(from + 1), 1, write([ended()], { head: over() })),
        create(other, from + 4, { slots: [two], head: queued() }),
      ]);
      expect(await lineComplaints(pool, schema)).toEqual([]);
      const taken = new Set<string>();
      for (let calls = 0; taken.size < 3 && calls < 9; calls++)
        for (const id of await take(calls % 2 === 0 ? store : other, { limit: 1 })) {
          taken.add(id);
          await end(Number(id.slice(-6)), 2);
        }
      expect([...taken].toSorted()).toEqual([2, 3, 4].map((n) => runId(from + n)));
    }
  });

  it("creations into the last permits of two keys, in other orders, do not wait for each other", async () => {
    const numbers = Array.from({ length: 40 }, (_, n) => n);
    const pair = (n: number) => [
      { key: `a ${n}`, max: 1 },
      { key: `b ${n}`, max: 1 },
    ];
    const answers = await Promise.all([
      ...numbers.map((n) => tryCreate(store, n, { slots: pair(n), head: holding })),
      ...numbers.toReversed().map((n) => tryCreate(other, 100 + n, { slots: pair(n), head: holding })),
    ]);
    expect(answers.filter((answer) => answer === undefined)).toHaveLength(numbers.length);
  });

  it("two takes at the time of a rate give no more than it allows", async () => {
    for (let n = 0; n < 12; n++) await create(store, n, { slots: [rated], head: queued() });
    const order: string[] = [];
    for (let round = 0; round < 4; round++) {
      const given = (await Promise.all([store, other, store].map((one) => take(one)))).flat();
      given.push(...(await take(store)));
      expect(given).toHaveLength(3);
      order.push(...given);
      now += PER_MS - 1;
      expect(await take(other)).toEqual([]);
      now += 1;
    }
    expect(order.toSorted()).toEqual(Array.from({ length: 12 }, (_, n) => runId(n)));
  });

  it("a run that is cancelled or ended in a line lets the next one in, with what it needs", async () => {
    await create(store, 1, { slots: [a], head: holding });
    await create(store, 2, { slots: [b], head: holding });
    for (const n of [3, 4]) await create(store, n, { slots: [a, b], head: queued() });
    await create(store, 5, { slots: [a], head: queued() });
    await end(1);
    expect(await take(store)).toEqual([runId(5)]);
    await store.post(runKey(3), { entries: parts("c"), status: "cancelling", due: "look" });
    await end(4);
    expect(await take(store)).toEqual([runId(3)]);
    await create(store, 6, { slots: [a, b], head: queued() });
    await end(2);
    await end(5, 2);
    expect(await take(store)).toEqual([runId(6)]);
    await append(store, runKey(3), 2, write([ended()], { head: over(now, { epoch: 3 }) }), 2);
    await end(6, 2);
    expect(await store.prune(forget)).toBe(6);
    expect(await counted(`SELECT count(*) FROM ${schema}.slots`)).toBe(0);
  });

  it("a rate keeps no more times than its count, and none once they count no more", async () => {
    const grants = () => counted(`SELECT count(*) FROM ${schema}.grants`);
    for (let n = 0; n < 20; n++) {
      await create(store, n, { slots: [rated], head: holding });
      now += PER_MS / 2;
      expect(await grants()).toBe(Math.min(n + 1, 3));
      await end(n);
    }
    now -= PER_MS / 2;
    await store.prune(forget);
    expect(await grants()).toBe(3);
    now += PER_MS;
    await store.prune(forget);
    expect([await grants(), await counted(`SELECT count(*) FROM ${schema}.slots`)]).toEqual([0, 0]);
  });

  it("of many keys of rates only those whose time has come are looked at", async () => {
    for (let n = 0; n < 100; n++) {
      const slots = [{ key: `r ${n}`, rate: { count: 1, perMs: 1_000 + 10 * n } }];
      for (const m of [2 * n, 2 * n + 1]) await create(store, m, { slots, head: queued() });
    }
    const early = Array.from({ length: 100 }, (_, n) => runId(2 * n));
    expect(await take(store, { limit: 500 })).toEqual(early);
    const before = await readOf();
    expect(await take(store)).toEqual([]);
    expect((await readOf()) - before).toBeLessThan(20);
    now += 1_020;
    expect(await take(store)).toEqual([1, 3, 5].map(runId));
  });

  it("where runs need one slot, nothing of it is written", async () => {
    for (const n of [1, 2, 3]) await create(store, n, { slots: [a], head: queued() });
    const { rows } =
      await pool.query(`SELECT (SELECT count(*) FROM ${schema}.grants) AS grants, count(limits) AS limits,
      (SELECT count(given) + count(kept) + count(counts_until) FROM ${schema}.slots) AS slots FROM ${schema}.runs`);
    expect(rows).toEqual([{ grants: "0", limits: "0", slots: "0" }]);
  });

  /** How many entries of the indexes of keys were read. */
  async function readOf(): Promise<number> {
    await Promise.all(Array.from({ length: 12 }, () => pool.query("SELECT pg_stat_force_next_flush()")));
    const { rows } = await pool.query(
      `SELECT sum(idx_tup_read) AS read FROM pg_stat_user_indexes WHERE schemaname = $1 AND relname IN ('slots', 'grants')`,
      [name],
    );
    return Number(rows[0].read);
  }
});
