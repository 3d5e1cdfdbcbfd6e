import { closeSync, existsSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { getBuiltinModule } from "node:process";
import { pathToFileURL } from "node:url";
import type { PostgresPool } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { SqliteDatabase } from "cadenza/sqlite";
import { openSqliteStore, SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import { CommandError } from "./errors.ts";
import { load } from "./project.ts";

/** A store that a command has opened. */
export interface OpenedStore {
  readonly store: Store;
  /** What it is, without secrets. */
  readonly name: string;
  close(): Promise<void>;
}

/** Opens what `inspect` shows. The store writes nothing. */
export async function openToRead(address: string, schema: string | undefined): Promise<OpenedStore> {
  return open(address, schema, true);
}

/** Opens a store that exists, and that an operator changes. */
export async function openToWrite(address: string, schema: string | undefined): Promise<OpenedStore> {
  // What is opened to write is made where there is none, and what is opened to read is refused.
  const { close } = await openToRead(address, schema);
  await close();
  return open(address, schema, false);
}

async function open(address: string, schema: string | undefined, readOnly: boolean): Promise<OpenedStore> {
  if (/^postgres(ql)?:\/\//.test(address)) return openPostgres(address, schema, readOnly);
  if (!existsSync(address)) throw new CommandError(`There is no file ${address}.`);
  const store = openSqlite(address, readOnly);
  return { store, name: address, close: async () => store.close() };
}

/** Opens the file of `dev`, and makes a missing one. */
export function openOrMake(file: string): SqliteStore {
  makeFile(file);
  return openSqlite(file, false);
}

/**
 * Makes the file of the store, unless it exists. Only its user may read it, because it holds what agents were told: the
 * files that SQLite makes beside it have the same mode. A folder that is made for it is left out of the repository.
 */
function makeFile(file: string): void {
  const folder = dirname(file);
  if (mkdirSync(folder, { recursive: true }) !== undefined) writeFileSync(join(folder, ".gitignore"), "*\n");
  closeSync(openSync(file, "a", 0o600));
}

/** Opens a file with the SQLite of Node, or else with that of the project. */
function openSqlite(file: string, readOnly: boolean): SqliteStore {
  const db = getBuiltinModule("node:sqlite") === undefined ? openWithProject(file, readOnly) : undefined;
  // Where there is no driver, this says what to install.
  if (db === undefined) return openSqliteStore(file, { readOnly });
  return new SqliteStore(db, { readOnly, closeDatabase: true });
}

function openWithProject(file: string, readOnly: boolean): SqliteDatabase | undefined {
  const Libsql = load("libsql") as Driver | undefined;
  if (Libsql !== undefined) return new Libsql(readOnly ? `${pathToFileURL(resolve(file)).href}?mode=ro` : file);
  const BetterSqlite = load("better-sqlite3") as Driver | undefined;
  return BetterSqlite && new BetterSqlite(file, { readonly: readOnly });
}

async function openPostgres(url: string, schema: string | undefined, readOnly: boolean): Promise<OpenedStore> {
  const pg = load("pg") as Postgres | undefined;
  if (pg === undefined)
    throw new CommandError("A PostgreSQL store is opened with `pg`. Install it here: npm install pg.");
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  try {
    const store = await openPostgresStore({ pool, schema, readOnly });
    const close = async () => {
      await store.close();
      await pool.end();
    };
    return { store, name: nameOf(url), close };
  } catch (error) {
    await pool.end();
    throw error;
  }
}

/** The server and the database, without the user, the password and the options. */
function nameOf(url: string): string {
  return url.replace(/\?.*/, "").replace(/^[^:]*:\/\/(?:.*@)?/, "");
}

/** What `libsql` and `better-sqlite3` export. */
type Driver = new (path: string, options?: { readonly readonly: boolean }) => SqliteDatabase;

/** What the command uses of `pg`. */
interface Postgres {
  readonly Pool: new (options: object) => PostgresPool & { end(): Promise<void> };
}
