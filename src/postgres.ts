export type { PostgresPool, PostgresStoreOptions } from "./stores/postgres/options.ts";
export { openPostgresStore, PostgresStore } from "./stores/postgres/postgres.ts";
export { postgresSchemaSql } from "./stores/postgres/schema.ts";
