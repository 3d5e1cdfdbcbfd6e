import { storeContract } from "cadenza/testing";
import { describe, it } from "vitest";
import { missingServer, newPool, openTwice } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);

/** Where the server refuses transactions that met, statements are sent again. */
describe.skipIf(missing !== undefined)("PostgresStore with serializable transactions keeps the store contract", () => {
  const concurrent = storeContract.filter(({ name }) => name.includes("concurrent"));
  it.each(concurrent)("$name", async ({ run }) => {
    const pool = newPool(18, { options: "-c default_transaction_isolation=serializable" });
    await run(openTwice(pool)).finally(() => pool.end());
  });
});
