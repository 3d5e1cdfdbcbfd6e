export { openPostgresStore, PostgresStore } from "./stores/postgres.ts";
export type {
  PostgresClient,
  PostgresPool,
  PostgresResult,
  PostgresStoreOptions,
} from "./stores/postgres-options.ts";
export { postgresSchemaSql } from "./stores/postgres-schema.ts";
