import { SqliteStore } from "cadenza/sqlite";
import { it } from "vitest";
import { openDatabase } from "../harness/sqlite-files.ts";
import { expectAgreement } from "../harness/store-agreement.ts";

it("both stores give the same answers, whatever is done to them", async () => {
  await expectAgreement((options) => {
    const store = new SqliteStore(openDatabase(":memory:"), { closeDatabase: true, ...options });
    return { store, close: () => store.close() };
  }, 60);
});
