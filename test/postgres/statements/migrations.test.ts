import type { PostgresStoreOptions } from "cadenza/postgres";
import { openPostgresStore, postgresSchemaSql } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { create, createEnded, forget, keep, runKey } from "../../../src/stores/contract/samples.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { postgresClock, quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";
import { stopPostgresTime } from "../../harness/stopped-time.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`upgrades and deletions of many runs${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18, { max: 10 });
  });
  afterAll(() => pool.end());

  const open = (schema: string, options: Partial<PostgresStoreOptions> = {}) =>
    openPostgresStore({ pool, schema, hints: false, ...PATIENT, ...options });

  /** A schema that lacks the last step. */
  const older = async () => {
    const schema = newSchema();
    const steps = postgresSchemaSql(schema).split(/^(?=DO \$migration\$)/m);
    await pool.query(steps.slice(0, -1).join(""));
    return schema;
  };

  it("a step takes as long as it takes, whatever the deadline of calls is", async () => {
    const schema = await older();
    const hooked = new HookedPool(pool);
    const time = stopPostgresTime();
    let slept = 0;
    hooked.hook = async (run, sql) => {
      const result = await run();
      if (!sql.includes("DO $migration$")) return result;
      slept += 1;
      await time.advance(700);
      return result;
    };
    const store = await openPostgresStore({ pool: hooked, schema, hints: false, timeoutMs: 400 });
    expect(slept).toBe(1);
    await create(store, 1);
    await store.close();
  });

  it("each step is a statement of its own, and the printed SQL has all of them", async () => {
    const statements = new HookedPool(pool);
    const schema = newSchema();
    await (await openPostgresStore({ pool: statements, schema, hints: false })).close();
    const steps = statements.statements.filter((sql) => sql.includes("DO $migration$"));
    expect(steps).toHaveLength(postgresSchemaSql(schema).split("DO $migration$").length - 1);
    const printed = newSchema();
    await pool.query(postgresSchemaSql(printed));
    await (await open(printed, { migrate: false })).close();
  });

  it("a step that never gets its table is given up, and the error names who uses it", async () => {
    const schema = newSchema();
    await (await open(schema)).close();
    const hooked = new HookedPool(pool);
    let tries = 0;
    hooked.hook = (run, sql) => {
      if (!sql.includes("DO $migration$")) return run();
      tries += 1;
      return Promise.reject(Object.assign(new Error("planted"), { code: "55P03" }));
    };
    await pool.query(`DELETE FROM ${quoteName(schema)}.migrations WHERE number = 23`);
    const user = newPool(18, { application_name: "a report" });
    const locker = await user.connect();
    await locker.query("BEGIN");
    await locker.query(`SELECT 1 FROM ${quoteName(schema)}.runs`);
    // The pauses between the tries take no time here.
    const pauses: number[] = [];
    const { setTimeout } = postgresClock;
    const pausing = vi.spyOn(postgresClock, "setTimeout").mockImplementation((callback, delayMs) => {
      if (delayMs >= 1_000) return setTimeout(callback, delayMs);
      pauses.push(delayMs);
      return setTimeout(callback, 0);
    });
    onTestFinished(() => pausing.mockRestore());
    await expect(openPostgresStore({ pool: hooked, schema, hints: false })).rejects.toThrow(
      /step 23 needs a table that other transactions use.* \d+ \(postgres, a report, idle in transaction, since /,
    );
    expect(tries).toBe(100);
    expect(pauses).toEqual(Array(99).fill(200));
    await locker.query("ROLLBACK");
    locker.release();
    await user.end();
  });

  it("ended runs beyond a number are found once for each deletion, and deleted in chunks", async () => {
    const schema = newSchema();
    const hooked = new HookedPool(pool);
    const store = await openPostgresStore({ pool: hooked, schema, hints: false });
    const numbers = Array.from({ length: 1_500 }, (_, n) => n);
    await Promise.all(numbers.map((n) => createEnded(store, n, n + 1)));
    hooked.statements.length = 0;

    expect(await store.prune({ ...keep, maxRuns: 300 })).toBe(1_200);
    // The runs are counted, and the last that is too many is found from the runs that stay.
    const sent = (text: string) => hooked.statements.filter((sql) => sql.includes(text)).length;
    expect([sent("row_number()"), sent("LIMIT 1 OFFSET")]).toEqual([1, 1]);
    expect(sent("remove_runs_v1")).toBeLessThan(50);
    const left = await store.list({ tenant: "acme", limit: 2_000, offset: 0 });
    expect(left).toHaveLength(300);
    expect(await store.find(runKey(1_199))).toBeUndefined();
    expect(await store.find(runKey(1_200))).toBeDefined();
    expect(await store.prune({ ...keep, maxRuns: 300, endedBefore: 1_251 })).toBe(50);
    expect(await store.prune(forget)).toBe(250);
    await store.close();
  });
});
