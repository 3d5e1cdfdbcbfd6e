import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import type { RunKey } from "cadenza/store";
import { afterEach, beforeEach, expect, it } from "vitest";
import { CheckClock, NOW } from "../../../src/stores/contract/check.ts";
import {
  append,
  create,
  ended,
  head,
  over,
  parts,
  runId,
  runKey,
  take,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { MOST_THROUGH } from "../../harness/internals.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { complaintsOf } from "../../harness/slot-judge.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

const GATE = "~echo";
const one = { key: "one", max: 1 };

let raw: SqliteDatabase;
let store: SqliteStore;
const clock = new CheckClock(NOW);

beforeEach(() => {
  clock.set(NOW);
  raw = openDatabase(":memory:");
  store = new SqliteStore(raw, { clock, closeDatabase: true });
});

afterEach(() => {
  expect(complaintsOf(raw)).toEqual([]);
  store.close();
});

it("as many runs are through a gate as may be, and the others behind it, in their order", async () => {
  await crowd(store, MOST_THROUGH + 3);
  expect(behind()).toEqual([0, 1, 2].map((n) => MOST_THROUGH + n));
  expect(await take(store, { limit: 31 })).toHaveLength(31);
  expect(behind()).toHaveLength(3);
  expect(await take(store, { limit: 1 })).toEqual([runId(31)]);
  expect(behind()).toEqual([]);
});

it("the runs of a dead owner that wait for a permit come to their gate", async () => {
  await create(store, 1_000, { slot: one, head: head({ holds_slot: true, owner: "alive" }) });
  await store.renew("alive", 1_000_000);
  await crowd(store, MOST_THROUGH + 1, { slot: one, head: head({ owner: "dead" }) });
  expect(await take(store)).toEqual([]);

  expect(behind()).toEqual([MOST_THROUGH]);
});

it.each<[what: string, leave: (key: RunKey) => unknown]>([
  ["claimed", (key) => store.claim(key, { epoch: 1, position: 1 }, head({ epoch: 2 }))],
  ["ended", (key) => append(store, key, 1, write([ended()], { head: over() }))],
  ["blocked", (key) => append(store, key, 1, write([], { head: waiting(NOW, { blocked: mismatch }) }))],
  ["put to sleep", (key) => append(store, key, 1, write([], { head: waiting(NOW + 1) }))],
  ["looked at", (key) => store.post(key, { entries: parts("answer"), due: "look" })],
  ["cancelled", (key) => store.post(key, { entries: parts("cancel"), status: "cancelling", due: "work" })],
])("a run that is %s is gone from behind its gate", async (_what, leave) => {
  await crowd(store, MOST_THROUGH + 2, { slot: one });
  await leave(runKey(MOST_THROUGH));

  expect(behind()).toEqual([MOST_THROUGH + 1]);
});

it("a take with enough runs looks at no other gates, and one without goes round among them", async () => {
  const gates = 20;
  for (let gate = 0; gate < gates; gate++) await crowd(store, MOST_THROUGH + 1, { gate: `~${gate}` }, gate * 100);
  for (let gate = 0; gate < gates; gate++)
    for (let n = 0; n < MOST_THROUGH; n++)
      await append(store, runKey(gate * 100 + n), 1, write([ended()], { head: over() }));
  await create(store, 9_000, { head: waiting(NOW) });
  expect(await take(store, { limit: 1 })).toHaveLength(1);
  expect(behind()).toHaveLength(gates);
  expect(await take(store)).toEqual([]);
  expect(behind()).toHaveLength(4);
  expect(await take(store)).toHaveLength(16);
  expect(behind()).toEqual([]);
  expect(await take(store)).toHaveLength(4);
});

it("a take that may open no gate takes no lock", async () => {
  const db = new RecordingDatabase(openDatabase(":memory:"));
  const counted = new SqliteStore(db, { clock, closeDatabase: true });
  await counted.renew("taker", 1_000_000);
  await crowd(counted, MOST_THROUGH + 1);
  clock.set(NOW - 1);
  for (let n = 0; n < MOST_THROUGH; n++) await counted.post(runKey(n), { entries: parts("message") });
  clock.set(NOW);
  db.statements.length = 0;
  const other = { owner: "taker", agents: [{ agent_name: "other", version: null }], limit: 8 };

  expect(await counted.take(other)).toEqual([]);
  expect(db.statements.filter((sql) => /^\s*(BEGIN|UPDATE|DELETE|INSERT)/.test(sql))).toEqual([]);
  counted.close();
});

it("a take and a create read as many rows beside 100 runs behind a gate as beside 20,000", async () => {
  const few = await readsBeside(100);

  expect(few.rows).toBeGreaterThan(0);
  expect(await readsBeside(20_000)).toEqual(few);
});

const mismatch = { position: 1, expected: "ask#1", asked: "step#1" };

/** Creates due runs of one gate. */
async function crowd(to: SqliteStore, count: number, more: Parameters<typeof create>[2] = {}, from = 0): Promise<void> {
  const numbers = Array.from({ length: count }, (_, n) => from + n);
  await Promise.all(numbers.map((n) => create(to, n, { gate: GATE, head: waiting(NOW), ...more })));
}

/** The numbers of the runs behind their gates, in their order. */
function behind(): readonly number[] {
  const rows = raw.prepare("SELECT run_id FROM cadenza_runs WHERE line = gate ORDER BY turn, id").all();
  return rows.map((row) => Number((row as { run_id: string }).run_id.slice(-12)));
}

async function readsBeside(count: number) {
  const db = new RecordingDatabase(openDatabase(":memory:"));
  const counted = new SqliteStore(db, { clock, closeDatabase: true });
  await crowd(counted, count + MOST_THROUGH);
  db.rows = 0;
  db.statements.length = 0;
  expect(await take(counted, { limit: 40 })).toHaveLength(40);
  await create(counted, 90_000, { gate: GATE, head: waiting(NOW) });
  await create(counted, 90_001, { gate: "other", head: waiting(NOW) });
  expect(counted.lines({ limit: 9 })).toEqual([]);
  const { rows } = db;
  const statements = db.statements.length;
  counted.close();
  return { rows, statements };
}
