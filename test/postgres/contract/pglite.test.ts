import { randomUUID } from "node:crypto";
import { PGlite } from "@electric-sql/pglite";
import type { PostgresPool } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { OpenStores } from "cadenza/testing";
import { storeContract } from "cadenza/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ForeignMethods } from "../../harness/foreign-methods.ts";
import { newSchema, openTwice } from "../../harness/postgres-stores.ts";
import { oneOf } from "../../harness/share.ts";

/** How long the start may take on a busy machine. */
const START_MS = 60_000;

/** PostgreSQL in this process, with one connection. A server gets the same SQL, and keeps the whole contract. */
describe("PostgresStore on PGlite keeps the store contract", () => {
  let db: PGlite;
  let open: OpenStores;
  beforeAll(async () => {
    db = await PGlite.create();
    open = openTwice(poolOf(db));
  }, START_MS);
  afterAll(() => db.close());

  for (const { name, run } of oneOf(3, storeContract)) it(name, () => run(open));

  it("it is polled, since it cannot listen", async () => {
    const warned: unknown[] = [];
    const logger = { debug: () => {}, info: () => {}, warn: (text: string) => warned.push(text), error: () => {} };
    const store = await openPostgresStore({ pool: poolOf(db), schema: newSchema(), logger });
    expect(store.watch).toBeUndefined();
    expect(warned).toEqual(["Hints of other processes do not arrive here. The store is polled instead."]);
  });

  it("its time is the server's, with a fraction", async () => {
    const before = Date.now();
    const store = await openPostgresStore({ pool: poolOf(db), schema: newSchema() });
    const time = await store.time();
    expect(time).toBeGreaterThan(before);
    expect(time).toBeLessThan(Date.now() + 1);
  });

  it("a pool is called by no method but those of its interface", async () => {
    const foreign = new ForeignMethods();
    const pool = foreign.add("the pool", poolOf(db), ["connect", "on", "off"]);
    const store = await openPostgresStore({ pool, schema: newSchema() });
    expect(await store.find({ tenant: "", run_id: randomUUID() })).toBeUndefined();
    await store.close();
    await store.close();
    expect(foreign.called).toEqual([]);
  });

  it("a single connection, whose `connect` lends none, is refused by name", async () => {
    const client: PostgresPool = { ...poolOf(db), connect: () => Promise.resolve(undefined as never) };
    const opening = openPostgresStore({ pool: client, schema: newSchema() });
    await expect(opening).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(opening).rejects.toThrow("pool: expected a pool whose `connect()` lends connections");
  });
});

function poolOf(db: PGlite): PostgresPool {
  return { query: (text, values) => db.query(text, values) };
}
