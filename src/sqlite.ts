export type { SqliteDatabase, SqliteStoreOptions } from "./stores/sqlite/database.ts";
export { openSqliteStore, SqliteStore } from "./stores/sqlite/sqlite.ts";
