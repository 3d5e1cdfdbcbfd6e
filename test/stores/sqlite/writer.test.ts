import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { CadenzaError } from "cadenza";
import type { SqliteStoreOptions } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  created,
  head,
  message,
  parts,
  runKey,
  sessionId,
  sessionKey,
  write,
} from "../../../src/stores/contract/samples.ts";
import { isBusy } from "../../../src/stores/sqlite/database.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { drivers, openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

let folder: ReturnType<typeof temporaryFolder>;
let opened: SqliteStore[];

beforeEach(() => {
  folder = temporaryFolder();
  opened = [];
});

afterEach(() => {
  for (const store of opened) store.close();
  folder.remove();
});

describe("group commit", () => {
  it("the writes of one turn are one transaction, and acknowledged after its commit", async () => {
    const { store, db } = open();
    const acknowledged: number[] = [];
    const writes = numbers(50).map(async (n) => {
      await store.create(runKey(n), write([created(n)]), null);
      acknowledged.push(db.count("COMMIT"));
    });
    expect(db.count("BEGIN IMMEDIATE")).toBe(0);
    await Promise.all(writes);

    expect(db.count("BEGIN IMMEDIATE")).toBe(1);
    expect(db.count("COMMIT")).toBe(1);
    expect(acknowledged).toEqual(numbers(50).map(() => 1));
  });

  it("sequential writes are one transaction each", async () => {
    const { store, db } = open();
    for (const n of numbers(3)) await store.create(runKey(n), write([created(n)]), null);

    expect(db.count("COMMIT")).toBe(3);
  });

  it("nothing is read before it is committed", async () => {
    const { store } = open();
    const writing = store.create(runKey(1), write([created(1)]), null);
    expect(store.find(runKey(1))).toBeUndefined();
    await writing;

    expect(store.find(runKey(1))?.position).toBe(1);
  });

  it("a great many writes are spread over several turns", async () => {
    const { store, db } = open();
    await Promise.all(numbers(600).map((n) => store.create(runKey(n), write([created(n)]), null)));

    expect(db.count("COMMIT")).toBe(5);
    expect(store.list({ tenant: "acme", limit: 1_000, offset: 0 })).toHaveLength(600);
  });

  it("large writes are spread over several turns, and small ones beside them are not", async () => {
    const { store, db } = open();
    const large = "x".repeat(200_000);
    const sizes = [large, large, "", large, "", large, "", ""];
    await Promise.all(
      sizes.map((input, n) => store.create(runKey(n), write([created(n, { labels: { input } })]), null)),
    );

    // Two large ones fit into one transaction.
    expect(db.count("COMMIT")).toBe(2);
    expect(store.list({ tenant: "acme", limit: 1_000, offset: 0 })).toHaveLength(sizes.length);
  });

  it("a write that is refused does not affect the others of its transaction", async () => {
    const { store, db } = open();
    const answers = await Promise.all([1, 2, 1, 3].map((n) => store.create(runKey(n), write([created(n)]), null)));

    expect(answers).toEqual([undefined, undefined, { conflict: "exists" }, undefined]);
    expect(db.count("COMMIT")).toBe(1);
    expect(db.count("ROLLBACK")).toBe(0);
  });

  it("a value that is not JSON fails before it is in a transaction", async () => {
    const { store, db } = open();
    const unspeakable = created(2, { principal: 1n as unknown as number });
    const outcomes = await Promise.allSettled([
      store.create(runKey(1), write([created(1)]), null),
      store.create(runKey(2), write([unspeakable]), null),
      store.append(runKey(1), { epoch: 1, position: 1 }, write([unspeakable])),
      store.create(runKey(3), write([created(3)]), null),
    ]);

    expect(outcomes.map((outcome) => outcome.status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
    expect(db.count("ROLLBACK")).toBe(0);
  });

  it("a write that fails is rolled back alone, and the others keep their order", async () => {
    const { store, db } = open();
    const broken = () => {
      throw new Error("no messages today");
    };
    const session = { session_id: sessionId(1), create: true, at: 1 };
    const outcomes = await settled([
      store.create(runKey(1), write([created(1)], { session: { ...session, messages: () => [message("a")] } }), null),
      store.append(
        runKey(1),
        { epoch: 1, position: 1 },
        write(parts("x"), { session: { ...session, messages: broken } }),
      ),
      store.append(
        runKey(1),
        { epoch: 1, position: 1 },
        write(parts("y"), { session: { ...session, messages: () => [message("b")] } }),
      ),
      store.create(runKey(2), write([created(2)]), null),
    ]);

    expect(outcomes).toEqual([undefined, "no messages today", undefined, undefined]);
    expect(store.read(runKey(1), 1, 10)).toEqual(parts("y"));
    expect(store.session(sessionKey(1))?.history).toEqual([message("a"), message("b")]);
    expect(db.count("ROLLBACK")).toBe(2);
  });

  it("a full disk fails only the write that does not fit on it", async () => {
    const full = Object.assign(new Error("database or disk is full"), { code: "SQLITE_FULL" });
    const { store } = open({}, (sql, values) =>
      sql.includes("INSERT INTO cadenza_entries") && String(values[2]).includes("big") ? full : undefined,
    );
    const outcomes = await settled([
      store.create(runKey(1), write([created(1)]), null),
      store.create(runKey(2), write([created(2), ...parts("big")]), "key"),
      store.create(runKey(3), write([created(3)]), null),
    ]);

    expect(outcomes).toEqual([undefined, "database or disk is full", undefined]);
    expect(store.find(runKey(2))).toBeUndefined();
    expect(store.findByIdempotencyKey("acme", "key")).toBeUndefined();
  });

  it("no write of a commit that fails is acknowledged", async () => {
    const broken = new Error("disk I/O error");
    let failures = 0;
    const { store } = open({}, (sql) => (sql === "COMMIT" && failures++ < 1 ? broken : undefined));
    await expect(store.create(runKey(1), write([created(1)]), null)).rejects.toBe(broken);

    expect(store.find(runKey(1))).toBeUndefined();
    expect(await store.create(runKey(1), write([created(1)]), null)).toBeUndefined();
  });

  it("close commits the pending writes, and no write is taken after it", async () => {
    const { store } = open();
    const writing = store.create(runKey(1), write([created(1)]), null);
    store.close();
    opened = [];
    await expect(store.create(runKey(2), write([created(2)]), null)).rejects.toThrow("The store is closed.");

    expect(await writing).toBeUndefined();
    expect(open().store.find(runKey(1))?.position).toBe(1);
  });
});

describe("another process that writes", () => {
  it("is waited for without blocking the event loop", async () => {
    const { store } = open();
    const other = openDatabase(join(folder.path, "runs.db"));
    other.exec("BEGIN IMMEDIATE");
    const writing = settled([
      store.create(runKey(1), write([created(1)]), null),
      store.append(runKey(1), { epoch: 1, position: 1 }, write(parts("a"))),
    ]);
    await nextTurn();
    const late = store.append(runKey(1), { epoch: 1, position: 2 }, write(parts("b"), { head: head({ epoch: 2 }) }));
    await nextTurn();
    expect(store.find(runKey(1))).toBeUndefined();
    other.exec("ROLLBACK");
    other.close();

    expect(await writing).toEqual([undefined, undefined]);
    expect(await late).toBeUndefined();
    expect(store.read(runKey(1), 1, 10)).toEqual(parts("a", "b"));
  });

  it.each(drivers)("is seen by reads as soon as it has committed, also while a write waits ($name)", async (driver) => {
    const path = join(folder.path, "runs.db");
    const store = new SqliteStore(driver.open(path), { synchronous: "NORMAL", closeDatabase: true });
    opened.push(store);
    await store.create(runKey(1), write([created(1)]), null);
    const other = driver.open(path);
    other.exec("BEGIN IMMEDIATE");
    other.exec("UPDATE cadenza_runs SET epoch = 7");
    const writing = store.create(runKey(2), write([created(2)]), null);
    await nextTurn();
    expect(store.find(runKey(1))?.head.epoch).toBe(1);
    other.exec("COMMIT");
    other.close();
    expect(store.find(runKey(1))?.head.epoch).toBe(7);
    expect(await writing).toBeUndefined();
  });

  it("for too long is an error that says so", async () => {
    const { store } = open({ busyTimeoutMs: 50 });
    const other = openDatabase(join(folder.path, "runs.db"));
    other.exec("BEGIN IMMEDIATE");
    const writes = [1, 2].map((n) => store.create(runKey(n), write([created(n)]), null));
    for (const outcome of await Promise.allSettled(writes)) {
      const reason: unknown = outcome.status === "rejected" ? outcome.reason : undefined;
      expect(CadenzaError.is(reason) && reason.code).toBe("store_failed");
      expect(String(reason)).toContain("busyTimeoutMs");
    }
    other.exec("ROLLBACK");
    other.close();

    expect(await store.create(runKey(1), write([created(1)]), null)).toBeUndefined();
  });

  it.each([
    ["better-sqlite3 and libsql", { code: "SQLITE_BUSY" }, true],
    ["better-sqlite3, in detail", { code: "SQLITE_BUSY_SNAPSHOT" }, true],
    ["node:sqlite", { code: "ERR_SQLITE_ERROR", errcode: 5 }, true],
    ["node:sqlite, in detail", { code: "ERR_SQLITE_ERROR", errcode: 517 }, true],
    ["another error of node:sqlite", { code: "ERR_SQLITE_ERROR", errcode: 13 }, false],
    ["another error", { code: "SQLITE_FULL" }, false],
    ["an error without a code", {}, false],
  ])("is recognised by the error of %s", (_driver, words, busy) => {
    expect(isBusy(Object.assign(new Error("database is locked"), words))).toBe(busy);
  });

  it("is waited for by a read too", () => {
    const busy = Object.assign(new Error("database is locked"), { code: "SQLITE_BUSY_RECOVERY" });
    let refusals = 0;
    const { store } = open({}, (sql) => (sql.includes("cadenza_counters") && refusals++ < 2 ? busy : undefined));

    expect(store.counters("echo")).toBeUndefined();
    expect(refusals).toBe(3);
  });
});

function open(
  options: SqliteStoreOptions = {},
  fails?: (sql: string, values: readonly unknown[]) => unknown,
): { store: SqliteStore; db: RecordingDatabase } {
  let ready = false;
  const db = new RecordingDatabase(openDatabase(join(folder.path, "runs.db")), (sql, values) =>
    ready ? fails?.(sql, values) : undefined,
  );
  const store = new SqliteStore(db, { synchronous: "NORMAL", ...options, closeDatabase: true });
  ready = true;
  db.statements.length = 0;
  opened.push(store);
  return { store, db };
}

/** The answers, or the messages of the errors. */
async function settled(writes: readonly Promise<unknown>[]): Promise<readonly unknown[]> {
  const outcomes = await Promise.allSettled(writes);
  return outcomes.map((outcome) =>
    outcome.status === "fulfilled" ? outcome.value : (outcome.reason as Error).message,
  );
}

function numbers(count: number): readonly number[] {
  return Array.from({ length: count }, (_, n) => n);
}
