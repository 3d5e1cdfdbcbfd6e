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
import { missingServer, newPool, newSchema } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const TIMEOUT_MS = 2_000;
/** The others write for so long. */
const LOCKED_MS = 2_500;
/** No write of another run takes longer. */
const MOST_MS = 1_000;
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

  /** Eight runs write without a pause. Answers how many writes they made, and how long one took at most. */
  const othersWrite = async (forMs: number) => {
    let count = 0;
    let longestMs = 0;
    const end = performance.now() + forMs;
    const writers = [1, 2, 3, 4, 5, 6, 7, 8].map(async (n) => {
      for (let position = 1; performance.now() < end; position++) {
        const since = performance.now();
        await append(store, runKey(n), position, write(parts("x")));
        count += 1;
        longestMs = Math.max(longestMs, performance.now() - since);
      }
    });
    await Promise.all(writers);
    return { count, longestMs };
  };

  /** Repeats a write as the runtime does, until it is made. One that is refused was made before, and its answer lost. */
  const untilMade = async (one: () => Promise<unknown>): Promise<void> => {
    for (;;) {
      const answer = await one().then(
        () => true,
        (error: unknown) => String(error).includes('"changed"'),
      );
      if (answer) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
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
  it.each(locks)("a lock in %s delays no other run, and its own write is made after it", async (_table, lock, one) => {
    for (const n of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) await create(store, n, { created: { labels: { a: "b" } } });
    await store.putSession(sessionKey(1), { history: [], state: null }, 1);
    await create(store, 13, { slot: { key: "hot", max: 1 } });
    await append(store, runKey(13), 1, endOf());
    await store.renew("owner-1", 60_000);
    const before = await othersWrite(0);
    expect(before.count).toBe(0);
    const locker = await others.connect();
    await locker.query("BEGIN");
    await locker.query(lock());
    const made = untilMade(one);
    // An open transaction would hold up other tests on the server.
    const { longestMs } = await othersWrite(LOCKED_MS).finally(() => locker.release(true));
    expect(longestMs).toBeLessThan(MOST_MS);
    await made;
  });

  it("the writes of a run that lacks a lock are made in the order of the calls", async () => {
    await create(store, 1);
    await create(store, 2);
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
    const patient = await openPostgresStore({ pool, schema, hints: false });
    await create(patient, 1, { slot: { key: "hot", max: 1 } });
    const locker = await others.connect();
    await locker.query(
      `SELECT pg_advisory_lock(${quoteName(schema)}.slot_lock_v1(slot)) FROM ${quoteName(schema)}.runs`,
    );
    pool.statements.length = 0;
    const statements = () => pool.statements.filter((sql) => sql.includes("try_write")).length;
    const made = Array.from({ length: 100 }, (_, n) => create(patient, 100 + n, { slot: { key: "hot", max: 1 } }));
    // The first one does not wait. The second one was given up, and all of its writes were tried.
    await expect.poll(statements, { timeout: 10 * TIMEOUT_MS }).toBeGreaterThan(2);
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
    // On a busy machine the answer may come after the time of the client.
    const told = expect(append(store, runKey(1), 1, write(parts("a")))).rejects.toThrow(
      /A lock was held|There was no answer/,
    );
    await told.finally(() => locker.query("ROLLBACK"));
    locker.release();
    await append(store, runKey(1), 1, write(parts("b")));
  });

  it("a statement without an answer delays no other run for long, also if it is sent again", async () => {
    for (const n of [1, 2, 3, 4, 5, 6, 7, 8, 9]) await create(store, n);
    let hung = 0;
    let isOn = true;
    pool.hook = (run, _sql, parameter) => {
      if (!isOn || !String(parameter).includes(runKey(9).run_id)) return run();
      hung += 1;
      return new Promise(() => {});
    };
    const made = untilMade(() => append(store, runKey(9), 1, write(parts("late"))));
    const writers = [1, 2, 3, 4, 5, 6, 7, 8].map((n) =>
      untilMade(() => append(store, runKey(n), 1, write(parts("x")))),
    );
    const since = performance.now();
    await Promise.all(writers);
    expect(performance.now() - since).toBeLessThan(2 * TIMEOUT_MS);
    const stillHung = hung;
    const longest = async () => {
      const start = performance.now();
      for (let position = 2; performance.now() - start < LOCKED_MS; position++) {
        const before = performance.now();
        await Promise.all([1, 2, 3].map((n) => append(store, runKey(n), position, write(parts("x")))));
        expect(performance.now() - before).toBeLessThan(MOST_MS);
      }
    };
    await longest();
    expect(hung).toBeGreaterThan(stillHung);
    isOn = false;
    await made;
  });

  /** Lets the statements hang that create runs with this label, until the returned function is called. */
  const hangCreations = (label: string) => {
    let hung = 0;
    pool.hook = (run, _sql, parameter) => {
      if (!String(parameter).includes(label)) return run();
      hung += 1;
      return new Promise(() => {});
    };
    return () => {
      pool.hook = (run) => run();
      return hung;
    };
  };

  it("a creation without an answer delays others once, also if each attempt creates another run", async () => {
    for (const n of [1, 2, 3]) await create(store, n);
    const letGo = hangCreations("it hangs");
    let attempts = 1_000;
    const hang = () => tryCreate(store, attempts++, { created: { labels: { why: "it hangs" } } });
    await expect(hang()).rejects.toThrow("no answer");
    const made = untilMade(hang);
    const longest = async (one: (n: number) => Promise<unknown>) => {
      let longestMs = 0;
      const start = performance.now();
      for (let n = 1; performance.now() - start < 2 * LOCKED_MS; n++) {
        const since = performance.now();
        await one(n);
        longestMs = Math.max(longestMs, performance.now() - since);
      }
      return longestMs;
    };
    const all = await Promise.all([
      ...[1, 2, 3].map((n) => longest((position) => append(store, runKey(n), position, write(parts("x"))))),
      ...[1, 2, 3].map((n) => longest((m) => create(store, n * 10_000 + m))),
    ]);
    expect(Math.max(...all)).toBeLessThan(OVERDUE_MS);
    expect(letGo()).toBeGreaterThan(2);
    await made;
  });

  it("creations go with other writes again some time after one was without an answer", async () => {
    const quick = await openPostgresStore({ pool, schema, hints: false, timeoutMs: TIMEOUT_MS / 10 });
    await create(quick, 1);
    let runs = 1;
    const statements = async () => {
      pool.statements.length = 0;
      await Promise.all([append(quick, runKey(1), runs++, write(parts("x"))), create(quick, runs)]);
      return pool.statements.filter((sql) => sql.includes("try_write")).length;
    };
    expect(await statements()).toBe(1);
    const letGo = hangCreations("it hangs");
    const hung = tryCreate(quick, 1_000, { created: { labels: { why: "it hangs" } } });
    await expect(hung).rejects.toThrow("no answer");
    letGo();
    expect(await statements()).toBe(2);
    await expect.poll(statements, { timeout: 10 * TIMEOUT_MS }).toBe(1);
    await quick.close();
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
    await expect(append(store, runKey(1), 1, write(parts("a")))).rejects.toThrow("no answer");
    await others.query(`DROP TRIGGER hang ON ${name}.entries`);
    await append(store, runKey(1), 1, write(parts("b")));
    expect(await store.read(runKey(1), 1, 9)).toEqual(parts("b"));
  });
});
