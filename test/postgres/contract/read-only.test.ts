import { AgentRuntime } from "cadenza";
import { openPostgresStore } from "cadenza/postgres";
import type { OpenStores } from "cadenza/testing";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { create, runKey } from "../../../src/stores/contract/samples.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, openTwice } from "../../harness/postgres-stores.ts";
import { contractOfReads, readThrough, writesThatWereMade } from "../../harness/read-only.ts";
import { oneOf } from "../../harness/share.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`a PostgresStore that is read-only${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  /** Its transactions may not write. */
  let reading: pg.Pool;
  beforeAll(() => {
    pool = newPool(18);
    reading = newPool(18, { options: "-c default_transaction_read_only=on" });
  });
  afterAll(async () => {
    await pool.end();
    await reading.end();
  });

  describe("keeps the store contract for reads", () => {
    let open: OpenStores;
    beforeAll(() => {
      open = openTwice(pool, {}, undefined, async (options) =>
        readThrough(
          await openPostgresStore(options),
          await openPostgresStore({ ...options, pool: reading, readOnly: true }),
        ),
      );
    });
    for (const { name, run } of oneOf(3, contractOfReads)) it(name, () => run(open));
  });

  it("refuses every write, and is no store for a runtime", async () => {
    const schema = newSchema();
    const live = await openPostgresStore({ pool, schema, hints: false });
    await create(live, 1);
    const store = await openPostgresStore({ pool, schema, readOnly: true });

    expect(await writesThatWereMade(store)).toEqual([]);
    expect(store.watch).toBeUndefined();
    expect((await store.find(runKey(1)))?.position).toBe(1);
    expect(() => new AgentRuntime({ store })).toThrow("opened with `readOnly`");
  });

  it("makes and upgrades no schema", async () => {
    const schema = newSchema();
    const opening = () => openPostgresStore({ pool, schema, readOnly: true });
    await expect(opening()).rejects.toThrow("There is no store of cadenza in the schema");
    const { rows } = await pool.query("SELECT to_regnamespace($1) AS found", [quoteName(schema)]);
    expect(rows).toEqual([{ found: null }]);

    await (await openPostgresStore({ pool, schema, hints: false })).close();
    await pool.query(`DELETE FROM ${quoteName(schema)}.migrations WHERE number > 1`);
    await expect(opening()).rejects.toThrow("has version 1, and this version of cadenza reads 23: an older one");
    await pool.query(`INSERT INTO ${quoteName(schema)}.migrations (number) VALUES (99)`);
    await expect(opening()).rejects.toThrow("a newer one has written it");
  });
});
