import { join } from "node:path";
import Libsql from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CadenzaError } from "../../src/core/errors.ts";
import { counterNames } from "../../src/core/statistics.ts";
import { openSqliteStore, SqliteStore } from "../../src/stores/sqlite.ts";
import type { SqliteStoreOptions } from "../../src/stores/sqlite-database.ts";
import {
  counters,
  create,
  created,
  ended,
  look,
  over,
  runId,
  sessionId,
  sessionKey,
  write,
} from "../../src/testing/store-samples.ts";
import { drivers, openDatabase, temporaryFolder } from "./sqlite-files.ts";

let folder: ReturnType<typeof temporaryFolder>;
let path: string;

beforeEach(() => {
  folder = temporaryFolder();
  path = join(folder.path, "runs.db");
});

afterEach(() => folder.remove());

describe("the handle", () => {
  test.each<[options: SqliteStoreOptions, synchronous: number]>([
    [{}, 2],
    [{ synchronous: "FULL" }, 2],
    [{ synchronous: "NORMAL" }, 1],
  ])("is set to WAL and, with %j, to synchronous = %i", (options, synchronous) => {
    const db = openDatabase(path);
    db.exec(`PRAGMA synchronous = ${3 - synchronous}`);
    new SqliteStore(db, options);

    expect(db.prepare("PRAGMA synchronous").get()).toMatchObject({ synchronous });
    expect(db.prepare("PRAGMA journal_mode").get()).toMatchObject({ journal_mode: "wal" });
    db.close();
  });

  test.each<[options: object, said: string]>([
    [{ synchronous: "OFF" }, "synchronous: expected FULL or NORMAL, received OFF"],
    [{ busyTimeoutMs: 0 }, "busyTimeoutMs: expected a positive number, received 0"],
    [{ busyTimeoutMs: Number.NaN }, "busyTimeoutMs: expected a positive number, received NaN"],
    [{ busyTimeoutMs: "5" }, "busyTimeoutMs: expected a positive number, received 5"],
  ])("is not touched with %j", (options, said) => {
    const db = openDatabase(path);
    expect(() => new SqliteStore(db, options as SqliteStoreOptions)).toThrow(said);

    expect(db.prepare("SELECT * FROM sqlite_master").all()).toEqual([]);
    db.close();
  });

  test("is left open by close, unless the store is told otherwise", () => {
    const db = openDatabase(path);
    new SqliteStore(db).close();
    expect(db.prepare("SELECT 1 AS one").get()).toMatchObject({ one: 1 });
    new SqliteStore(db, { closeDatabase: true }).close();

    expect(() => db.prepare("SELECT 1").get()).toThrow();
  });

  test("may give bigints for numbers", async () => {
    const db = new Libsql(path).defaultSafeIntegers(true);
    const store = new SqliteStore(db, { synchronous: "NORMAL" });
    const session = { session_id: sessionId(1), create: true, at: 5 };
    const key = await create(store, 1, {
      idempotencyKey: "key",
      session,
      head: over(7),
      counters: counters({ failed: 1 }),
    });
    const expected = new SqliteStore(openDatabase(path));

    expect(await look(store, key, sessionKey(1))).toEqual(await look(expected, key, sessionKey(1)));
    const answer = await store.append(key, { epoch: 9, position: 9 }, write([ended()]));
    expect(answer).toEqual({ conflict: "changed", epoch: 2, position: 1 });
    expect(await store.prune({ maxRuns: 0, endedBefore: 0, sessionsBefore: 9 })).toBe(1);
  });

  test("is a file, or the store does not persist", () => {
    expect(new SqliteStore(openDatabase(path)).persistent).toBe(true);
    expect(new SqliteStore(openDatabase(":memory:")).persistent).toBe(false);
  });

  test("may hold the user's own tables", async () => {
    const db = openDatabase(path);
    db.exec("CREATE TABLE runs (mine TEXT); PRAGMA user_version = 42");
    await create(new SqliteStore(db), 1);

    expect(db.prepare("PRAGMA user_version").get()).toMatchObject({ user_version: 42 });
    const tables = db.prepare("SELECT name FROM sqlite_master WHERE name NOT LIKE '%cadenza%'").all();
    expect(tables.map((row) => ({ ...(row as object) }))).toMatchObject([{ name: "runs" }]);
  });
});

describe("the schema", () => {
  test("is made once, and found by whoever comes later", async () => {
    const first = new SqliteStore(openDatabase(path));
    const key = await create(first, 1);
    const before = schema();
    const second = new SqliteStore(openDatabase(path));

    expect(second.find(key)).toEqual(first.find(key));
    expect(schema()).toEqual(before);
    expect(versions()).toEqual([1, 2]);
  });

  test("is made whole or not at all", () => {
    const db = openDatabase(path);
    db.exec("CREATE TABLE cadenza_counters (somebody_elses INTEGER)");
    expect(() => new SqliteStore(db)).toThrow(/cadenza_counters/);
    expect(tables()).toEqual(["cadenza_counters"]);
    db.exec("DROP TABLE cadenza_counters");
    new SqliteStore(db);

    expect(versions()).toEqual([1, 2]);
  });

  test("of a newer version is refused, and left alone", () => {
    const db = openDatabase(path);
    new SqliteStore(db);
    db.exec("INSERT INTO cadenza_migrations (number) VALUES (3), (4)");
    const before = schema();
    const opening = () => new SqliteStore(openDatabase(path));

    expect(opening).toThrow(CadenzaError);
    expect(opening).toThrow("has schema 4, and this version of cadenza knows 2");
    expect(schema()).toEqual(before);
  });

  test("of the first version learns of each run who started it", async () => {
    const before = new SqliteStore(openDatabase(path));
    await create(before, 1);
    const child = await create(before, 2, { created: { parent: { run_id: runId(1), key: "run:echo#1", depth: 1 } } });
    openDatabase(path).exec(`
      DROP INDEX cadenza_runs_live;
      ALTER TABLE cadenza_runs DROP COLUMN parent;
      CREATE INDEX cadenza_runs_live ON cadenza_runs (owner, status, deadline, tenant, finished_at) WHERE finished_at IS NULL;
      DELETE FROM cadenza_migrations WHERE number = 2`);
    const store = new SqliteStore(openDatabase(path));

    expect(versions()).toEqual([1, 2]);
    const list = (roots: boolean) => store.list({ tenant: "acme", roots, limit: 9, offset: 0 });
    expect(list(true).map(({ key }) => key.run_id)).toEqual([runId(1)]);
    expect(list(false).map(({ key }) => key.run_id)).toEqual([child.run_id, runId(1)]);
  });

  test("has a column for every counter", () => {
    new SqliteStore(openDatabase(path));
    const columns = openDatabase(path).prepare("SELECT name FROM pragma_table_info('cadenza_counters')").all();

    expect(columns.map((row) => (row as { name: string }).name)).toEqual(["agent_name", ...counterNames]);
  });

  test("answers what is asked often by an index", async () => {
    const db = openDatabase(path);
    const store = new SqliteStore({
      exec: (sql) => db.exec(sql),
      close: () => db.close(),
      prepare(sql) {
        if (/^\s*(SELECT|WITH|UPDATE|DELETE)/.test(sql) && sql.includes("cadenza_") && !sql.includes("sqlite_master"))
          asked.push(sql);
        return db.prepare(sql);
      },
    });
    const asked: string[] = [];
    const key = await create(store, 1, { idempotencyKey: "key" });
    await store.append(key, { epoch: 1, position: 1 }, write([created(1)]));
    await store.claim(key, { epoch: 1, position: 2 }, over(), 0);
    await look(store, key, sessionKey(1));
    await store.prune({ maxRuns: 5, endedBefore: 5, sessionsBefore: 5 });
    for (const query of [
      { status: "completed" },
      { status: "awaiting", roots: true },
      { session_id: sessionId(1) },
      { agent_name: "echo" },
    ] as const) {
      store.list({ tenant: "acme", limit: 9, offset: 0, ...query });
    }
    const plans = asked.flatMap((sql) => db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters(sql)));
    const scans = plans
      .map((row) => (row as { detail: string }).detail)
      .filter((detail) =>
        /^SCAN (?!o$|k$|d$|owners$|cadenza_runs USING COVERING INDEX cadenza_runs_live$)/.test(detail),
      );

    expect(asked.length).toBeGreaterThan(15);
    expect(scans).toEqual([]);
  });
});

describe("openSqliteStore", () => {
  const builtIn = drivers.some(({ name }) => name === "node:sqlite");

  test.runIf(builtIn)("opens a file with Node's own SQLite, and close closes it", async () => {
    const store = openSqliteStore(path);
    const key = await create(store, 1);
    store.close();
    expect(() => store.find(key)).toThrow();
    const again = openSqliteStore(path, { synchronous: "NORMAL" });

    expect(again.persistent).toBe(true);
    expect(again.find(key)?.position).toBe(1);
    again.close();
  });

  test.runIf(builtIn)("closes what it has opened if the store refuses it", () => {
    openSqliteStore(path).close();
    const db = openDatabase(path);
    db.exec("INSERT INTO cadenza_migrations (number) VALUES (99)");
    db.close();

    expect(() => openSqliteStore(path)).toThrow("has schema 99");
  });
});

function schema(): unknown {
  return openDatabase(path).prepare("SELECT * FROM sqlite_master ORDER BY name").all();
}

function tables(): readonly string[] {
  const rows = openDatabase(path).prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all();
  return rows.map((row) => (row as { name: string }).name);
}

function versions(): readonly number[] {
  const rows = openDatabase(path).prepare("SELECT number FROM cadenza_migrations ORDER BY number").all();
  return rows.map((row) => (row as { number: number }).number);
}

function parameters(sql: string): readonly number[] {
  return [...sql].filter((letter) => letter === "?").map(() => 1);
}
