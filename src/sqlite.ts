export { openSqliteStore, SqliteStore } from "./stores/sqlite.ts";
export type {
  SqliteDatabase,
  SqliteResult,
  SqliteStatement,
  SqliteStoreOptions,
} from "./stores/sqlite-database.ts";
