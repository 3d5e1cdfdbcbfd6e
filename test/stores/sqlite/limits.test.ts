import { SqliteStore } from "cadenza/sqlite";
import { expect, it } from "vitest";
import { CheckClock, NOW } from "../../../src/stores/contract/check.ts";
import {
  append,
  create,
  ended,
  keep,
  over,
  runKey,
  take,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { complaintsOf } from "../../harness/slot-judge.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

const rate = { count: 2, perMs: 10 };
const both = [
  { key: "a", max: 3 },
  { key: "b", rate },
];

it("of what a rate has given no more is kept than counts, and nothing once it is pruned", async () => {
  const clock = new CheckClock(NOW);
  const db = openDatabase(":memory:");
  const store = new SqliteStore(db, { clock, closeDatabase: true });
  const rows = (table: string) => db.prepare(`SELECT * FROM ${table}`).all().length;
  for (let n = 0; n < 20; n++) {
    clock.set(NOW + 10 * n);
    await create(store, n, { slots: both, head: waiting(NOW) });
    expect(await take(store)).toHaveLength(1);
    await append(store, runKey(n), 1, write([ended()], { head: over(NOW, { epoch: 3 }) }), 2);
    expect(complaintsOf(db)).toEqual([]);
  }
  expect(rows("cadenza_grants")).toBeLessThanOrEqual(2 * rate.count);
  await store.prune(keep);
  expect([rows("cadenza_grants") > 0, rows("cadenza_slots")]).toEqual([true, 1]);
  clock.set(NOW + 200);
  await store.prune(keep);
  expect([rows("cadenza_grants"), rows("cadenza_slots")]).toEqual([0, 0]);
  store.close();
});

it("a take reads as many rows beside 100 runs that wait for a rate as beside 5,000", async () => {
  const few = await readsBeside(100);

  expect(few.rows).toBeGreaterThan(0);
  expect(await readsBeside(5_000)).toEqual(few);
});

async function readsBeside(count: number) {
  const clock = new CheckClock(NOW);
  const db = new RecordingDatabase(openDatabase(":memory:"));
  const store = new SqliteStore(db, { clock, closeDatabase: true });
  for (let n = 0; n < count; n++) await create(store, n, { slots: both, head: waiting(NOW) });
  expect(await take(store)).toHaveLength(2);
  clock.set(NOW + 10);
  db.rows = 0;
  db.statements.length = 0;
  expect(await take(store)).toHaveLength(1);
  const { rows } = db;
  const statements = db.statements.length;
  store.close();
  return { rows, statements };
}
