import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
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
import { ASIDE_MS, quoteName } from "../../harness/internals.ts";
import { borrowSchema, missingServer, newPool, PATIENT } from "../../harness/postgres-stores.ts";
import { lineComplaints } from "./line-judge.ts";

const missing = missingServer(18);
const START = Date.UTC(2030, 0, 1);
const one = { key: "one", max: 1 };
const holding = head({ holds_slot: true });
const ask = { agent_name: "ask" };
const agents = [
  { agent_name: "echo", version: null },
  { agent_name: "ask", version: null },
];

describe.skipIf(missing !== undefined)(`priorities on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let name: string;
  let schema: string;
  let now: number;
  let store: PostgresStore;
  /** A store whose time is that of the server. */
  let timely: PostgresStore;

  beforeAll(() => {
    pool = newPool(18, { max: 8 });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    name = borrowSchema(pool);
    schema = quoteName(name);
    now = START;
    store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock: { now: () => now } });
    timely = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT });
  });
  afterEach(async () => {
    expect(await lineComplaints(pool, schema)).toEqual([]);
    await store.close();
    await timely.close();
  });

  const due = (n: number, priority: number, changes: object = {}) =>
    create(store, n, { head: waiting(now), priority, ...changes });
  const ids = (...numbers: readonly number[]) => numbers.map(runId);

  it("go first, over all agents of a call, whenever their time has come", async () => {
    await due(1, 0);
    await due(2, -1);
    await due(3, 10, { head: waiting(now + 5) });
    now += 1;
    await due(4, 1, { created: ask });
    await due(5, 10);
    await due(6, 1);
    await due(7, -10, { head: waiting(now - 1_000) });
    expect(await take(store, { agents, limit: 2 })).toEqual(ids(5, 4));
    now += 5;
    expect(await take(store, { agents })).toEqual(ids(3, 6, 1, 2, 7));
  });

  it("are those of runs that are woken, posted to, given back or of dead owners, too", async () => {
    for (const n of [1, 2, 3]) await due(n, n, { head: waiting() });
    await due(4, 4, { head: head({ owner: "dead", due_at: now }) });
    await due(5, 5, { head: head({ owner: "dead" }) });
    await due(6, 0);
    await due(7, 7, { head: head({ owner: "owner-1" }) });
    await store.post(runKey(1), { entries: parts("a"), due: "work" });
    await append(store, runKey(7), 1, write(parts("b"), { head: waiting(now - 9_000), wake: runKey(2) }));
    expect(await take(store)).toEqual(ids(7, 5, 4, 2, 1, 6));
  });

  it("are in front in the line of a slot, behind others of their own", async () => {
    await store.renew("owner-1", 1_000_000_000);
    await create(store, 0, { slot: one, head: holding });
    for (const [n, priority] of [0, -2, 3, 0, 3, 3].entries()) await due(n + 1, priority, { slot: one });
    now += 50;
    await due(7, 3, { slot: one });
    await due(8, 0, { slot: one });
    expect(await store.lines({ limit: 9 })).toMatchObject([{ waiting: 8, first: { key: runKey(3), due_at: START } }]);
    const order: string[] = [];
    for (let last = 0; order.length < 8; ) {
      await append(
        store,
        runKey(last),
        1,
        write([ended()], { head: over(now, { epoch: last === 0 ? 1 : 2 }) }),
        last === 0 ? 1 : 2,
      );
      const [next = ""] = await take(store);
      order.push(next);
      last = Number(next.slice(-3));
      expect(await lineComplaints(pool, schema)).toEqual([]);
    }
    expect(order).toEqual(ids(3, 5, 6, 7, 1, 4, 8, 2));
    const { rows } = await pool.query(`SELECT bands FROM ${schema}.slots`);
    expect(rows).toEqual([{ bands: null }]);
  });

  it("are counted, and what waits is told from what is due", async () => {
    for (const [n, priority] of [0, 2, -2, 10, -10].entries()) {
      await due(3 * n, priority);
      await due(3 * n + 1, priority, { head: waiting(now + 60_000) });
      await due(3 * n + 2, priority, { head: waiting(ASIDE_MS + now) });
    }
    await due(90, 1, { head: waiting(1e13) });
    await due(91, 0, { head: waiting(1e15) });
    const count = { agent_name: "echo", version: null, due: 5, since: now, blocked: 0 };
    expect(await store.backlog()).toEqual([{ ...count, waiting: 12 }]);
    expect(await take(store)).toEqual(ids(9, 3, 0, 6, 12));
  });

  it("give a slot back only after as long as others", async () => {
    await store.renew("owner-1", 1_000_000_000);
    for (const [n, priority] of [4, -4].entries()) {
      const slot = { key: `key ${n}`, max: 1 };
      const version = { created: { version: "old" } };
      await due(10 * n, priority, { slot, ...version });
      await due(10 * n + 1, 0, { slot });
    }
    now += 100;
    expect(await take(store, { unusedForMs: 200 })).toEqual([]);
    now += 100;
    expect(await take(store, { unusedForMs: 200 })).toEqual(ids(1, 11));
  });

  it("of cancelled runs that no process has code for are those of their end", async () => {
    for (const [n, priority] of [0, 5, -5].entries()) {
      await due(n, priority, { created: ask });
      await store.post(runKey(n), { entries: parts("a"), status: "cancelling", due: "look" });
    }
    now += 99;
    expect(await take(store, { cancelledForMs: 100 })).toEqual([]);
    now += 1;
    expect(await take(store, { cancelledForMs: 100 })).toEqual(ids(1, 0, 2));
  });

  it("hold for runs that come back from a pause", async () => {
    for (const [n, priority] of [0, 7, 7, 0].entries())
      await due(n, priority, { head: waiting(ASIDE_MS + now - n), tenant: "paused" });
    expect(await store.comeBack(9)).toBe(4);
    expect(await take(store)).toEqual(ids(2, 1, 3, 0));
  });

  it("are found by a process that has looked before, and by one that has not", async () => {
    const at = (n: number, priority: number, ms = 0) => create(timely, n, { head: waiting(Date.now() - ms), priority });
    expect(await take(timely)).toEqual([]);
    await at(1, 0);
    await at(2, 3);
    expect(await take(timely)).toEqual(ids(2, 1));
    for (let calls = 0; calls < 3; calls++) expect(await take(timely)).toEqual([]);
    await at(3, -3, 3_600_000);
    await at(4, 3, 3_600_000);
    await at(5, 9, 3_600_000);
    await at(6, 0, 3_600_000);
    expect(await take(timely, { limit: 1 })).toEqual(ids(5));
    expect(await take(timely)).toEqual(ids(4, 6, 3));
  });

  it("that waits for long is not passed over while others go first all the time", async () => {
    await create(timely, 0, { head: waiting(Date.now()), priority: -1 });
    for (let n = 1; n < 30; n++) {
      await create(timely, n, { head: waiting(Date.now()), priority: 1 });
      expect(await take(timely, { limit: 1 })).toEqual(ids(n));
    }
    expect(await take(timely, { limit: 1 })).toEqual(ids(0));
  });

  it("cost nothing where no run has one", async () => {
    await store.renew("owner-1", 1_000_000_000);
    for (const n of [1, 2, 3]) await due(n, 0, { slot: one });
    const { rows } = await pool.query(`SELECT
      (SELECT count(*) FROM ${schema}.priorities) AS priorities, (SELECT count(bands) FROM ${schema}.slots) AS bands,
      (SELECT count(priority) FROM ${schema}.runs) AS runs`);
    expect(rows).toEqual([{ priorities: "0", bands: "0", runs: "0" }]);
  });

  it("a line of one priority is not walked because of what others have left of another one", async () => {
    await store.renew("owner-1", 1_000_000_000);
    const old = await pool.connect();
    await old.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await old.query("SELECT 1");
    await create(store, 0, { slot: one, head: holding });
    const passing = 300;
    // Each joins, and is ended in the line.
    for (let n = 1; n <= passing; n++) {
      await due(n, 0, { slot: one });
      await append(store, runKey(n), 1, write([ended()], { head: over() }));
    }
    await due(1_000, 0, { slot: one });
    const cost = async (n: number): Promise<number> => {
      const before = await readOf();
      await due(n, 5, { slot: one });
      await append(store, runKey(n), 1, write([ended()], { head: over() }));
      return (await readOf()) - before;
    };
    await cost(2_000);
    expect(await cost(2_001)).toBeLessThan(passing / 3);
    await old.query("ROLLBACK");
    old.release();
  });

  /** How many entries of the line's index were read. */
  async function readOf(): Promise<number> {
    const client = await pool.connect();
    await client.query("SELECT pg_stat_force_next_flush()");
    client.release();
    const { rows } = await pool.query(
      "SELECT idx_tup_read AS read FROM pg_stat_user_indexes WHERE schemaname = $1 AND indexrelname = 'runs_in_line'",
      [name],
    );
    return Number(rows[0].read);
  }
});
