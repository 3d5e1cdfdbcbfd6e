import { CadenzaError } from "../../core/errors.ts";
import type { FeedOptions } from "../../core/feed.ts";
import type { Clock } from "../../core/ports.ts";
import type { DurabilityOptions } from "../../durable/recovery/options.ts";
import { checkFeed } from "../feed.ts";

/** An open database: `DatabaseSync` of `node:sqlite`, or `Database` of `better-sqlite3` or `libsql`. */
export interface SqliteDatabase {
  /** Executes statements without parameters. Throws the driver's error. */
  exec(sql: string): unknown;
  /** Prepares one statement, which is executed many times. */
  prepare(sql: string): SqliteStatement;
  /** Closes the file. Called only with `closeDatabase`. */
  close(): unknown;
}

/** A prepared statement of such a database. Its parameters are strings, numbers and null. */
export interface SqliteStatement {
  run(...values: unknown[]): SqliteResult;
  get(...values: unknown[]): unknown;
  all(...values: unknown[]): unknown[];
}

/** What a statement that writes has done. */
export interface SqliteResult {
  readonly changes: number | bigint;
  readonly lastInsertRowid: number | bigint;
}

/** What the store binds to a `?`. */
export type SqliteValue = string | number | null;

/** A row as the database returns it. Numbers are bigints if the handle is configured so. */
export type SqliteRow = Readonly<Record<string, SqliteValue | bigint>>;

/** How a `SqliteStore` uses its database. */
export interface SqliteStoreOptions {
  /**
   * When a write counts as written. With `FULL`: once it is on the disk. With `NORMAL`: once the operating system has
   * it. That is several times as fast, but a power loss can undo the last acknowledged writes. Default: `FULL`.
   */
  readonly synchronous?: "FULL" | "NORMAL" | undefined;
  /**
   * About how long a write waits for other processes that write to the file, in milliseconds. After that it fails with
   * `store_failed`. Not `Infinity`. Default: 10,000.
   */
  readonly busyTimeoutMs?: number | undefined;
  /**
   * Whether the store only reads. The file keeps its journal mode and its schema, which has to be that of this version, and
   * every write is refused with `store_failed`. Open the handle read-only too: SQLite itself writes to a file when the
   * last handle that may write is closed. No runtime can use such a store; `createAdmin({ store })` reads it. Default:
   * false.
   */
  readonly readOnly?: boolean | undefined;
  /** Whether `close()` closes the handle too. Default: false, and the code that opened the handle closes it. */
  readonly closeDatabase?: boolean | undefined;
  /**
   * The clock by which leases and due times are measured. All processes that share the file need the same. Default: the
   * machine's.
   */
  readonly clock?: Pick<Clock, "now"> | undefined;
  /**
   * Whether the file has a feed, for `runtime.watch`: from now on, for all processes that open the file after this one. `false`
   * ends the feed, and deletes it. With `readOnly` it is ignored. Default: the file has one if it was opened with one before.
   */
  readonly feed?: FeedOptions | false | undefined;
  /** How durable runs are owned, recovered and evicted. Default: as {@link DurabilityOptions} says. */
  readonly durability?: DurabilityOptions | undefined;
}

const DEFAULT_BUSY_TIMEOUT_MS = 10_000;
/** How long SQLite itself waits for a lock. The wait blocks the event loop, which gets a turn between two waits. */
const WAIT_MS = 50;
const PAUSE_MS = 5;
const SQLITE_BUSY = 5;
const SQLITE_CORRUPT = 11;

function checkHandle(db: unknown): void {
  if (typeof db === "object" && db !== null && "exec" in db && "prepare" in db) return;
  const path = typeof db === "string" ? `. openSqliteStore(${JSON.stringify(db)}) opens a file by its path` : "";
  throw new CadenzaError(
    "invalid_argument",
    `db: expected a database handle of node:sqlite, better-sqlite3 or libsql, received ${typeof db}${path}.`,
  );
}

/** A database with the store's settings and its prepared statements. */
export class Connection {
  readonly #db: SqliteDatabase;
  readonly #statements = new Map<string, SqliteStatement>();
  /** How often an operation that meets a lock is tried in all. */
  readonly attempts: number;

  constructor(db: SqliteDatabase, options: SqliteStoreOptions) {
    const { synchronous, busyTimeoutMs, readOnly } = checked(options);
    checkHandle(db);
    this.#db = db;
    this.attempts = Math.ceil(busyTimeoutMs / WAIT_MS);
    db.exec(`PRAGMA busy_timeout = ${WAIT_MS}`);
    if (readOnly) {
      db.exec("PRAGMA query_only = 1");
      return;
    }
    readable(() => this.patiently(() => db.exec("PRAGMA journal_mode = WAL")));
    db.exec(`PRAGMA synchronous = ${synchronous}`);
  }

  /** Whether the database is a file. One in memory ends with the process. */
  isFile(): boolean {
    const main = this.all("PRAGMA database_list").find((row) => row["name"] === "main");
    return main !== undefined && main["file"] !== "" && main["file"] !== null;
  }

  /** Runs statements without keeping them prepared. */
  exec(sql: string): void {
    this.#db.exec(sql);
  }

  /** Runs a statement that writes. */
  run(sql: string, ...values: SqliteValue[]): SqliteResult {
    return this.#prepared(sql).run(...values);
  }

  /** The first row, or undefined. */
  get(sql: string, ...values: SqliteValue[]): SqliteRow | undefined {
    return this.#read(sql, (statement) => statement.get(...values) ?? undefined) as SqliteRow | undefined;
  }

  /** All rows. */
  all(sql: string, ...values: SqliteValue[]): readonly SqliteRow[] {
    return this.#read(sql, (statement) => statement.all(...values)) as readonly SqliteRow[];
  }

  /**
   * The texts of a column, in order, each once, found by jumps in an index. Null comes first. The statements select the first
   * `value`, and the one behind a text, which is the last parameter. `of`: the parameters before it.
   */
  *values(selectFirst: string, selectNext: string, ...of: readonly SqliteValue[]): Iterable<string | null> {
    for (let row = this.get(selectFirst, ...of); row !== undefined; ) {
      const value = row["value"] === null ? null : String(row["value"]);
      yield value;
      row = this.get(selectNext, ...of, value ?? "");
    }
  }

  /** Tries again while another process holds the lock. */
  patiently<T>(work: () => T): T {
    for (let attempt = 1; ; attempt++) {
      try {
        return work();
      } catch (error) {
        if (!isBusy(error)) throw error;
        if (attempt >= this.attempts) throw stillBusy(error);
        pause(PAUSE_MS);
      }
    }
  }

  /** Rolls back the open transaction, if there is one. Some errors have rolled it back already. */
  rollback(): void {
    try {
      this.#db.exec("ROLLBACK");
    } catch (error) {
      if (!/no transaction/i.test(String(error))) throw error;
    }
  }

  /** Closes the handle, unless it is closed already: some drivers refuse that, and others do nothing. */
  close(): void {
    try {
      this.#db.close();
    } catch (error) {
      if (!/not open|is closed/i.test(String(error))) throw error;
    }
  }

  #read(sql: string, work: (statement: SqliteStatement) => unknown): unknown {
    try {
      return this.patiently(() => work(this.#prepared(sql)));
    } catch (error) {
      // In some drivers (`libsql`) a statement that met a damaged page fails on every later use.
      if (isCorrupt(error)) this.#statements.delete(sql);
      throw error;
    }
  }

  #prepared(sql: string): SqliteStatement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/** The first look at a file. Throws `store_failed` if it is no database, or this process may not open it. */
export function readable<T>(look: () => T): T {
  try {
    return look();
  } catch (cause) {
    if (cause instanceof CadenzaError) throw cause;
    const said = cause instanceof Error ? cause.message : String(cause);
    throw new CadenzaError("store_failed", `The database cannot be read: ${said}.`, { cause });
  }
}

/** Whether the error says that another connection holds the lock. */
export function isBusy(error: unknown): boolean {
  return isError(error, SQLITE_BUSY, "SQLITE_BUSY");
}

/** Whether the error says that a part of the file is damaged. */
export function isCorrupt(error: unknown): boolean {
  return isError(error, SQLITE_CORRUPT, "SQLITE_CORRUPT");
}

/** The drivers report codes in different properties. Extended codes are reduced to their primary code. */
function isError(error: unknown, number: number, name: string): boolean {
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  if (typeof errcode === "number") return (errcode & 0xff) === number;
  return typeof code === "string" && code.startsWith(name);
}

/** The error for a lock that was not released in time. */
export function stillBusy(cause: unknown): CadenzaError {
  return new CadenzaError(
    "store_failed",
    "Other processes held the lock of the database for longer than `busyTimeoutMs`. Try again, or raise it.",
    {
      cause,
    },
  );
}

function checked(options: SqliteStoreOptions) {
  checkFeed(options.feed);
  const { synchronous = "FULL", busyTimeoutMs = DEFAULT_BUSY_TIMEOUT_MS, readOnly = false } = options;
  if (synchronous !== "FULL" && synchronous !== "NORMAL") {
    throw new CadenzaError(
      "invalid_argument",
      `synchronous: expected FULL or NORMAL, received ${String(synchronous)}.`,
    );
  }
  if (!(Number.isFinite(busyTimeoutMs) && busyTimeoutMs > 0)) {
    throw new CadenzaError("invalid_argument", `busyTimeoutMs: expected a positive number, received ${busyTimeoutMs}.`);
  }
  if (typeof readOnly !== "boolean") {
    throw new CadenzaError("invalid_argument", `readOnly: expected true or false, received ${String(readOnly)}.`);
  }
  return { synchronous, busyTimeoutMs, readOnly };
}

/** Blocks the thread. Used only by synchronous calls, which cannot give way to other work. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)), 0, 0, ms);
}
