import { SqliteStore } from "cadenza/sqlite";
import { it } from "vitest";
import { share } from "../harness/share.ts";
import { complaintsOf } from "../harness/slot-judge.ts";
import { openDatabase } from "../harness/sqlite-files.ts";
import { expectAgreement } from "../harness/store-agreement.ts";

it("both stores give the same answers, whatever is done to them", async () => {
  await expectAgreement(
    (options) => {
      const db = openDatabase(":memory:");
      const store = new SqliteStore(db, { closeDatabase: true, ...options });
      return { store, complaints: () => complaintsOf(db), close: () => store.close() };
    },
    share(60, 20),
  );
});
