import type { SqliteDatabase } from "cadenza/sqlite";
import { SqliteStore } from "cadenza/sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { CheckClock, NOW } from "../../../src/stores/contract/check.ts";
import {
  append,
  create,
  ended,
  head,
  LEASE_END,
  OWNER,
  over,
  runId,
  runKey,
  take,
  tryCreate,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { RecordingDatabase } from "../../harness/recording-database.ts";
import { complaintsOf } from "../../harness/slot-judge.ts";
import { openDatabase } from "../../harness/sqlite-files.ts";

const one = { key: "one", max: 1 };

let raw: SqliteDatabase;
let db: RecordingDatabase;
let clock: CheckClock;
let store: SqliteStore;

beforeEach(() => {
  raw = openDatabase(":memory:");
  db = new RecordingDatabase(raw);
  clock = new CheckClock(NOW);
  store = new SqliteStore(db, { clock, closeDatabase: true });
});

afterEach(() => {
  expect(complaintsOf(raw)).toEqual([]);
  store.close();
});

it("a take gives the runs of higher priorities first, over all agents, and each priority in the order of its times", async () => {
  const priorities = [0, 10, -10, 1, 0, 1, -1];
  for (const [n, priority] of priorities.entries())
    await create(store, n, {
      priority,
      head: waiting(NOW - n),
      created: n % 2 === 0 ? {} : { agent_name: "ask", version: "1" },
    });
  await create(store, 7, { priority: 10, head: waiting(NOW + 1) });
  const agents = [
    { agent_name: "echo", version: null },
    { agent_name: "ask", version: "1" },
  ];
  const given: string[] = [];
  for (let n = 0; n < 4; n++) given.push(...(await take(store, { agents, limit: 2 })));

  expect(given).toEqual([1, 5, 3, 4, 0, 6, 2].map(runId));
  clock.set(NOW + 1);
  expect(await take(store, { agents })).toEqual([runId(7)]);
});

it("a take gives the runs of dead owners in the order of their priorities", async () => {
  await store.renew(OWNER, LEASE_END - NOW);
  for (const [n, priority] of [0, 3, -3, 3].entries()) await create(store, n, { priority, head: head() });
  await create(store, 4, { head: waiting(NOW) });
  await create(store, 5, { priority: 2, head: waiting(NOW) });
  await create(store, 6, { priority: 4, isPlain: true, created: { agent_name: "other" }, head: head() });
  clock.set(LEASE_END);

  expect(await take(store)).toEqual([6, 1, 3, 5, 0, 4, 2].map(runId));
});

it("a run of a higher priority joins a line in front of those of lower ones", async () => {
  await create(store, 1, { slot: one, head: head({ holds_slot: true }) });
  await store.renew(OWNER, 1_000);
  for (const [n, priority] of [0, -1, 2, 0, 2].entries())
    await create(store, 2 + n, { slot: one, priority, head: waiting(NOW - n) });
  const order: string[] = [];
  await append(store, runKey(1), 1, write([ended()], { head: over() }));
  for (let n = 0; n < 5; n++) {
    const [id = ""] = await take(store);
    order.push(id);
    await append(store, { tenant: "acme", run_id: id }, 1, write([ended()], { head: over(NOW, { epoch: 3 }) }), 2);
  }

  expect(order).toEqual([4, 6, 2, 5, 3].map(runId));
});

it("a run passes those of lower priorities that wait for a permit with a lower limit", async () => {
  await create(store, 1, { slot: one, head: head({ holds_slot: true }) });
  await create(store, 2, { slot: one, head: waiting(NOW) });
  const two = { ...one, max: 2 };
  expect(await tryCreate(store, 3, { slot: two, head: head({ holds_slot: true }) })).toMatchObject({
    conflict: "full",
  });
  await create(store, 4, { slot: two, priority: 1, head: waiting(NOW) });

  expect(await take(store, { owner: OWNER })).toEqual([runId(4)]);
});

it("runs of priorities are counted with the others", async () => {
  for (const [n, priority] of [0, 5, -5].entries()) {
    await create(store, n, { priority, head: waiting(NOW - n) });
    await create(store, 10 + n, { priority, head: waiting(NOW + 1 + n) });
    await create(store, 20 + n, { priority, head: waiting(null) });
  }

  expect(store.backlog()).toEqual([
    { agent_name: "echo", version: null, due: 3, since: NOW - 2, waiting: 6, blocked: 0 },
  ]);
});

it("a take reads as many rows beside 100 runs of other priorities as beside 10,000", async () => {
  const few = await readsBeside(100);

  expect(few.rows).toBeGreaterThan(0);
  expect(await readsBeside(10_000)).toEqual(few);
});

it("with the priority 0 alone, an idle take makes as many statements as before there were others", async () => {
  await create(store, 1, { head: waiting(NOW + 1) });
  await store.renew("taker", 1_000);
  db.statements.length = 0;
  db.rows = 0;

  expect(await store.take({ owner: "taker", agents: [{ agent_name: "echo", version: null }], limit: 8 })).toEqual([]);
  expect(db.statements.filter((sql) => sql.includes("cadenza_runs_apart"))).toHaveLength(1);
  // One of them reads the pauses.
  expect({ statements: db.statements.length, rows: db.rows }).toEqual({ statements: 4, rows: 1 });
});

/** What a take reads beside many runs of other priorities: some are due and of lower ones, others wait for a time. */
async function readsBeside(count: number) {
  const counted = new RecordingDatabase(openDatabase(":memory:"));
  const filled = new SqliteStore(counted, { clock, closeDatabase: true });
  const others = Array.from({ length: count }, (_, n) => n);
  await Promise.all(
    others.map((n) =>
      create(filled, n, n % 2 === 0 ? { priority: -1, head: waiting(0) } : { priority: 2, head: waiting(NOW + 9) }),
    ),
  );
  for (const n of [1, 2, 3]) await create(filled, 99_000 + n, { priority: n - 1, head: waiting(NOW) });
  counted.rows = 0;
  counted.statements.length = 0;
  expect(await take(filled, { limit: 3 })).toEqual([99_003, 99_002, 99_001].map(runId));
  const { rows } = counted;
  const statements = counted.statements.length;
  filled.close();
  return { rows, statements };
}
