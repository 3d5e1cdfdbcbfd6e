import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { Expected, RunPost, RunWrite, Store } from "cadenza/store";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { NOW } from "../../../src/stores/contract/check.ts";
import {
  counters,
  create,
  created,
  ended,
  head,
  OWNER,
  over,
  part,
  runId,
  runKey,
  sessionId,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";

/*
 * The plain writes of a batch are made together, the others in turn. What is made together is there as if it was made in
 * turn. One schema lacks the functions that make writes in turn, so that each write there was plain.
 */

const missing = missingServer(18);
/** How many runs are written at a time: enough for a batch. */
const RUNS = 5;
const LATER = NOW + 60_000;
const LONG_AGO = NOW - 60_000;
const completed = counters({ completed: 1 });

/** A write for each run, and what the run has before it: its number is that of the run. */
interface Plain {
  readonly before?: ((store: Store, n: number) => Promise<unknown>) | undefined;
  readonly write: (store: Store, n: number) => unknown;
}

function ofOwnSession(n: number): RunWrite["session"] {
  return { session_id: runId(n), create: false, at: NOW, generation: runId(n), messages: () => [] };
}

const isExecuted = (store: Store, n: number) => create(store, n);
const waits = (store: Store, n: number) => create(store, n, { head: waiting() });
/** A run that is executed, and that another one has woken. */
const isWoken = async (store: Store, n: number) => {
  await isExecuted(store, n);
  await create(store, 100 + n, { wake: runKey(n) });
};
/** Appends to a run in epoch 1 that has one entry. `expected`: the owner that the run has, and its wake-ups. */
const append = (store: Store, n: number, change: Partial<RunWrite>, expected: Partial<Expected> = {}) =>
  store.append(
    runKey(n),
    { epoch: 1, position: 1, owner: OWNER, wakes: 0, ...expected },
    write([part(`${n}`)], change),
  );

const post = (store: Store, n: number, change: Partial<RunPost> = {}) =>
  store.post(runKey(n), { entries: [part("told")], ...change });
const isBlocked = (store: Store, n: number) =>
  create(store, n, { head: waiting(null, { blocked: { position: 1, expected: "a", asked: "b" } }) });

const plain: Readonly<Record<string, Plain>> = {
  "creates a run that is executed": { write: isExecuted },
  "creates a run that waits": { write: waits },
  "creates a run that waits until a time": { write: (store, n) => create(store, n, { head: waiting(LATER) }) },
  "creates a run that is due": {
    write: (store, n) => create(store, n, { head: head({ status: "created", owner: null, due_at: NOW }) }),
  },
  "creates a run that is due since long ago": {
    write: (store, n) => create(store, n, { head: head({ status: "created", owner: null, due_at: LONG_AGO }) }),
  },
  "creates a run that has ended": {
    write: (store, n) =>
      store.create(
        runKey(n),
        write([created(n), ended()], {
          head: over(NOW, { epoch: 1 }),
          session: ofOwnSession(n),
          counters: completed,
        }),
        null,
      ),
  },
  "adds to a run that keeps its owner": { before: isExecuted, write: (store, n) => append(store, n, {}) },
  "adds nothing, and changes the head": {
    before: isExecuted,
    write: (store, n) => append(store, n, { entries: [], head: head({ due_at: LATER }) }),
  },
  "ends a run": {
    before: isExecuted,
    write: (store, n) => append(store, n, { head: over(), session: ofOwnSession(n), counters: completed }),
  },
  "adds to a run that was woken": { before: isWoken, write: (store, n) => append(store, n, {}) },
  "ends a run that was woken": { before: isWoken, write: (store, n) => append(store, n, { head: over() }) },
  "takes the owner from a run that was woken, knowing of it": {
    before: isWoken,
    write: (store, n) =>
      append(store, n, { entries: [], head: waiting(LATER, { epoch: 2 }), takes: "all" }, { wakes: 1 }),
  },
  "gives a waiting run an owner": {
    before: waits,
    write: (store, n) => append(store, n, { head: head({ epoch: 2 }) }, { owner: null }),
  },
  "takes the owner from a run that waits": {
    before: isExecuted,
    write: (store, n) => append(store, n, { head: waiting(LATER, { epoch: 2 }), takes: "all" }),
  },
  "takes the owner from a run that is due since long ago": {
    before: isExecuted,
    write: (store, n) => append(store, n, { head: waiting(LONG_AGO, { epoch: 2 }), takes: "all" }),
  },
  "posts to a run that waits": { before: waits, write: (store, n) => post(store, n) },
  "posts to a run that waits, and is due then": { before: waits, write: (store, n) => post(store, n, { due: "work" }) },
  "posts to a run that waits, at which is looked then": {
    before: waits,
    write: (store, n) => post(store, n, { due: "look" }),
  },
  "posts to a run that waits until a time, and is due then": {
    before: (store, n) => create(store, n, { head: waiting(LATER) }),
    write: (store, n) => post(store, n, { due: "work", unlessCancelling: true }),
  },
  "posts to a run that is due since long ago": {
    before: (store, n) => create(store, n, { head: waiting(LONG_AGO) }),
    write: (store, n) => post(store, n, { due: "work" }),
  },
  "posts to a blocked run": { before: isBlocked, write: (store, n) => post(store, n, { due: "look" }) },
  "posts to a run that is being cancelled": {
    before: async (store, n) => {
      await waits(store, n);
      await post(store, n, { status: "cancelling" });
    },
    write: (store, n) => post(store, n, { due: "work" }),
  },
};

/** Writes that are not plain, each for one reason. */
const ruled: Readonly<Record<string, Plain>> = {
  "creates a run with a slot": { write: (store, n) => create(store, n, { slot: { key: `slot ${n}`, max: 1 } }) },
  "creates a run with labels": { write: (store, n) => create(store, n, { created: { labels: { n: `${n}` } } }) },
  "creates a run with an idempotency key": { write: (store, n) => create(store, n, { idempotencyKey: `${n}` }) },
  "creates a run with a priority": { write: (store, n) => create(store, n, { priority: 1 }) },
  "creates a run with a session": {
    write: (store, n) =>
      create(store, n, { session: { session_id: sessionId(n), create: true, at: NOW, messages: () => [] } }),
  },
  "takes the owner from a run that was woken": {
    before: isWoken,
    write: (store, n) => append(store, n, { head: waiting(LATER, { epoch: 2 }), takes: "all" }),
  },
  "wakes another run": { before: isExecuted, write: (store, n) => append(store, n, { wake: runKey(100 + n) }) },
  "adds to a run for which something has arrived": {
    before: async (store, n) => {
      await isExecuted(store, n);
      await store.post(runKey(n), { entries: [part("told")] });
    },
    write: (store, n) => append(store, n, { takes: [] }),
  },
  "posts to a run that is executed": { before: isExecuted, write: (store, n) => post(store, n) },
  "posts to a run that has a slot": {
    before: (store, n) => create(store, n, { head: waiting(), slot: { key: `slot ${n}`, max: 1 } }),
    write: (store, n) => post(store, n),
  },
  "posts to a run with a priority": {
    before: (store, n) => create(store, n, { head: waiting(), priority: 1 }),
    write: (store, n) => post(store, n),
  },
  "posts to a run that has ended": {
    before: async (store, n) => {
      await isExecuted(store, n);
      await append(store, n, { head: over() });
    },
    write: (store, n) => post(store, n),
  },
  "posts twice to a run": { before: waits, write: (store, n) => Promise.all([post(store, n), post(store, n)]) },
  "unblocks a run": { before: isBlocked, write: (store, n) => post(store, n, { unblocks: true }) },
  "cancels a run that waits": { before: waits, write: (store, n) => post(store, n, { status: "cancelling" }) },
  "posts to a run unless it is being cancelled": {
    before: async (store, n) => {
      await waits(store, n);
      await post(store, n, { status: "cancelling" });
    },
    write: (store, n) => post(store, n, { unlessCancelling: true }),
  },
  "ends a run without an owner": {
    before: waits,
    write: (store, n) => append(store, n, { head: over() }, { owner: null }),
  },
};

describe.skipIf(missing !== undefined)(`the plain writes of a batch${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18, { max: 4 });
  });
  afterAll(() => pool.end());

  let together: string;
  let inTurn: string;
  const open = (schema: string): Promise<PostgresStore> =>
    openPostgresStore({ pool, schema, hints: false, ...PATIENT, clock: { now: () => NOW } });
  beforeEach(() => {
    [together, inTurn] = [newSchema(), newSchema()];
  });

  const numbers = Array.from({ length: RUNS }, (_, n) => n + 1);
  const nothingInTurn = async (schema: string): Promise<void> => {
    const name = quoteName(schema);
    await pool.query(`ALTER FUNCTION ${name}.create_v2(jsonb, float8) RENAME TO create_gone;
      ALTER FUNCTION ${name}.change_v1(jsonb, float8) RENAME TO change_gone`);
  };
  /** All that the tables have of the runs, but for times and numbers that the server gives. */
  const tables = async (schema: string): Promise<unknown> => {
    const name = quoteName(schema);
    const { rows } = await pool.query(`SELECT to_jsonb(r) - ARRAY['id'] AS run,
      (SELECT jsonb_agg(to_jsonb(e) - 'run' ORDER BY e.position) FROM ${name}.entries e WHERE e.run = r.id) AS entries
      FROM ${name}.runs r ORDER BY r.run_id`);
    const counted = await pool.query(`SELECT to_jsonb(c) - 'shard' AS counters FROM ${name}.counters c`);
    return [rows, counted.rows];
  };

  it.each(Object.entries(plain))("are there as if they were made in turn: a write that %s", async (_name, given) => {
    const stores = await Promise.all([together, inTurn].map(open));
    for (const store of stores) for (const n of numbers) await given.before?.(store, n);
    const [atOnce, oneByOne] = stores as [PostgresStore, PostgresStore];
    await nothingInTurn(together);
    await Promise.all(numbers.map((n) => given.write(atOnce, n)));
    for (const n of numbers) await given.write(oneByOne, n);
    expect(await tables(together)).toEqual(await tables(inTurn));
    await Promise.all(stores.map((store) => store.close()));
  });

  it.each(Object.entries(ruled))("leave what needs a rule to its turn: a write that %s", async (_name, given) => {
    const store = await open(together);
    for (const n of numbers) await given.before?.(store, n);
    await nothingInTurn(together);
    const before = await tables(together);
    const made = await Promise.allSettled(numbers.map(async (n) => given.write(store, n)));
    expect(made.map(({ status }) => status)).toEqual(numbers.map(() => "rejected"));
    expect(await tables(together)).toEqual(before);
    await store.close();
  });
});
