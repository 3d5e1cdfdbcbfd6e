import { CadenzaError, MemoryStore, AgentRuntime as Runtime } from "cadenza";
import { createAdmin } from "cadenza/admin";
import { durable } from "cadenza/durable";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { describe, expect, test } from "vitest";
import type { Open } from "../harness/operator-cases.ts";
import { operatorCases } from "../harness/operator-cases.ts";
import { openDatabase, withFile } from "../harness/sqlite-files.ts";
import { persistent } from "../harness/store-proxy.ts";

function withMemory(act: (open: Open) => Promise<void>): Promise<void> {
  let store: Store | undefined;
  return act((clock) => {
    store ??= durable(persistent(new MemoryStore({ clock })));
    return store;
  });
}

const withSqlite = (act: (open: Open) => Promise<void>): Promise<void> =>
  withFile((file) => act((clock) => new SqliteStore(openDatabase(file), { clock, closeDatabase: true })));

describe.each([
  ["in memory", withMemory],
  ["on SQLite", withSqlite],
])("%s, an operator", (_name, withStore) => operatorCases(withStore));

test.each<[string, (admin: ReturnType<typeof createAdmin>) => Promise<unknown>, string]>([
  ["an unknown condition", (admin) => admin.runs({ states: [] } as object), "there is no option"],
  ["a cursor of its own", (admin) => admin.runs({ cursor: "abc" }), "cursor"],
  ["an empty page", (admin) => admin.questions({ limit: 0 }), "from 1 to 500"],
  ["the beginning of an id that is too short", (admin) => admin.runs({ id: "ab" }), "at least 4 characters"],
  ["an unknown status", (admin) => admin.runs({ status: "waiting" as "awaiting" }), "status"],
  ["an id that is none", (admin) => admin.log("x"), "expected a UUID"],
])("%s is refused", async (_what, call, message) => {
  const runtime = new Runtime();
  const refused = call(createAdmin(runtime));
  await expect(refused).rejects.toThrow(CadenzaError);
  await expect(refused).rejects.toThrow(message);
  await runtime.close();
});
