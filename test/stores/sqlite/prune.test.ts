import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { create, created, createEnded, keep } from "../../../src/stores/contract/samples.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

/** More than are passed over in one turn. */
const RUNS = 20_000;

describe(`among ${RUNS} ended runs`, () => {
  it("those beyond a number are deleted from the first on, and the last of them is looked for once", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true });
    fill(db);
    expect(await store.prune({ ...keep, maxRuns: RUNS })).toBe(0);
    // The runs in segments of 10,000.
    expect(passes(db)).toBe(2);
    db.statements.length = 0;
    expect(await store.prune({ ...keep, maxRuns: RUNS - 1_050 })).toBe(1_050);
    // The oldest segment, all of them again before a run is deleted, and the runs that are too many.
    expect(passes(db)).toBe(4);
    expect(db.prepare("SELECT min(finished_at) AS first FROM cadenza_runs").get()).toMatchObject({ first: 1_051 });
    expect(await store.prune({ ...keep, endedBefore: 1_101 })).toBe(50);
    store.close();
  });

  it("a process that has just started counts the runs that have ended since another one counted", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const first = new SqliteStore(db);
    fill(db);
    await first.prune({ ...keep, maxRuns: RUNS });
    fill(db, RUNS, RUNS + 10);
    db.statements.length = 0;
    expect(await new SqliteStore(db).prune({ ...keep, maxRuns: RUNS })).toBe(0);
    // The oldest segment, and the new runs.
    expect(passes(db)).toBe(2);
    db.close();
  });

  it("runs that a live parent may read again are looked at once", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true });
    fill(db);
    db.exec("UPDATE cadenza_runs SET parent = 'alive' WHERE finished_at <= 1000");
    db.exec(`INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, status, epoch, holds_slot, takeovers, position, created_at)
      VALUES ('acme', 'alive', 'echo', 'alive', 'awaiting', 1, 0, 0, 1, 0)`);
    db.statements.length = 0;
    expect(await store.prune({ ...keep, endedBefore: 1_501 })).toBe(500);
    // 100 at once, or as many as 16 that are deleted.
    expect(db.statements.filter((sql) => sql.includes("AS needed")).length).toBeLessThan(11 + 500 / 16 + 1);
    store.close();
  });
});

describe(`rules among ${RUNS} ended runs`, () => {
  const NOW = 1_000_000_000;
  const clock = { now: () => NOW };
  const rule = { agent_name: "mail", maxRuns: 15_000, endedBefore: RUNS };
  const looks = (db: RecordingDatabase) => db.statements.splice(0).filter((sql) => sql.includes("AS rule")).length;

  it("look at each run when it has ended, and when it is too old or one too many", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true, clock });
    fill(db);
    expect(await store.prune({ ...keep, rules: [rule] })).toBe(0);
    // 500 at once, to count them, and again for their ages. That there are no more: up to a minute ago, and after that.
    expect(looks(db)).toBe(40 + 2 + 40);
    expect(await store.prune({ ...keep, rules: [rule] })).toBe(0);
    expect(looks(db)).toBe(2);
    fill(db, RUNS, RUNS + 500);
    expect(await store.prune({ ...keep, rules: [{ ...rule, endedBefore: RUNS + 300 }] })).toBe(0);
    expect(looks(db)).toBe(2 + 1 + 1);
    // A process with other rules has looked at nothing.
    expect(await store.prune({ ...keep, rules: [{ ...rule, agent_name: "echo", maxRuns: 20_500 }] })).toBe(RUNS - 1);
    store.close();
  });

  it("go on where a process was killed", async () => {
    const folder = mkdtempSync(join(tmpdir(), "cadenza-"));
    const db = new RecordingDatabase(openDatabase(join(folder, "runs.db")));
    const open = () => new SqliteStore(db, { clock });
    open();
    fill(db);
    const rules = [{ ...rule, maxRuns: Number.POSITIVE_INFINITY }];
    let left = 17;
    const dies = new SqliteStore(
      {
        exec: (sql) => db.exec(sql),
        close: () => undefined,
        prepare(sql) {
          if (!sql.includes("AS rule")) return db.prepare(sql);
          const { get, run, all } = db.prepare(sql);
          return { get, run, all: (...values) => (--left < 0 ? expect.fail("killed") : all(...values)) };
        },
      },
      { clock },
    );
    await expect(dies.prune({ ...keep, rules })).rejects.toThrow("killed");
    db.statements.length = 0;
    expect(await open().prune({ ...keep, rules })).toBe(0);
    // The place is written each 16 times.
    expect(looks(db)).toBe(40 - 16);
    db.close();
    rmSync(folder, { recursive: true });
  });
});

describe("the log of a deleted run with many entries", () => {
  const LONG = 10_000;
  /** Makes the log of a run as long as that. */
  const lengthen = (db: SqliteDatabase) =>
    db.exec(`WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${LONG} - 1)
      INSERT INTO cadenza_entries (id, lines) SELECT (1 << 26 | n), '{}' || char(10) FROM numbers;
      UPDATE cadenza_runs SET position = ${LONG} WHERE id = 1`);
  const entries = (db: SqliteDatabase) =>
    Number((db.prepare("SELECT count(*) AS count FROM cadenza_entries").get() as { count: unknown }).count);

  it("is deleted in pieces, between which other runs are written", async () => {
    const db = new RecordingDatabase(openDatabase(":memory:"));
    const store = new SqliteStore(db, { closeDatabase: true });
    const key = await createEnded(store, 1, 10);
    lengthen(db);
    db.statements.length = 0;
    expect(await store.delete([key])).toBe(1);
    const transactions = db.statements.join("\n").split("COMMIT");
    const pieces = transactions.map((sql) => sql.split("DELETE FROM cadenza_entries WHERE id IN").length - 1);
    expect(Math.max(...pieces)).toBeLessThanOrEqual(64);
    expect(pieces.reduce((sum, count) => sum + count)).toBe(Math.ceil(LONG / 64));
    expect(entries(db)).toBe(0);
    store.close();
  });

  it("is not found any more, nor are its entries those of a new run, when the process was killed meanwhile", async () => {
    const db = openDatabase(":memory:");
    const store = new SqliteStore(db, { closeDatabase: true });
    await createEnded(store, 1, 10);
    lengthen(db);
    db.exec("DELETE FROM cadenza_runs; INSERT INTO cadenza_removed (run) VALUES (1)");
    const key = await create(store, 2);
    expect(store.read(key, 0, 10)).toEqual([created(2)]);
    expect(store.find(key)?.position).toBe(1);
    expect(await store.prune(keep)).toBe(0);
    expect(entries(db)).toBe(1);
    expect(store.read(key, 0, 10)).toEqual([created(2)]);
    store.close();
  });
});

describe(`of ${RUNS} ended runs and more`, () => {
  const MAX = 15_000;
  const most = { ...keep, maxRuns: MAX };
  let folder: string;
  let database: ReturnType<typeof openDatabase>;
  let now: number;
  const opened: SqliteStore[] = [];
  const open = () => {
    const store = new SqliteStore(openDatabase(join(folder, "runs.db")), {
      closeDatabase: true,
      clock: { now: () => now },
    });
    opened.push(store);
    return store;
  };
  const stored = () => Number(Object.values(database.prepare("SELECT count(*) FROM cadenza_runs").get() as object)[0]);

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "cadenza-"));
    now = 1_000_000;
    open();
    database = openDatabase(join(folder, "runs.db"));
    fill(database);
  });
  afterEach(() => {
    database.close();
    for (const store of opened.splice(0)) store.close();
    rmSync(folder, { recursive: true });
  });

  it("a process deletes as many as have ended since, whichever processes delete them", async () => {
    const [first, second] = [open(), open()];
    expect(await first.prune(most)).toBe(RUNS - MAX);
    expect(await second.prune(most)).toBe(0);
    for (let from = RUNS; from < RUNS + 9_000; from += 3_000) {
      fill(database, from, from + 1_000);
      expect(await first.prune(most)).toBe(1_000);
      fill(database, from + 1_000, from + 3_000);
      expect(await second.prune(most)).toBe(2_000);
      expect(stored()).toBe(MAX);
    }
  });

  it("a process deletes no kept run because runs are deleted by their keys, or by their age", async () => {
    const store = open();
    await store.prune(most);
    const ids = [12_000, 12_001, 19_000].map((n) => ({ tenant: "acme", run_id: idOf(n) }));
    expect(await store.delete(ids)).toBe(3);
    expect(await store.prune({ ...most, endedBefore: 6_001 })).toBe(1_000);
    fill(database, RUNS, RUNS + 1_003);
    expect(await store.prune(most)).toBe(0);
    fill(database, RUNS + 1_003, RUNS + 1_303);
    expect(await store.prune(most)).toBe(300);
    expect(stored()).toBe(MAX);
  });

  it("a 64th more is kept, and what another process has deleted by keys is not deleted once more", async () => {
    const store = open();
    await store.prune(most);
    database.exec("DELETE FROM cadenza_runs WHERE finished_at > 19990");
    fill(database, RUNS, RUNS + 240);
    expect(await store.prune(most)).toBe(0);
    fill(database, RUNS + 240, RUNS + 244);
    expect(await store.prune(most)).toBe(0);
    fill(database, RUNS + 244, RUNS + 245);
    expect(await store.prune(most)).toBe(235);
    expect(stored()).toBe(MAX);
  });

  it("runs that a process with a slower clock adds late are counted, within a minute", async () => {
    const store = open();
    now = RUNS + 1;
    await store.prune(most);
    fill(database, RUNS, RUNS + 235);
    database.exec(`UPDATE cadenza_runs SET finished_at = ${RUNS - 100} WHERE finished_at > ${RUNS}`);
    expect(await store.prune(most)).toBe(235);
    expect(stored()).toBe(MAX);
  });

  it("a call with a higher number deletes nothing that was too much for a lower one", async () => {
    const store = open();
    await store.prune(most);
    database.exec(`UPDATE cadenza_runs SET finished_at = 5 WHERE finished_at = ${RUNS}`);
    expect(await store.prune({ ...most, maxRuns: MAX + 1 })).toBe(0);
    expect(stored()).toBe(MAX);
  });
});

function idOf(n: number): string {
  return `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
}

/** How often runs were passed over, to find those that are too many. */
function passes(db: RecordingDatabase): number {
  return db.statements.filter((sql) => sql.includes("LIMIT 1 OFFSET")).length;
}

/** Runs of which the n-th ended at n. */
function fill(db: SqliteDatabase, from = 0, to = RUNS): void {
  db.exec(`WITH RECURSIVE numbers (n) AS (SELECT ${from + 1} UNION ALL SELECT n + 1 FROM numbers WHERE n < ${to})
    INSERT INTO cadenza_runs (tenant, run_id, agent_name, session_id, status, epoch, holds_slot, finished_at, takeovers, position, created_at)
    SELECT 'acme', printf('00000000-0000-4000-8000-%012d', n), 'echo', printf('00000000-0000-4000-8000-%012d', n),
      'completed', 1, 0, n, 0, 1, n FROM numbers`);
}
