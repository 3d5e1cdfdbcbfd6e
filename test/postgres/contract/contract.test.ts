import type { OpenStores } from "cadenza/testing";
import { storeContract } from "cadenza/testing";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { makeTogether, missingServer, newPool, openTwice } from "../../harness/postgres-stores.ts";
import { oneOf } from "../../harness/share.ts";

describe.each([15, 18] as const)("PostgresStore on PostgreSQL %i keeps the store contract", (major) => {
  const missing = missingServer(major);
  let pool: pg.Pool;
  let open: OpenStores;
  beforeAll(() => {
    if (missing !== undefined) return;
    pool = newPool(major);
    // On the older one writes are made together that are made in turn on the newer one.
    open = openTwice(pool, {}, major === 15 ? (schema) => makeTogether(pool, schema) : undefined);
  });
  afterAll(() => pool?.end());

  it.runIf(process.env["CI"] !== undefined)("in CI there is a server", () => {
    expect(missing).toBeUndefined();
  });

  it("the checks of the feed have one to read", async ({ skip }) => {
    if (missing !== undefined) skip(missing);
    const { first, close } = await open({ clock: { now: () => 0 }, feed: { keepMs: 1 } });
    expect(await first.readFeed?.({ from: "start", limit: 1 })).toMatchObject({ items: [], more: null });
    await close();
  });

  for (const { name, run } of major === 18 ? storeContract : oneOf(3, storeContract))
    it(name, ({ skip }) => (missing === undefined ? run(open) : skip(missing)));
});
