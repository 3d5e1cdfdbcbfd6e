import { openPostgresStore } from "cadenza/postgres";
import type { FakeClock } from "cadenza/testing";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { create, runKey } from "../../../src/stores/contract/samples.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";
import { stopPostgresTime } from "../../harness/stopped-time.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`leases of a PostgresStore${missing ? `: ${missing}` : ""}`, () => {
  let others: pg.Pool;
  let time: FakeClock;
  beforeAll(() => {
    others = newPool(18);
  });
  afterAll(() => others.end());
  beforeEach(() => {
    time = stopPostgresTime();
  });

  const setUp = async (max: number, hints: boolean) => {
    const schema = newSchema();
    const real = newPool(18, { max, application_name: schema });
    const pool = new HookedPool(real);
    const store = await openPostgresStore({ pool, schema, hints, timeoutMs: 1_000 });
    onTestFinished(async () => {
      await store.close();
      await real.end();
    });
    return { schema, real, pool, store };
  };
  const untilOf = async (schema: string, owner: string): Promise<number> => {
    const sql = `SELECT until FROM ${quoteName(schema)}.leases WHERE owner = $1`;
    return Number((await others.query(sql, [owner])).rows[0]?.until);
  };

  it("are renewed while all other connections of the pool are in use", async () => {
    const { schema, real, store } = await setUp(4, false);
    await store.renew("owner-1", 10_000);
    await store.renew("owner-1", 10_000);
    const before = await untilOf(schema, "owner-1");
    const used = await Promise.all([1, 2, 3].map(() => real.connect()));
    const refused = expect(store.find(runKey(1))).rejects.toThrow("no answer within 1000 ms");
    await time.advance(1_000);
    await refused;
    await store.time();
    await store.renew("owner-1", 20_000);

    expect(await untilOf(schema, "owner-1")).toBeGreaterThan(before + 5_000);
    expect(real.waitingCount).toBeGreaterThan(0);
    for (const client of used) client.release();
  });

  it.each([
    [1, false],
    [2, false],
    [3, true],
  ])("keep no connection of a pool of %d with hints: %s", async (max, hints) => {
    const { real, store } = await setUp(max, hints);
    const unwatch = store.watch?.(() => {});
    await store.renew("owner-1", 10_000);
    await Promise.all([store.renew("owner-1", 10_000), store.time(), create(store, 1), store.find(runKey(2))]);
    await expect.poll(() => real.totalCount - real.idleCount).toBe(hints ? 1 : 0);
    unwatch?.();
  });

  it("of several stores leave two connections of their pool for other statements", async () => {
    const { pool, real } = await setUp(5, false);
    const open = () => openPostgresStore({ pool, schema: newSchema(), hints: false, timeoutMs: 1_000 });
    const stores = await Promise.all([open(), open(), open(), open()]);
    for (const store of stores) {
      await store.renew("owner-1", 10_000);
      await store.renew("owner-1", 10_000);
    }
    expect(real.totalCount - real.idleCount).toBe(3);
    for (const store of stores) await store.close();
    expect(real.idleCount).toBe(real.totalCount);
  });

  it("are renewed over another connection after one that gave no answer", async () => {
    const { schema, pool, store } = await setUp(5, false);
    await store.renew("owner-1", 10_000);
    await store.renew("owner-1", 10_000);
    pool.hook = () => new Promise(() => {});
    const refused = expect(store.renew("owner-1", 2_000)).rejects.toThrow("no answer within 1000 ms");
    await time.advance(1_000);
    await refused;
    pool.hook = (run) => run();
    await store.renew("owner-1", 60_000);
    expect(await untilOf(schema, "owner-1")).toBeGreaterThan(Date.now() + 30_000);
  });

  it("survive the end of their connection", async () => {
    const { schema, store, real } = await setUp(5, false);
    await store.renew("owner-1", 10_000);
    await store.renew("owner-1", 10_000);
    await others.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%write_v1%' AND application_name = $1",
      [schema],
    );
    while (real.totalCount > real.idleCount) await new Promise((resolve) => setTimeout(resolve, 5));
    await store.renew("owner-1", 60_000);
    expect(await untilOf(schema, "owner-1")).toBeGreaterThan(Date.now() + 30_000);
  });

  it("end with the owner, also when a renewal is under way", async () => {
    const { schema, store } = await setUp(5, false);
    await store.renew("owner-1", 10_000);
    await Promise.all([store.renew("owner-1", 10_000), store.release("owner-1")]);
    expect(await untilOf(schema, "owner-1")).toBeNaN();
  });
});
