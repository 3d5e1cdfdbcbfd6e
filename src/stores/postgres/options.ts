import { CadenzaError } from "../../core/errors.ts";
import type { FeedOptions } from "../../core/feed.ts";
import type { Clock, Logger } from "../../core/ports.ts";
import type { DurabilityOptions } from "../../durable/recovery/options.ts";
import { checkFeed } from "../feed.ts";

/**
 * Where the store sends its SQL: a `Pool` of `pg`, a `PGlite`, or any object with such a `query`. The parameters are
 * strings, numbers and null. Rows come with numbers as numbers and truth values as booleans; a `bigint` may be a string.
 */
export interface PostgresPool {
  /** Executes one statement on any connection. Rejects with an error that has the `code` of PostgreSQL, if it has one. */
  query(text: string, values: unknown[]): Promise<PostgresResult>;
  /** As `pg.Pool` has it. With it, a connection that does not answer in time is closed, and hints are listened to. */
  connect?(): Promise<PostgresClient>;
  /**
   * As `pg.Pool` has it. From four connections on, one of them is kept for the leases of durable runs, so that no other
   * statement delays a renewal; without hints from three on.
   */
  readonly options?: { readonly max?: number | undefined } | undefined;
  /** As event emitters have them. With them the store sees to it that a lost connection does not end the process. */
  on?(event: "error" | "connect", listener: (value: unknown) => void): unknown;
  /** Removes such a listener when the store is closed. */
  off?(event: "error" | "connect", listener: (value: unknown) => void): unknown;
}

/** What a query returns. */
export interface PostgresResult {
  readonly rows: readonly unknown[];
}

/** A connection that a pool lends, as `PoolClient` of `pg`. */
export interface PostgresClient {
  query(text: string, values: unknown[]): Promise<PostgresResult>;
  on(event: "error" | "end" | "notification", listener: (value: unknown) => void): unknown;
  off(event: "error" | "end" | "notification", listener: (value: unknown) => void): unknown;
  /** Gives the connection back, or with true closes it. */
  release(destroy?: boolean): void;
}

/** How a `PostgresStore` is opened. */
export interface PostgresStoreOptions {
  /** The connections. The application opens them and closes them after the store. */
  readonly pool: PostgresPool;
  /** The schema that holds the tables and functions of the store, and nothing else. Default: `cadenza`. */
  readonly schema?: string | undefined;
  /**
   * Whether to create and upgrade the schema. With false it must be there: `postgresSchemaSql` returns the SQL. Default:
   * true.
   */
  readonly migrate?: boolean | undefined;
  /**
   * Whether the store only reads, with plain `SELECT`s; a standby server serves it too. The schema has to be that of this
   * version, and every write is refused with `store_failed`. No runtime can use such a store; `createAdmin({ store })` reads it.
   * `migrate` and `hints` are false then. Default: false.
   */
  readonly readOnly?: boolean | undefined;
  /**
   * How long a call may take, in milliseconds, with the time that it waits for a connection or behind another write.
   * After that it fails with `store_failed`, and whether it was carried out is unknown. A write of more than a mebibyte has half
   * a second more for each further one. Less than half the lease.
   * Default: 0.4 of the lease, thus 4,000.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether processes tell each other what they have written, with NOTIFY and LISTEN. Without, they find it when they
   * look. Default: true. Where hints do not arrive, as behind a transaction pooler, the store does without.
   */
  readonly hints?: boolean | undefined;
  /**
   * Whether the schema has a feed, for `runtime.watch`: from now on, for all processes that open a store on it after this one.
   * `false` ends the feed, and deletes it. With `readOnly` it is ignored. Default: the schema has one if it was opened with
   * one before.
   */
  readonly feed?: FeedOptions | false | undefined;
  /** Where the store reports what no caller waits for. `console` fits. Default: nowhere. */
  readonly logger?: Logger | undefined;
  /** For tests: the clock by which leases and due times are measured. Default: the server's. */
  readonly clock?: Pick<Clock, "now"> | undefined;
  /** How durable runs are owned, recovered and evicted. Default: as {@link DurabilityOptions} says. */
  readonly durability?: DurabilityOptions | undefined;
}

/** The options with their defaults. */
export interface PostgresSettings {
  readonly pool: PostgresPool;
  readonly schema: string;
  readonly migrate: boolean;
  readonly readOnly: boolean;
  readonly timeoutMs: number;
  /** How long the renewal of a lease may take. */
  readonly renewalMs: number;
  readonly hints: boolean;
  readonly feed: FeedOptions | false | undefined;
  readonly logger: Logger | undefined;
  readonly clock: Pick<Clock, "now"> | undefined;
}

const DEFAULT_SCHEMA = "cadenza";
const DEFAULT_LEASE_MS = 10_000;
/** The share of the lease that one call may take. A process that waits longer for an answer could lose its runs. */
const SHARE_OF_LEASE = 0.4;
/** The share of the lease that its renewal may take. A second and a third one are in time if it fails. */
const SHARE_OF_RENEWAL = 0.25;
/** Longer names are cut off by PostgreSQL. In bytes. */
const MAX_NAME = 63;

/** Reads the options. Throws `invalid_argument` for an invalid one. */
export function readOptions(options: PostgresStoreOptions): PostgresSettings {
  const { pool, schema = DEFAULT_SCHEMA, readOnly = false, logger, clock, durability } = options;
  const { migrate = true, hints = true, feed } = options;
  const leaseMs = durability?.leaseMs ?? DEFAULT_LEASE_MS;
  const timeoutMs = options.timeoutMs ?? SHARE_OF_LEASE * Math.min(leaseMs, DEFAULT_LEASE_MS);
  if (typeof pool?.query !== "function") throw refused("pool", "an object with `query(text, values)`", pool);
  checkSchemaName(schema);
  if (typeof migrate !== "boolean") throw refused("migrate", "true or false", migrate);
  if (typeof hints !== "boolean") throw refused("hints", "true or false", hints);
  if (typeof readOnly !== "boolean") throw refused("readOnly", "true or false", readOnly);
  checkFeed(feed);
  if (typeof timeoutMs !== "number" || !(timeoutMs > 0 && timeoutMs < leaseMs / 2))
    throw refused("timeoutMs", `a positive number below half the lease (${leaseMs / 2})`, timeoutMs);
  const kept = readOnly ? undefined : feed;
  const renewalMs = Math.min(timeoutMs, SHARE_OF_RENEWAL * leaseMs);
  return {
    pool,
    schema,
    migrate,
    readOnly,
    timeoutMs,
    renewalMs,
    hints: hints && !readOnly,
    feed: kept,
    logger,
    clock,
  };
}

/** Throws `invalid_argument` for a name that cannot be that of the schema. A `$` could end a quoted part of the SQL. */
export function checkSchemaName(schema: string): void {
  const isName = typeof schema === "string" && /^[^$\0]+$/.test(schema) && !schema.startsWith("pg_");
  if (!isName || new TextEncoder().encode(schema).length > MAX_NAME)
    throw refused("schema", `a name of 1 to ${MAX_NAME} bytes, without $, that does not begin with pg_`, schema);
}

function refused(name: string, expected: string, received: unknown): CadenzaError {
  return new CadenzaError("invalid_argument", `${name}: expected ${expected}, received ${String(received)}.`);
}
