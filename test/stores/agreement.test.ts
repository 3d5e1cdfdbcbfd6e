import { test } from "vitest";
import { SqliteStore } from "../../src/stores/sqlite.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import { expectAgreement } from "../harness/store-agreement.ts";

test("both stores give the same answers, whatever is done to them", async () => {
  await expectAgreement(({ clock }) => {
    const store = new SqliteStore(openDatabase(":memory:"), { closeDatabase: true, clock });
    return { store, close: () => store.close() };
  }, 60);
});
