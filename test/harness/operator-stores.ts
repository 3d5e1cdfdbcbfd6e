import { join } from "node:path";
import { MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { durable } from "cadenza/store";
import type { Open } from "./operator-cases.ts";
import { makeEmptyFile, openDatabase, temporaryFolder } from "./sqlite-files.ts";
import { persistent } from "./store-proxy.ts";

function withMemory(act: (open: Open) => Promise<void>): Promise<void> {
  let store: Store | undefined;
  return act((clock) => {
    store ??= durable(persistent(new MemoryStore({ clock })));
    return store;
  });
}

async function withSqlite(act: (open: Open) => Promise<void>): Promise<void> {
  const folder = temporaryFolder();
  const path = join(folder.path, "runs.db");
  makeEmptyFile(path);
  try {
    await act((clock) => new SqliteStore(openDatabase(path), { clock, closeDatabase: true }));
  } finally {
    folder.remove();
  }
}

/** The stores that need no server, on which the cases of operators run. Each test has data of its own. */
export const operatorStores = [
  ["in memory", withMemory],
  ["on SQLite", withSqlite],
] as const;
