import { createHash } from "node:crypto";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import { openSqliteStore, SqliteStore } from "cadenza/sqlite";
import type { OpenStores } from "cadenza/testing";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { append, create, parts, runKey, write } from "../../../src/stores/contract/samples.ts";
import { contractOfReads, readThrough, writesThatWereMade } from "../../harness/read-only.ts";
import type { SqliteDriver } from "../../harness/sqlite-files.ts";
import { drivers, openTwice, temporaryFolder } from "../../harness/sqlite-files.ts";

let folder: ReturnType<typeof temporaryFolder>;
let path: string;

beforeEach(() => {
  folder = temporaryFolder();
  path = join(folder.path, "runs.db");
});

afterEach(() => folder.remove());

describe.each(drivers)("a SqliteStore on $name that is read-only", (driver) => {
  describe("keeps the store contract for reads", () => {
    const open: OpenStores = ({ clock }) =>
      openTwice(driver, { synchronous: "NORMAL", clock }, (store, file) =>
        readThrough(store, new SqliteStore(driver.openToRead(file), { readOnly: true, closeDatabase: true, clock })),
      );
    for (const { name, run } of contractOfReads) it(name, () => run(open));
  });

  it("refuses every write, and is no store for a runtime", async () => {
    const live = openLive(driver);
    await create(live, 1);
    const store = openToRead(driver);

    expect(await writesThatWereMade(store)).toEqual([]);
    expect(live.find(runKey(1))?.position).toBe(1);
    expect(() => new AgentRuntime({ store })).toThrow("opened with `readOnly`");
    store.close();
    live.close();
  });

  it("refuses writes also on a handle that could write", async () => {
    openLive(driver).close();
    const db = driver.open(path);
    const store = new SqliteStore(db, { readOnly: true });

    expect(await writesThatWereMade(store)).toEqual([]);
    expect(() => db.exec("DELETE FROM cadenza_runs")).toThrow("readonly");
    db.close();
  });

  it("shows at once what another store has written", async () => {
    const live = openLive(driver);
    const store = openToRead(driver);
    for (let n = 1; n < 4; n++) {
      const key = await create(live, n);
      await append(live, key, 1, write(parts("a", "b")));
      expect(store.find(key)?.position).toBe(3);
    }
    store.close();
    live.close();
  });

  it("reads what a killed process has left in its log, and changes neither the file nor the log", async () => {
    const live = openLive(driver);
    await create(live, 1);
    const left = join(folder.path, "left.db");
    for (const part of ["", "-wal"]) copyFileSync(`${path}${part}`, `${left}${part}`);
    live.close();
    const before = [digestOf(left), digestOf(`${left}-wal`)];
    const store = openToRead(driver, left);

    expect(store.find(runKey(1))?.position).toBe(1);
    store.close();
    expect([digestOf(left), digestOf(`${left}-wal`)]).toEqual(before);
  });

  it("leaves the journal mode of a copy as it is", () => {
    openLive(driver).close();
    driver.open(path).exec("PRAGMA wal_checkpoint(TRUNCATE)");
    const copy = join(folder.path, "copy.db");
    copyFileSync(path, copy);
    driver.open(copy).exec("PRAGMA journal_mode = DELETE");
    const before = digestOf(copy);
    const store = openToRead(driver, copy);

    expect(store.list({ tenant: "acme", limit: 1, offset: 0 })).toEqual([]);
    store.close();
    expect(digestOf(copy)).toBe(before);
    expect(existsSync(`${copy}-wal`)).toBe(false);
  });

  it.each<[what: string, make: (driver: SqliteDriver) => void, said: string]>([
    ["that is no database", () => writeFileSync(path, "x".repeat(5_000)), "cannot be read: file is not a database"],
    ["without a store", (driver) => change(driver, "CREATE TABLE runs (mine TEXT)"), "holds no store of cadenza"],
    [
      "of an older version",
      (driver) => change(driver, "DELETE FROM cadenza_migrations WHERE number = 20", openLive),
      "has schema 19, and this version of cadenza reads 20: an older one",
    ],
    [
      "of a newer version",
      (driver) => change(driver, "INSERT INTO cadenza_migrations VALUES (99)", openLive),
      "has schema 99, and this version of cadenza knows 20: a newer one",
    ],
  ])("refuses a file %s, and does not change it", (_what, make, said) => {
    make(driver);
    const before = digestOf(path);

    expect(() => openToRead(driver)).toThrow(said);
    expect(digestOf(path)).toBe(before);
  });
});

describe("openSqliteStore with readOnly", () => {
  const builtIn = drivers.some(({ name }) => name === "node:sqlite");

  it.runIf(builtIn)("opens a file that is there, and makes none", async () => {
    expect(() => openSqliteStore(path, { readOnly: true })).toThrow(
      `The file ${JSON.stringify(path)} cannot be opened`,
    );
    expect(existsSync(path)).toBe(false);
    const live = openSqliteStore(path);
    await create(live, 1);
    const store = openSqliteStore(path, { readOnly: true });

    expect(await writesThatWereMade(store)).toEqual([]);
    expect(store.find(runKey(1))?.position).toBe(1);
    store.close();
    live.close();
  });
});

it("readOnly is true or false", () => {
  const db = drivers[0]?.open(path) as NonNullable<ReturnType<SqliteDriver["open"]>>;
  const options = { readOnly: "yes" } as unknown as { readOnly: true };
  expect(() => new SqliteStore(db, options)).toThrow("readOnly: expected true or false, received yes.");
  db.close();
});

/** What stands for the bytes of a file: to compare all of them by `toEqual` takes long. */
function digestOf(file: string): string {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

function openLive(driver: SqliteDriver): SqliteStore {
  return new SqliteStore(driver.open(path), { synchronous: "NORMAL", closeDatabase: true });
}

function openToRead(driver: SqliteDriver, file = path): SqliteStore {
  return new SqliteStore(driver.openToRead(file), { readOnly: true, closeDatabase: true });
}

/** Changes a file, which a store may have made before. */
function change(driver: SqliteDriver, sql: string, first?: (driver: SqliteDriver) => SqliteStore): void {
  first?.(driver).close();
  const db = driver.open(path);
  db.exec(sql);
  db.close();
}
