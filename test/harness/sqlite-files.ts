import { mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getBuiltinModule } from "node:process";
import type { SqliteDatabase, SqliteStoreOptions } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { RunKey } from "cadenza/store";
import Libsql from "libsql";
import type { OpenedStores } from "./internals.ts";

const nodeSqlite = getBuiltinModule("node:sqlite") as
  | { readonly DatabaseSync: new (path: string, options?: { readonly readOnly: true }) => SqliteDatabase }
  | undefined;

/** The drivers that are installed here. */
export const drivers: readonly SqliteDriver[] = [
  { name: "libsql", open: (path) => new Libsql(path), openToRead: (path) => new Libsql(`file:${path}?mode=ro`) },
  ...(nodeSqlite === undefined
    ? []
    : [
        {
          name: "node:sqlite",
          open: (path: string) => new nodeSqlite.DatabaseSync(path),
          openToRead: (path: string) => new nodeSqlite.DatabaseSync(path, { readOnly: true }),
        },
      ]),
];

export interface SqliteDriver {
  readonly name: string;
  open(path: string): SqliteDatabase;
  /** A handle that cannot write. */
  openToRead(path: string): SqliteDatabase;
}

/** Opens a handle with Node's own SQLite if it exists, else with libsql. */
export function openDatabase(path: string): SqliteDatabase {
  return preferred().open(path);
}

function preferred(): SqliteDriver {
  const driver = drivers.at(-1);
  if (driver === undefined) throw new Error("there is no driver");
  return driver;
}

/** A folder that `remove` deletes. Without `parent` its files may be in memory: `tmpdir()` is on the disk. */
export function temporaryFolder(parent = quickFolder()): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(parent, "cadenza-store-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Calls a function with the path of a database in a folder of its own, which is deleted after that. It is on the disk. */
export async function withFile<T>(act: (file: string) => Promise<T>): Promise<T> {
  const folder = temporaryFolder(tmpdir());
  try {
    return await act(join(folder.path, "runs.db"));
  } finally {
    folder.remove();
  }
}

/** The bytes of a file with the schema and no run, by driver: to copy one is several times as fast as to make the schema. */
const emptyFiles = new Map<SqliteDriver, Uint8Array>();

/** Makes a file at the path, as a store leaves it that was opened and closed. */
export function makeEmptyFile(path: string, driver = preferred()): void {
  const known = emptyFiles.get(driver);
  if (known !== undefined) {
    writeFileSync(path, known);
    return;
  }
  new SqliteStore(driver.open(path), { closeDatabase: true }).close();
  emptyFiles.set(driver, readFileSync(path));
}

/** How much room a file system in memory must have, in bytes. */
const ROOM = 2 ** 31;

/** The folder for files whose test does not depend on the disk: in memory, where Linux has room there. */
function quickFolder(): string {
  const path = "/dev/shm";
  try {
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize > ROOM ? path : tmpdir();
  } catch {
    return tmpdir();
  }
}

/** Two stores on one new file, for the store contract. `wrap` gets each of them, and the file. */
export function openTwice(
  driver: SqliteDriver,
  options: SqliteStoreOptions = {},
  wrap: (store: SqliteStore, path: string) => SqliteStore = (store) => store,
): OpenedStores {
  const folder = temporaryFolder();
  const path = join(folder.path, "runs.db");
  makeEmptyFile(path, driver);
  const open = () => wrap(new SqliteStore(driver.open(path), { ...options, closeDatabase: true }), path);
  const both = (): OpenedStores => {
    const first = open();
    const second = open();
    const close = () => {
      first.close();
      second.close();
    };
    return {
      first,
      second,
      damage: (key, position) => damage(driver, path, key, position),
      reopen() {
        close();
        return both();
      },
      close() {
        close();
        folder.remove();
      },
    };
  };
  return both();
}

/** Makes one entry of a run unreadable: its line ends in the middle. */
function damage(driver: SqliteDriver, path: string, { tenant, run_id }: RunKey, position: number): void {
  const db = driver.open(path);
  db.prepare(
    `UPDATE cadenza_entries SET lines = substr(lines, 2) WHERE position = ?
     AND run = (SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ?)`,
  ).run(position, tenant, run_id);
  db.close();
}
