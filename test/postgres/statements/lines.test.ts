import type { PostgresPool, PostgresStore, PostgresStoreOptions } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { RunHead, RunKey, StoredRun } from "cadenza/store";
import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  ended,
  head,
  over,
  parts,
  runKey,
  take,
  tryCreate,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { amount, LONG_MS, seededRandom } from "../../harness/fuzz.ts";
import { noting, TELLS_DEADLOCKS } from "../../harness/hooked-pool.ts";
import { quoteName } from "../../harness/internals.ts";
import { borrowSchema, missingServer, newPool, PATIENT } from "../../harness/postgres-stores.ts";
import type { Random } from "../../harness/random.ts";
import { lineComplaints } from "./line-judge.ts";

const missing = missingServer(18);
const echo = { agent_name: "echo", version: null };
const former = { agent_name: "echo", version: "1" };
const one = { key: "one", max: 1 };
/** The head of a run that executes in its slot. */
const holding = head({ holds_slot: true });

/** The head of a run that waits for a permit. */
function queued(changes: Partial<RunHead> = {}): RunHead {
  return waiting(Date.now() - 1, { status: "created", ...changes });
}

describe.skipIf(missing !== undefined)(`the line of a slot on PostgreSQL${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let schema: string;
  let store: PostgresStore;
  let stores: PostgresStore[];
  let refused: unknown[];

  const open = async (
    its: PostgresPool = pool,
    options: Partial<PostgresStoreOptions> = {},
  ): Promise<PostgresStore> => {
    const opened = await openPostgresStore({ pool: its, schema, hints: false, ...PATIENT, ...options });
    stores.push(opened);
    return opened;
  };
  const watched = (its: pg.Pool = pool) => noting(its, refused);
  const complaints = () => lineComplaints(pool, quoteName(schema));
  const marked = async (): Promise<readonly unknown[]> => {
    const { rows } = await pool.query(`SELECT key FROM ${quoteName(schema)}.slots WHERE look_at IS NOT NULL`);
    return rows.map(({ key }) => key);
  };
  /** Holds the rows of runs locked until the returned function is called. */
  const lock = async (...keys: readonly RunKey[]): Promise<() => Promise<void>> => {
    const client = await pool.connect();
    await client.query("BEGIN");
    const ids = keys.map(({ run_id }) => run_id);
    await client.query(`SELECT 1 FROM ${quoteName(schema)}.runs WHERE run_id = ANY ($1) FOR NO KEY UPDATE`, [ids]);
    return async () => {
      await client.query("ROLLBACK");
      client.release();
    };
  };

  /** Calls a store while another transaction has the lock of a slot. No batch of its first lane, which has other writes, may wait. */
  const whileLocked = async (slot: string, call: (other: PostgresStore) => Promise<readonly Promise<unknown>[]>) => {
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query(`SELECT pg_advisory_xact_lock(${quoteName(schema)}.slot_lock_v1($1))`, [`=${slot}`]);
    const other = await open({
      query: (text, values) =>
        pool.query(text, values).catch((error: unknown) => {
          if (values.at(-1) === null) refused.push(error);
          throw error;
        }),
    });
    const calls = await call(other);
    // They are answered before a write of the next turn is made.
    for (const n of [1_000, 1_001]) await create(other, n);
    await client.query("ROLLBACK");
    client.release();
    expect(await Promise.all(calls)).toEqual(calls.map(() => undefined));
    expect(refused).toEqual([]);
    expect(await complaints()).toEqual([]);
  };

  beforeAll(() => {
    pool = newPool(18, { max: 20, options: TELLS_DEADLOCKS });
  });
  afterAll(() => pool.end());
  beforeEach(async () => {
    schema = borrowSchema(pool);
    stores = [];
    refused = [];
    store = await open();
  });
  afterEach(async () => {
    for (const one of stores) await one.close();
  });

  it(
    "after random calls of several processes each permit is held or waited for, and none met a deadlock",
    async () => {
      const random = seededRandom();
      const callers = await Promise.all([1, 2, 3, 4].map(() => open(watched())));
      const made: Made = { count: 0, there: [] };
      const seen: string[] = [];
      for (let round = 0; round < amount(100, 6); round++) {
        await Promise.all(
          callers.map(async (caller, n) => {
            for (let turn = 0; turn < 5; turn++) {
              const calls = Array.from({ length: 1 + random.below(12) }, () =>
                call(caller, `owner ${n}`, random, made),
              );
              await Promise.all(calls);
            }
          }),
        );
        seen.push(...(await complaints()));
      }
      expect(seen).toEqual([]);
      expect(refused).toEqual([]);
      // In the end all that waits gets its turn.
      for (let rounds = 0; ; rounds++) {
        const all = await store.list({ tenant: "acme", limit: 10_000, offset: 0 });
        const left = all.filter((run) => run.head.finished_at === null);
        if (left.length === 0) break;
        expect(rounds).toBeLessThan(10_000);
        const taken = await store.take({ owner: "last", agents: [echo, former], limit: 50 });
        for (const run of taken.length > 0 ? taken : left) await end(store, run as StoredRun);
        await store.renew("last", 60_000);
      }
      expect(await complaints()).toEqual([]);
    },
    LONG_MS,
  );

  it("a permit whose next is locked is marked, and given by the next take", async () => {
    await store.renew("owner-1", 60_000);
    const first = await create(store, 1, { slot: one, head: holding });
    const second = await create(store, 2, { slot: one, head: queued() });
    const unlock = await lock(second);
    await append(store, first, 1, write([ended()], { head: over() }));
    expect([await marked(), await complaints(), await take(store)]).toEqual([["=one"], [], []]);
    await unlock();
    expect(await take(store)).toEqual([second.run_id]);
    expect([await marked(), await complaints()]).toEqual([[], []]);
  });

  it("a permit whose next is locked goes to the one behind it", async () => {
    await store.renew("owner-1", 60_000);
    const first = await create(store, 1, { slot: one, head: holding });
    const keys: RunKey[] = [];
    for (const n of [2, 3, 4]) keys.push(await create(store, n, { slot: one, head: queued() }));
    const unlock = await lock(...keys.slice(0, 1));
    await append(store, first, 1, write([ended()], { head: over() }));
    expect(await take(store)).toEqual([runKey(3).run_id]);
    await unlock();
    const third = runKey(3);
    await append(store, third, 1, write([ended()], { head: over(), session: undefined }), 2);
    expect([await take(store), await complaints()]).toEqual([[runKey(2).run_id], []]);
  });

  it("batches that ask for permits of the same slots in other orders do not wait for each other", async () => {
    const callers = [await open(watched()), await open(watched())];
    const numbers = Array.from({ length: 100 }, (_, n) => n);
    for (let round = 0; round < amount(50, 5); round++) {
      const made = callers.map((caller, m) => {
        const order = m === 0 ? numbers : numbers.toReversed();
        const from = 1_000 * round + 500 * m;
        return order.map((n) => create(caller, from + n, { slot: { key: `key ${n}`, max: 1 }, head: queued() }));
      });
      await Promise.all(made.flat());
    }
    expect([refused, await complaints()]).toEqual([[], []]);
  });

  it("who joins as a permit is freed gets it, or its place in the line", async () => {
    await store.renew("owner-1", 60_000);
    const other = await open();
    for (let n = 0; n < amount(500, 60); n++) {
      const slot = { key: `key ${n}`, max: 1 };
      const first = await create(store, 2 * n, { slot, head: holding });
      await Promise.all([
        append(store, first, 1, write([ended()], { head: over() })),
        create(other, 2 * n + 1, { slot, head: queued() }),
      ]);
    }
    expect(await complaints()).toEqual([]);
    const { rows } = await pool.query(
      `SELECT count(*) AS waiting FROM ${quoteName(schema)}.runs WHERE line IS NOT NULL`,
    );
    expect(rows).toEqual([{ waiting: "0" }]);
  });

  it(
    "keeps its promises where transactions do not see what was committed while they waited",
    async () => {
      const isolated = newPool(18, {
        max: 8,
        options: `-c default_transaction_isolation=repeatable\\ read ${TELLS_DEADLOCKS}`,
      });
      const hooked = watched(isolated);
      // It is opened over a connection with the usual isolation, and the setting is changed later.
      let its: PostgresPool = pool;
      const later: PostgresPool = { query: (text, values) => its.query(text, values) };
      const callers = await Promise.all([1, 2, 3].map(() => open(later)));
      its = hooked;
      await store.renew("owner-1", 60_000);
      for (let n = 0; n < amount(300, 40); n++) {
        const slot = { key: `key ${n}`, max: 1 };
        const tries = callers.map((caller, m) => tryCreate(caller, 10 * n + m, { slot, head: holding }));
        const made = (await Promise.all(tries)).indexOf(undefined);
        expect(made).toBeGreaterThanOrEqual(0);
        await Promise.all([
          append(callers[0] ?? store, runKey(10 * n + made), 1, write([ended()], { head: over() })),
          create(callers[1] ?? store, 10 * n + 5, { slot, head: queued() }),
          create(callers[2] ?? store, 10 * n + 6, { slot, head: queued() }),
          callers[2]?.take({ owner: "owner-1", agents: [], limit: 1 }),
        ]);
        expect(await complaints()).toEqual([]);
      }
      // Some of them have met.
      expect([...new Set(refused)]).toEqual(["40001"]);
      const { rows } = await pool.query(
        `SELECT count(*) FILTER (WHERE held <> 1) AS wrong FROM ${quoteName(schema)}.slots WHERE look_at IS NULL`,
      );
      expect(rows).toEqual([{ wrong: "0" }]);
      await isolated.end();
    },
    LONG_MS,
  );

  it("a run that has waited for long is found at once by a process that has looked, when it gets its permit", async () => {
    await store.renew("owner-1", 60_000);
    const other = await open();
    const hourAgo = Date.now() - 3_600_000;
    const first = await create(other, 1, { slot: one, head: holding });
    for (let calls = 0; calls < 3; calls++) expect(await take(store)).toEqual([]);
    const second = await create(other, 2, { slot: one, head: waiting(hourAgo) });
    expect(await take(store)).toEqual([]);
    await append(other, first, 1, write([ended()], { head: over() }));
    expect((await other.find(second))?.head).toEqual(waiting(hourAgo, { holds_slot: true }));
    expect(await take(store)).toEqual([second.run_id]);
    await create(other, 3, { head: waiting(hourAgo) });
    expect(await take(store)).toEqual([runKey(3).run_id]);
  });

  it("a batch does not wait for the slot of a run whose time has come since its last write", async () => {
    const posted = await create(store, 1, { slot: one, head: waiting() });
    const left = await create(store, 2, { slot: one, head: waiting() });
    await pool.query(`UPDATE ${quoteName(schema)}.runs SET due_at = $1, wakes = 1`, [Date.now() - 1]);
    await whileLocked("one", async (other) => {
      const last = write(parts("w"), { head: waiting() });
      return [
        other.post(posted, { entries: parts("p") }),
        other.append(left, { epoch: 1, position: 1, wakes: 1 }, last),
      ];
    });
  });

  it("a batch does not wait for a rate that was given to its run", async () => {
    const rate = { key: "rate", rate: { count: 1, perMs: 1 } };
    const run = await create(store, 1, { slots: [rate], head: holding });
    await append(store, run, 1, write(parts("a"), { head: waiting() }));
    await whileLocked("rate", async (other) => {
      const asking = write(parts("b"), { head: head(), asks: true });
      return [other.append(run, { epoch: 1, position: 2, wakes: 0 }, asking)];
    });
  });

  it("a run whose write is committed late is found all the same", async () => {
    await take(store);
    const key = await create(store, 1, { head: waiting() });
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query(`UPDATE ${quoteName(schema)}.runs SET due_at = $1`, [Date.now()]);
    await new Promise((resolve) => setTimeout(resolve, 800));
    expect(await take(store)).toEqual([]);
    await client.query("COMMIT");
    client.release();
    const committed = performance.now();
    let found: readonly string[] = [];
    while (found.length === 0 && performance.now() - committed < 5_000) found = await take(store);
    expect(found).toEqual([key.run_id]);
  });

  it("many timers of a full slot that end at once do not hold up other runs of their agent", async () => {
    const at = 1_000_000;
    let now = at - 1;
    const timed = await open(pool, { clock: { now: () => now } });
    await timed.renew("owner-1", 60_000);
    await create(timed, 0, { slot: one, head: holding });
    await Promise.all(Array.from({ length: 1_000 }, (_, n) => create(timed, n + 1, { slot: one, head: waiting(at) })));
    await create(timed, 2_000, { head: waiting(at + 1) });
    await create(timed, 2_001, { head: waiting(at), created: { agent_name: "ask" } });
    now = at + 20;
    const agents = [echo, { agent_name: "ask", version: null }];
    expect(await take(timed, { agents, limit: 2 })).toEqual([runKey(2_001).run_id, runKey(2_000).run_id]);
    for (let calls = 0; calls < 4; calls++) expect(await take(timed, { agents, limit: 2 })).toEqual([]);
    const { rows } = await pool.query(
      `SELECT count(*) AS waiting FROM ${quoteName(schema)}.runs WHERE line IS NOT NULL`,
    );
    expect([rows, await complaints()]).toEqual([[{ waiting: "1000" }], []]);
  });

  it("a key that no run uses is deleted by prune, one that is used is not", async () => {
    for (const n of [1, 2, 3]) await create(store, n, { slot: { key: `key ${n}`, max: 1 }, head: holding });
    await create(store, 4, { slot: { key: "key 2", max: 1 }, head: queued() });
    await append(store, runKey(1), 1, write([ended()], { head: over() }));
    await append(store, runKey(2), 1, write([ended()], { head: over() }));
    await store.prune({ maxRuns: 10, endedBefore: 0, sessionsBefore: 0 });
    const { rows } = await pool.query(`SELECT key FROM ${quoteName(schema)}.slots ORDER BY key`);
    expect(rows).toEqual([{ key: "=key 2" }, { key: "=key 3" }]);
    await create(store, 5, { slot: { key: "key 1", max: 1 }, head: holding });
    expect(await complaints()).toEqual([]);
  });

  /** How many runs were made, and the numbers of the runs whose creation was answered. */
  interface Made {
    count: number;
    readonly there: number[];
  }

  /** One random call, as a process makes it. What is refused is left alone. */
  async function call(caller: PostgresStore, owner: string, random: Random, made: Made): Promise<void> {
    const slot = { key: `key ${random.below(6)}`, max: 1 + random.below(2) };
    const kind = random.weighted([
      [5, "create"],
      [5, "take"],
      [8, "change"],
      [4, "post"],
      [2, "wake"],
      [1, "claim"],
      [1, "renew"],
    ] as const);
    if (kind === "renew") {
      await (random.chance(0.3) ? caller.release(owner) : caller.renew(owner, 60_000));
      return;
    }
    if (kind === "take") {
      const agents = random.pick([[echo], [former], [echo, former]] as const);
      const unusedForMs = random.chance(0.3) ? random.below(50) : undefined;
      await caller.take({ owner, agents, limit: 1 + random.below(4), cancelledForMs: 50, unusedForMs });
      return;
    }
    if (kind === "create") {
      const first = random.pick([
        holding,
        head(),
        queued(),
        queued(),
        waiting(Date.now() + random.below(60)),
        waiting(null, { holds_slot: true }),
        waiting(),
      ]);
      const its = first.owner === null ? first : { ...first, owner };
      // A run that creates another one is there before.
      const wake = made.there.length > 0 && random.chance(0.2) ? runKey(random.pick(made.there)) : undefined;
      const asks = its.owner !== null && !its.holds_slot && random.chance(0.5) ? true : undefined;
      const created = random.chance(0.3) ? { version: former.version } : {};
      const priority = random.pick([0, 0, 0, 5, -3]);
      const others = [
        { key: "key 9", max: 2 },
        { key: "rate", rate: { count: 3, perMs: 30 } },
        { key: "rate", max: 2, rate: { count: 2, perMs: 20 } },
      ];
      const slots = random.pick([
        undefined,
        [slot],
        [slot],
        [slot],
        [slot, random.pick(others)],
        [random.pick(others)],
      ]);
      const n = made.count++;
      await tryCreate(caller, n, { slots, head: its, wake, asks, created, priority });
      made.there.push(n);
      return;
    }
    const live = await caller.list({ tenant: "acme", limit: 60, offset: random.below(20) });
    const runs = live.filter((run): run is StoredRun => run.head.finished_at === null && run.created !== null);
    if (runs.length === 0) return;
    const run = random.pick(runs);
    if (kind === "post") {
      const due = random.pick(["work", "look", undefined] as const);
      await caller.post(run.key, { entries: parts("p"), due, unblocks: random.chance(0.2) });
      return;
    }
    const expected = { epoch: run.head.epoch, position: run.position };
    if (kind === "claim") {
      await caller.claim(run.key, expected, head({ owner, epoch: run.head.epoch + 1, holds_slot: random.chance(0.5) }));
      return;
    }
    if (kind === "change" && random.chance(0.3)) return end(caller, run);
    const { epoch } = run.head;
    const its = random.pick([
      head({ owner, epoch, holds_slot: true }),
      head({ owner, epoch }),
      head({ owner, epoch, holds_slot: run.head.holds_slot }),
      queued({ epoch }),
      queued({ epoch, holds_slot: run.head.holds_slot }),
      waiting(null, { epoch, holds_slot: run.head.holds_slot }),
      waiting(Date.now() + random.below(60), { epoch }),
      waiting(null, { epoch, blocked: { position: 1, expected: "a", asked: "b" } }),
    ]);
    const wake = kind === "wake" ? random.pick(runs).key : undefined;
    const asks = its.owner !== null && !its.holds_slot && random.chance(0.7) ? true : undefined;
    await caller.append(run.key, { ...expected, wakes: 0 }, write(parts("c"), { head: its, wake, asks }));
  }

  async function end(caller: PostgresStore, run: StoredRun): Promise<void> {
    const { epoch } = run.head;
    const last = over(Date.now(), { epoch: epoch + 1 });
    await caller.append(run.key, { epoch, position: run.position }, write([ended()], { head: last }));
  }
});
