import type { PostgresStoreOptions } from "cadenza/postgres";
import { openPostgresStore, postgresSchemaSql } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { append, create, ended, over, runKey, take, waiting, write } from "../../../src/stores/contract/samples.ts";
import { counterNames, quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(15);

describe.skipIf(missing !== undefined)(`the schema of a PostgresStore${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(15, { max: 10 });
  });
  afterAll(() => pool.end());

  const open = (schema: string, options: Partial<PostgresStoreOptions> = {}) =>
    openPostgresStore({ pool, schema, hints: false, ...options });

  it("is created once, by eight processes at once", async () => {
    const schema = newSchema();
    const stores = await Promise.all(Array.from({ length: 8 }, () => open(schema)));
    await Promise.all(stores.map((store, n) => create(store, n)));

    const { rows } = await pool.query(`SELECT number FROM ${quoteName(schema)}.migrations`);
    expect(rows).toEqual(Array.from({ length: 23 }, (_, n) => ({ number: n + 1 })));
    expect(await stores[0]?.list({ tenant: "acme", limit: 9, offset: 0 })).toHaveLength(8);
  });

  it("has no function whose plans older servers would compile at each call", async () => {
    const schema = newSchema();
    await (await open(schema)).close();
    const { rows } = await pool.query(
      `SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace($1) AND proconfig::text LIKE '%=off%'
       AND NOT 'jit=off' = ANY (proconfig)`,
      [quoteName(schema)],
    );
    expect(rows).toEqual([]);
  });

  it("is created by a process that has looked for it before another one made it", async () => {
    const schema = newSchema();
    // After a step that found nothing to do, the server takes all names of the next one from what its connection remembers.
    const warm = newPool(15, { max: 1 });
    const [firstStep = ""] = postgresSchemaSql(newSchema()).split(/^(?=DO \$migration\$)/m);
    await warm.query(firstStep);
    await warm.query(firstStep);
    const other = await pool.connect();
    await other.query("BEGIN");
    await other.query(`SELECT pg_advisory_xact_lock(hashtextextended('cadenza schema ' || $1, 0))`, [schema]);
    const opening = openPostgresStore({ pool: warm, schema, hints: false });
    const waits = "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND strpos(query, $1) > 0";
    while ((await pool.query(waits, [schema])).rowCount === 0);
    await other.query(`CREATE SCHEMA ${quoteName(schema)}`);
    await other.query("COMMIT");
    other.release();

    const store = await opening;
    await create(store, 1);
    await store.close();
    await warm.end();
  });

  it.each([{ code: "42P06" }, { code: "23505", constraint: "pg_namespace_nspname_index" }])(
    "is opened after a step was refused with %o, since another process had made it",
    async (refusal) => {
      const schema = newSchema();
      const refusals = [refusal];
      const refusing = {
        async query(sql: string, values: unknown[]) {
          const refused = sql.includes("DO $migration$") ? refusals.pop() : undefined;
          if (refused === undefined) return pool.query(sql, values);
          await pool.query(`CREATE SCHEMA ${quoteName(schema)}`);
          throw Object.assign(new Error("already exists"), refused);
        },
      };
      const store = await openPostgresStore({ pool: refusing, schema, hints: false });
      await create(store, 1);
      await store.close();
      expect(refusals).toEqual([]);
    },
  );

  it("is created completely or not at all", async () => {
    const schema = newSchema();
    await pool.query(`CREATE SCHEMA ${quoteName(schema)}`);
    await pool.query(`CREATE TABLE ${quoteName(schema)}.counters (other integer)`);
    await expect(open(schema)).rejects.toMatchObject({
      message: "A query failed. (SQLSTATE 42P07)",
      cause: { message: 'relation "counters" already exists' },
    });
    const { rows } = await pool.query("SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace", [
      quoteName(schema),
    ]);
    expect(rows).toEqual([{ relname: "counters" }]);
  });

  it("of a newer version is refused, and not changed", async () => {
    const schema = newSchema();
    await (await open(schema)).close();
    await pool.query(`INSERT INTO ${quoteName(schema)}.migrations (number) VALUES (99)`);

    await expect(open(schema)).rejects.toThrow("has version 99, and this version of cadenza knows 23");
  });

  it("may have any name, on any search path", async () => {
    const quoted = `we"ird 'name' ${newSchema()}`;
    const lost = newPool(15, { options: "-c search_path=pg_catalog" });
    const store = await openPostgresStore({ pool: lost, schema: quoted, hints: false });
    const key = await create(store, 1, { head: waiting(0), slot: { key: "slot", max: 1 } });
    expect(await take(store)).toEqual([key.run_id]);
    await lost.end();
  });

  it("is used by a role that may only read and write it, where an administrator has run the SQL", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await expect(open(schema, { migrate: false })).rejects.toThrow("postgresSchemaSql(");
    await pool.query(postgresSchemaSql(schema));
    await pool.query(postgresSchemaSql(schema));
    const role = quoteName(`role of ${schema}`);
    await pool.query(`CREATE ROLE ${role} LOGIN`);
    await expect(
      openPostgresStore({ pool: newPool(15, { user: `role of ${schema}` }), schema, migrate: false }),
    ).rejects.toThrow("lacks a right");
    await pool.query(`GRANT USAGE ON SCHEMA ${name} TO ${role}`);
    await pool.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${name} TO ${role}`);
    const own = newPool(15, { user: `role of ${schema}` });
    const store = await openPostgresStore({ pool: own, schema, migrate: false });
    await create(store, 1, { head: waiting(0), created: { labels: { a: "1" } } });
    await take(store);
    await append(store, runKey(1), 1, write([ended()], { head: over() }), 2);

    expect(await store.prune({ maxRuns: 0, endedBefore: 0, sessionsBefore: 9 })).toBe(1);
    await store.close();
    await own.end();
  });

  it("is not opened where transactions do not see what was committed while they waited", async () => {
    const isolated = newPool(15, { options: "-c default_transaction_isolation=repeatable\\ read" });
    const opening = openPostgresStore({ pool: isolated, schema: newSchema(), hints: false });
    await expect(opening).rejects.toThrow("default_transaction_isolation = 'repeatable read'");
    await isolated.end();
  });

  it("has a column for every counter", async () => {
    const schema = newSchema();
    await open(schema);
    const { rows } = await pool.query(
      "SELECT column_name AS name FROM information_schema.columns WHERE table_schema = $1 AND table_name = 'counters' ORDER BY ordinal_position",
      [schema],
    );
    expect(rows.map(({ name }) => name)).toEqual(["agent_name", "shard", ...counterNames]);
  });

  it.each<[options: object, said: string]>([
    [{ pool: {} }, "pool: expected an object with `query(text, values)`"],
    [{ schema: "" }, "schema: expected a name of 1 to 63 bytes"],
    [{ schema: "ä".repeat(32) }, "schema: expected a name of 1 to 63 bytes"],
    [{ schema: "a $migration$" }, "schema: expected a name of 1 to 63 bytes, without $"],
    [{ schema: "pg_mine" }, "schema: expected a name of 1 to 63 bytes, without $, that does not begin with pg_"],
    [{ migrate: 1 }, "migrate: expected true or false, received 1"],
    [{ readOnly: 1 }, "readOnly: expected true or false, received 1"],
    [{ hints: "no" }, "hints: expected true or false, received no"],
    [{ feed: { keepMs: "1" } }, "feed: expected { keepMs }"],
    [{ timeoutMs: 0 }, "timeoutMs: expected a positive number below half the lease (5000), received 0"],
    [
      { timeoutMs: "1000" as never },
      "timeoutMs: expected a positive number below half the lease (5000), received 1000",
    ],
    [{ timeoutMs: 5_000 }, "timeoutMs: expected a positive number below half the lease (5000), received 5000"],
    [{ timeoutMs: 900, durability: { leaseMs: 1_000 } }, "below half the lease (500), received 900"],
    [{ durability: { leaseMs: -1 } }, "leaseMs"],
  ])("is not touched with %j", async (options, said) => {
    const schema = newSchema();
    await expect(open(schema, options)).rejects.toThrow(said);
    const { rows } = await pool.query("SELECT to_regnamespace($1) AS found", [quoteName(schema)]);
    expect(rows).toEqual([{ found: null }]);
  });
});
