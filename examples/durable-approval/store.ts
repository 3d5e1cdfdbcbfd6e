import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { getBuiltinModule } from "node:process";
import { openSqliteStore, SqliteStore } from "cadenza/sqlite";
import type { DurabilityOptions, Store } from "cadenza/store";

/** Keeps runs in a file: with Node's own SQLite if this version has it, else with the package `libsql`. */
export async function openStore(path: string, durability?: DurabilityOptions): Promise<Store> {
  mkdirSync(dirname(path), { recursive: true });
  if (getBuiltinModule("node:sqlite") !== undefined) return openSqliteStore(path, { durability });
  const { default: Database } = await import("libsql");
  return new SqliteStore(new Database(path), { closeDatabase: true, durability });
}
