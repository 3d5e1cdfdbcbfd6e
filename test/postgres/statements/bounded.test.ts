import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  counters,
  create,
  ended,
  message,
  over,
  parts,
  runKey,
  sessionKey,
  tryCreate,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";
import { stopPostgresTime } from "../../harness/stopped-time.ts";

const missing = missingServer(18);
const TIMEOUT_MS = 2_000;
/** So many writes of another run are made while one hangs. */
const MANY = 20;
const STEP_MS = 100;
/** After so long a statement without an answer does not hold up the next one any more. */
const OVERDUE_MS = TIMEOUT_MS / 4;

describe.skipIf(missing !== undefined)(`writes beside what does not move${missing ? `: ${missing}` : ""}`, () => {
  let real: pg.Pool;
  let others: pg.Pool;
  let pool: HookedPool;
  let store: PostgresStore;
  let schema: string;

  beforeAll(() => {
    real = newPool(18);
    others = newPool(18);
  });
  afterAll(async () => {
    await real.end();
    await others.end();
  });

  beforeEach(async () => {
    pool = new HookedPool(real);
    schema = newSchema();
    await (await openPostgresStore({ pool: others, schema, hints: false })).close();
    store = await openPostgresStore({ pool, schema, hints: false, timeoutMs: TIMEOUT_MS });
    return () => store.close();
  });

  /** Each of the runs makes this many writes, one after the other, from a position on. */
  const writeMany = (runs: readonly number[], from: number): Promise<unknown> =>
    Promise.all(
      runs.map(async (n) => {
        for (let position = from; position < from + MANY; position++)
          await append(store, runKey(n), position, write(parts("x")));
      }),
    );

  /** Repeats a write as the runtime does, until it is made. One that is refused was made before, and its answer lost. */
  const untilMade = async (one: () => Promise<unknown>): Promise<void> => {
    for (;;) {
      const answer = await one().then(
        () => true,
        (error: unknown) => String(error).includes('"changed"'),
      );
      if (answer) return;
      await new Promise(setImmediate);
    }
  };

  const change = () => ({ session_id: sessionKey(1).session_id, create: true, messages: () => [message("a")], at: 5 });
  const endOf = () => write([ended()], { head: over(), counters: counters({ completed: 1 }) });
  const locks: readonly [table: string, sql: () => string, one: () => Promise<unknown>][] = [
    [
      "runs",
      () => `SELECT 1 FROM ${quoteName(schema)}.runs WHERE run_id = '${runKey(9).run_id}' FOR UPDATE`,
      () => append(store, runKey(9), 1, write(parts("late"))),
    ],
    [
      "runs, of a parent",
      () => `SELECT 1 FROM ${quoteName(schema)}.runs WHERE run_id = '${runKey(9).run_id}' FOR UPDATE`,
      () => append(store, runKey(10), 1, write(parts("late"), { wake: runKey(9) })),
    ],
    [
      "sessions",
      () => `SELECT 1 FROM ${quoteName(schema)}.sessions FOR UPDATE`,
      () => append(store, runKey(9), 1, write(parts("late"), { session: change() })),
    ],
    [
      "counters",
      () => `SELECT 1 FROM ${quoteName(schema)}.counters FOR UPDATE`,
      () => append(store, runKey(9), 1, endOf()),
    ],
    ["leases", () => `SELECT 1 FROM ${quoteName(schema)}.leases FOR UPDATE`, () => store.renew("owner-1", 1_000)],
    [
      "labels",
      () => `SELECT 1 FROM ${quoteName(schema)}.labels FOR UPDATE`,
      () => append(store, runKey(9), 1, write(parts("late"))),
    ],
    [
      "advisory locks of idempotency keys",
      () => `SELECT pg_advisory_lock(hashtextextended('${quoteName(schema)} key acme again', 0))`,
      () => tryCreate(store, 11, { idempotencyKey: "again" }),
    ],
    [
      "advisory locks of slots",
      () =>
        `SELECT pg_advisory_lock(${quoteName(schema)}.slot_lock_v1(slot)) FROM ${quoteName(schema)}.runs WHERE slot <> ''`,
      () => create(store, 14, { slot: { key: "hot", max: 1 }, head: waiting(0) }),
    ],
    [
      "runs that are being inserted",
      () =>
        `INSERT INTO ${quoteName(schema)}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, holds_slot, takeovers, position, created_at)
         VALUES ('acme', '${runKey(12).run_id}', 'echo', '', 's', '', 0, 'created', 1, false, 0, 1, 0)`,
      () => tryCreate(store, 12),
    ],
  ];
  it.each(locks)("a lock in %s delays no other run, and its own write is made after it", async (table, lock, one) => {
    for (const n of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) await create(store, n, { created: { labels: { a: "b" } } });
    await store.putSession(sessionKey(1), { history: [], state: null }, 1);
    await create(store, 13, { slot: { key: "hot", max: 1 } });
    await append(store, runKey(13), 1, endOf());
    await store.renew("owner-1", 60_000);
    stopPostgresTime();
    const locker = await others.connect();
    await locker.query("BEGIN");
    await locker.query(lock());
    // What waits for a lock has no answer until the others have written.
    let answer = (): void => undefined;
    const written = new Promise<void>((resolve) => {
      answer = resolve;
    });
    let waiting = 0;
    pool.hook = async (run, sql, _parameter, values) => {
      if (!sql.includes("try_write") || typeof values[3] !== "number") return run();
      waiting += 1;
      return run().finally(() => written);
    };
    const made = untilMade(one);
    // An open transaction would hold up other tests on the server.
    const rounds = async () => {
      for (let from = 1; from < 1 + 4 * MANY; from += MANY) await writeMany([1, 2, 3, 4, 5, 6, 7, 8], from);
    };
    await rounds().finally(() => locker.release(true));
    // No write needs the rows of labels, and there are other rows of counters.
    if (table !== "labels" && table !== "counters") expect(waiting).toBe(1);
    answer();
    await made;
  });

  it("the writes of a run that lacks a lock are made in the order of the calls", async () => {
    await create(store, 1);
    await create(store, 2);
    stopPostgresTime();
    const locker = await others.connect();
    await locker.query("BEGIN");
    await locker.query(`SELECT 1 FROM ${quoteName(schema)}.runs WHERE run_id = $1 FOR UPDATE`, [runKey(1).run_id]);
    const first = [1, 2, 3].map((n) => append(store, runKey(1), n, write(parts(`${n}`))));
    await append(store, runKey(2), 1, write(parts("other")));
    const later = [4, 5, 6].map((n) => append(store, runKey(1), n, write(parts(`${n}`))));
    await append(store, runKey(2), 2, write(parts("other")));
    await locker.query("ROLLBACK");
    locker.release();
    await Promise.all([...first, ...later]);
    expect(await store.read(runKey(1), 1, 9)).toEqual(parts("1", "2", "3", "4", "5", "6"));
  });

  it("creations that lack the lock of one slot stay together", async () => {
    const patient = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    await create(patient, 1, { slot: { key: "hot", max: 1 } });
    const locker = await others.connect();
    await locker.query(
      `SELECT pg_advisory_lock(${quoteName(schema)}.slot_lock_v1(slot)) FROM ${quoteName(schema)}.runs`,
    );
    pool.statements.length = 0;
    const statements = () => pool.statements.filter((sql) => sql.includes("try_write")).length;
    const made = Array.from({ length: 100 }, (_, n) => create(patient, 100 + n, { slot: { key: "hot", max: 1 } }));
    // The first one does not wait. The second one was given up, and all of its writes were tried.
    await expect.poll(statements).toBeGreaterThan(2);
    await locker.query("SELECT pg_advisory_unlock_all()");
    locker.release();
    await Promise.all(made);
    expect(statements()).toBeLessThan(10);
    await patient.close();
  });

  it("a write that gets no lock in time is told so, and is not made later", async () => {
    await create(store, 1);
    const locker = await others.connect();
    await locker.query("BEGIN");
    await locker.query(`SELECT 1 FROM ${quoteName(schema)}.runs FOR UPDATE`);
    // On a busy machine the time of the client is over first. Then the server is told to cancel what it still tries.
    const told = expect(append(store, runKey(1), 1, write(parts("a")))).rejects.toThrow(
      /A lock was held|There was no answer/,
    );
    const settled = told.then(() => expect.poll(() => pool.underWay).toBe(0));
    await settled.finally(() => locker.query("ROLLBACK"));
    locker.release();
    const patient = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    await append(patient, runKey(1), 1, write(parts("b")));
    await patient.close();
  });

  /** Lets the statements hang whose writes say so, until the time of their calls is over. */
  const hangStatements = (which: string) => {
    let isOn = true;
    const hung: string[] = [];
    pool.hook = (run, _sql, parameter) => {
      if (!isOn || !String(parameter).includes(which)) return run();
      hung.push(String(parameter));
      return new Promise(() => {});
    };
    return {
      hung,
      stop() {
        isOn = false;
      },
    };
  };

  it("a statement without an answer delays no other run for long, also if it is sent again", async () => {
    for (const n of [1, 2, 3, 4, 5, 6, 7, 8, 9]) await create(store, n);
    const time = stopPostgresTime();
    const { hung, stop } = hangStatements(runKey(9).run_id);
    const made = untilMade(() => append(store, runKey(9), 1, write(parts("late"))));
    let missing = 8;
    for (let n = 1; n <= 8; n++)
      void untilMade(() => append(store, runKey(n), 1, write(parts("x")))).then(() => {
        missing -= 1;
      });
    let tookMs = 0;
    for (await pool.settled(); missing > 0 && tookMs < 9 * TIMEOUT_MS; await pool.settled()) {
      await time.advance(STEP_MS);
      tookMs += STEP_MS;
    }
    expect(tookMs).toBeLessThan(2 * TIMEOUT_MS);
    for (let round = 0; round < 3; round++) {
      const before = hung.length;
      for (let waited = 0; hung.length === before && waited < 2 * TIMEOUT_MS; waited += STEP_MS) {
        await time.advance(STEP_MS);
        await pool.settled();
      }
      expect(hung.length).toBeGreaterThan(before);
      await writeMany([1, 2, 3], 2 + round * MANY);
    }
    stop();
    await time.advance(TIMEOUT_MS);
    await made;
  });

  it("a creation without an answer delays others once, also if each attempt creates another run", async () => {
    for (const n of [1, 2, 3]) await create(store, n);
    const time = stopPostgresTime();
    const { hung, stop } = hangStatements("it hangs");
    let attempts = 1_000;
    const hang = () => tryCreate(store, attempts++, { created: { labels: { why: "it hangs" } } });
    const first = expect(hang()).rejects.toThrow("no answer");
    await pool.settled();
    const delayed = append(store, runKey(1), 1, write(parts("x")));
    await time.advance(OVERDUE_MS);
    await delayed;
    await time.advance(TIMEOUT_MS);
    await first;
    for (const n of [2, 3]) await append(store, runKey(n), 1, write(parts("x")));
    for (let round = 0; round < 4; round++) {
      const again = expect(hang()).rejects.toThrow("no answer");
      const creations = [1, 2, 3].map(async (n) => {
        for (let m = 0; m < MANY; m++) await create(store, n * 10_000 + round * MANY + m);
      });
      await Promise.all([writeMany([1, 2, 3], 2 + round * MANY), ...creations]);
      expect(hung).toHaveLength(round + 2);
      await time.advance(TIMEOUT_MS);
      await again;
    }
    // None of the others was in a statement that got no answer.
    for (const writes of hung) expect(JSON.parse(writes)).toHaveLength(1);
    stop();
    await hang();
  });

  it("creations go with other writes again some time after one was without an answer", async () => {
    await create(store, 1);
    const time = stopPostgresTime();
    const { stop } = hangStatements("it hangs");
    let runs = 1;
    const statements = async () => {
      pool.statements.length = 0;
      await Promise.all([append(store, runKey(1), runs++, write(parts("x"))), create(store, runs)]);
      return pool.statements.filter((sql) => sql.includes("try_write")).length;
    };
    expect(await statements()).toBe(1);
    const hung = expect(tryCreate(store, 1_000, { created: { labels: { why: "it hangs" } } })).rejects.toThrow(
      "no answer",
    );
    await pool.settled();
    await time.advance(TIMEOUT_MS);
    await hung;
    stop();
    expect(await statements()).toBe(2);
    for (let waited = 0; waited < 10 * TIMEOUT_MS; waited += STEP_MS) await time.advance(STEP_MS);
    expect(await statements()).toBe(1);
  });

  it("a statement that arrives after its deadline takes no runs", async () => {
    const late = { is: false };
    const delayed = {
      query(sql: string, values: unknown[]) {
        const given = late.is && sql.includes("take_v2") ? values.with(7, Number(values[7]) - 60_000) : values;
        return others.query(sql, given);
      },
    };
    const other = await openPostgresStore({ pool: delayed, schema, hints: false, timeoutMs: TIMEOUT_MS });
    stopPostgresTime();
    await create(store, 1, { head: waiting(0) });
    await other.time();
    late.is = true;
    const request = {
      owner: "late",
      agents: [{ agent_name: "echo", version: null }],
      limit: 8,
      cancelledForMs: 60_000,
    };
    await expect(other.take(request)).rejects.toThrow("cancelled the statement");
    late.is = false;
    expect(await other.take(request)).toHaveLength(1);
    await other.close();
  });

  it("what the store has given up is cancelled at the server", async () => {
    await create(store, 1);
    const name = quoteName(schema);
    await others.query(
      `CREATE FUNCTION ${name}.hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'`,
    );
    await others.query(
      `CREATE TRIGGER hang BEFORE INSERT ON ${name}.entries FOR EACH ROW EXECUTE FUNCTION ${name}.hang()`,
    );
    const time = stopPostgresTime();
    const givenUp = expect(append(store, runKey(1), 1, write(parts("a")))).rejects.toThrow("no answer");
    const hanging = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND strpos(query, $1) > 0";
    await expect.poll(async () => (await others.query(hanging, [name])).rowCount).toBe(1);
    await time.advance(TIMEOUT_MS);
    await givenUp;
    await others.query(`DROP TRIGGER hang ON ${name}.entries`);
    await append(store, runKey(1), 1, write(parts("b")));
    expect(await store.read(runKey(1), 1, 9)).toEqual(parts("b"));
  });
});
