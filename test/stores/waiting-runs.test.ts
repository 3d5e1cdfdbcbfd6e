import { MemoryStore } from "cadenza";
import { SqliteStore } from "cadenza/sqlite";
import type { RunHead, Store } from "cadenza/store";
import { expect, it } from "vitest";
import { CheckClock, NOW } from "../../src/stores/contract/check.ts";
import { create, head, runId, take, waiting } from "../../src/stores/contract/samples.ts";
import { RecordingDatabase } from "../harness/recording-database.ts";
import { openDatabase } from "../harness/sqlite-files.ts";

const KEYS = 1_000;

/*
 * Runs that wait for permits cost a `take` nothing, however many they are. In memory what is read of their heads is counted,
 * in SQLite what is read of the database.
 */

it("a take in memory reads nothing of the runs that wait for permits", async () => {
  expect(await readsInMemory(10)).toBe(0);
  expect(await readsInMemory(10_000)).toBe(0);
});

it("a take in SQLite reads as many rows beside 10 runs that wait for permits as beside 10,000", async () => {
  const few = await readsInSqlite(10);

  expect(few.rows).toBeGreaterThan(0);
  expect(await readsInSqlite(10_000)).toEqual(few);
});

async function readsInMemory(count: number): Promise<number> {
  const store = new MemoryStore({ clock: new CheckClock(NOW) });
  let reads = 0;
  const read = <Value>(value: Value): Value => {
    reads += 1;
    return value;
  };
  await fill(store, count, (given) => ({
    ...given,
    get owner() {
      return read(given.owner);
    },
    get due_at() {
      return read(given.due_at);
    },
    get holds_slot() {
      return read(given.holds_slot);
    },
  }));
  expect(reads).toBeGreaterThan(count);
  reads = 0;
  await takeDue(store);
  return reads;
}

async function readsInSqlite(count: number) {
  const db = new RecordingDatabase(openDatabase(":memory:"));
  const store = new SqliteStore(db, { clock: new CheckClock(NOW), closeDatabase: true });
  await fill(store, count);
  db.rows = 0;
  db.statements.length = 0;
  await takeDue(store);
  const { rows } = db;
  const statements = db.statements.length;
  store.close();
  return { rows, statements };
}

/** Runs that wait for permits of full slots, which were due before some others. */
async function fill(store: Store, count: number, watched = (given: RunHead): RunHead => given): Promise<void> {
  await store.renew("alive", Number.POSITIVE_INFINITY);
  const slotOf = (n: number) => ({ key: `session ${n % KEYS}`, max: 1 });
  const holders = Array.from({ length: Math.min(count, KEYS) }, (_, n) => n);
  const holding = head({ owner: "alive", holds_slot: true });
  await Promise.all(holders.map((n) => create(store, n, { slot: slotOf(n), head: holding })));
  const waits = Array.from({ length: count }, (_, n) => n);
  const queued = waiting(NOW - 99);
  await Promise.all(waits.map((n) => create(store, KEYS + n, { slot: slotOf(n), head: watched(queued) })));
  for (const n of [1, 2, 3]) await create(store, 99_000 + n, { head: waiting(NOW) });
}

async function takeDue(store: Store): Promise<void> {
  expect(await take(store, { limit: 8 })).toEqual([99_001, 99_002, 99_003].map(runId));
  expect(await take(store, { limit: 8 })).toEqual([]);
}
