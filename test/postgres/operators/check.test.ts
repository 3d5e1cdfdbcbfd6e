import { openPostgresStore } from "cadenza/postgres";
import { expect, it, onTestFinished } from "vitest";
import { beginRuns, blockedOn, namedIn } from "../../harness/checked-runs.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const RUNS = 100;

it.skipIf(missing !== undefined)(
  "a check by a role that may only read names the runs that a deployment blocks",
  async () => {
    const schema = newSchema();
    const pool = newPool(18);
    const name = quoteName(schema);
    const reader = `reader of ${schema}`;
    onTestFinished(() => pool.end());
    await beginRuns(await openPostgresStore({ pool, schema }), RUNS);
    const before = await everything();
    await pool.query(`CREATE ROLE ${quoteName(reader)} LOGIN`);
    await pool.query(`GRANT USAGE ON SCHEMA ${name} TO ${quoteName(reader)}`);
    await pool.query(`GRANT SELECT ON ALL TABLES IN SCHEMA ${name} TO ${quoteName(reader)}`);
    const own = newPool(18, { user: reader, options: "-c default_transaction_read_only=on" });
    onTestFinished(() => own.end());
    const store = await openPostgresStore({ pool: own, schema, readOnly: true });
    const { ids } = await namedIn(store);
    await store.close();
    expect(await everything()).toBe(before);
    expect(await blockedOn(await openPostgresStore({ pool, schema }))).toEqual(ids);
    expect(ids.length).toBe(RUNS * 0.3);

    /** All rows of all tables. */
    async function everything(): Promise<string> {
      const { rows } = await pool.query<{ tablename: string }>(
        "SELECT tablename FROM pg_tables WHERE schemaname = $1",
        [schema],
      );
      const tables = rows.map(({ tablename }) => tablename).toSorted();
      const read = tables.map(async (table) => {
        const all = await pool.query<{ row: string }>(
          `SELECT t::text AS row FROM ${name}.${quoteName(table)} t ORDER BY 1`,
        );
        return [table, ...all.rows.map(({ row }) => row)].join("\n");
      });
      return (await Promise.all(read)).join("\n");
    }
  },
);
