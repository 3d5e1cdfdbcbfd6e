import { it } from "vitest";
import { makeTogether, missingServer, newPool, openTwice } from "../../harness/postgres-stores.ts";
import { share } from "../../harness/share.ts";
import { expectAgreement } from "../../harness/store-agreement.ts";

it("PostgresStore gives the same answers as the memory store, whatever is done to them", async ({ skip }) => {
  const missing = missingServer(18);
  if (missing !== undefined) skip(missing);
  const pool = newPool(18);
  const open = openTwice(pool, {}, (schema) => makeTogether(pool, schema));
  await expectAgreement(
    async (options) => {
      const { first, close } = await open(options);
      return { store: first, close };
      // What came to a gate before the clock was set back counts as due there when the clock is where it was.
    },
    share(20, 8),
    "without gates",
  );
  await pool.end();
});
