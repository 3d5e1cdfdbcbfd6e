import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { openDatabase } from "../sqlite-files.ts";

export function storeOn(file: string): Store {
  return new SqliteStore(openDatabase(file), { synchronous: "NORMAL", closeDatabase: true });
}
