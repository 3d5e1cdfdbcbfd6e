export type {
  PostgresClient,
  PostgresPool,
  PostgresResult,
  PostgresStoreOptions,
} from "./stores/postgres/options.ts";
export { openPostgresStore, PostgresStore } from "./stores/postgres/postgres.ts";
export { postgresSchemaSql } from "./stores/postgres/schema.ts";
