import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  counters,
  create,
  ended,
  head,
  message,
  over,
  parts,
  runKey,
  sessionKey,
  tryCreate,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { HookedPool, noteRefused, TELLS_DEADLOCKS } from "../../harness/hooked-pool.ts";
import { borrowSchema, missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";
import { nextTurn } from "../../harness/promises.ts";
import { stopPostgresTime } from "../../harness/stopped-time.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`what a PostgresStore sends${missing ? `: ${missing}` : ""}`, () => {
  let real: pg.Pool;
  let pool: HookedPool;
  let store: PostgresStore;
  let schema: string;

  beforeAll(() => {
    real = newPool(18, { options: TELLS_DEADLOCKS });
  });
  afterAll(() => real.end());

  beforeEach(async () => {
    pool = new HookedPool(real);
    schema = borrowSchema(real);
    store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    pool.statements.length = 0;
    return () => store.close();
  });

  it("fifty runs that are created in one turn are one statement, and no statement begins a transaction", async () => {
    const numbers = Array.from({ length: 50 }, (_, n) => n);
    const answers = await Promise.all(numbers.map((n) => tryCreate(store, n)));
    await append(store, runKey(1), 1, write(parts("a")));
    await store.find(runKey(1));

    expect(answers).toEqual(numbers.map(() => undefined));
    expect(pool.statements).toHaveLength(3);
    for (const sql of pool.statements) expect(sql).toMatch(/^\/\* cadenza \S+ \d+ \*\/ SELECT/);
    expect(pool.statements.join("\n")).not.toMatch(/notify/i);
  });

  it("the plan of a batch does not hold what the batch writes", async () => {
    const batches: { readonly sql: string; readonly values: readonly unknown[] }[] = [];
    pool.hook = (run, sql, _parameter, values) => {
      batches.push({ sql, values });
      return run();
    };
    await create(store, 1);
    const [batch] = batches;
    const { rows } = await real.query(`EXPLAIN (VERBOSE) ${batch?.sql}`, [...(batch?.values ?? [])]);
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    // The text is a parameter that the planner knows, and stays a text.
    expect(plan).toMatch(/try_write_v1\(\(g\.writes\)::jsonb/);
    expect(plan).not.toMatch(/'::jsonb/);
  });

  it("what is handed in while a batch is under way goes with the next one, in the order of the calls", async () => {
    let underWay = 0;
    let most = 0;
    pool.hook = async (run) => {
      most = Math.max(most, ++underWay);
      return run().finally(() => {
        underWay -= 1;
      });
    };
    const first = create(store, 1);
    await Promise.resolve();
    const later = [1, 2, 3, 4].map((position) => append(store, runKey(1), position, write(parts(`${position}`))));
    await first;
    const last = [5, 6].map((position) => append(store, runKey(1), position, write(parts(`${position}`))));
    await Promise.all([...later, ...last]);

    expect(await store.read(runKey(1), 1, 9)).toEqual(parts("1", "2", "3", "4", "5", "6"));
    expect(most).toBe(1);
    expect(pool.statements.filter((sql) => sql.includes("write_v1")).length).toBeLessThanOrEqual(3);
  });

  it("runs that write again and again share their statements, also if some of them began while others were written", async () => {
    const writeOn = async (n: number): Promise<void> => {
      for (let position = 1; position <= 10; position++) {
        await append(store, runKey(n), position, write(parts(`${position}`)));
        // An agent is given what was committed in a turn of its own.
        await nextTurn();
      }
    };
    for (const n of [1, 2, 3, 4]) await create(store, n);
    pool.statements.length = 0;
    const first = [1, 2].map(writeOn);
    while (pool.statements.length === 0) await nextTurn();
    await Promise.all([...first, ...[3, 4].map(writeOn)]);
    expect(pool.statements).toHaveLength(11);
  });

  it("a batch has at most 256 writes, and at most a mebibyte of text unless one write has more", async () => {
    await Promise.all(Array.from({ length: 300 }, (_, n) => create(store, n)));
    expect(pool.statements).toHaveLength(2);
    pool.statements.length = 0;
    const long = parts("x".repeat(400_000));
    await Promise.all([1, 2, 3].map((n) => append(store, runKey(n), 1, write(long))));
    expect(pool.statements).toHaveLength(2);
    pool.statements.length = 0;
    await Promise.all([4, 5].map((n) => append(store, runKey(n), 1, write(parts("x".repeat(1_100_000))))));
    expect(pool.statements).toHaveLength(2);
  });

  it("a write that the database cannot hold fails alone, and its neighbours are made in their order", async () => {
    await create(store, 1);
    pool.statements.length = 0;
    const tooLarge = head({ takeovers: 2 ** 40 });
    const answers = await Promise.allSettled([
      append(store, runKey(1), 1, write(parts("a"))),
      tryCreate(store, 2, { head: tooLarge, idempotencyKey: "key" }),
      append(store, runKey(1), 2, write(parts("b"))),
    ]);

    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
    const reason = "PostgreSQL refuses it (SQLSTATE 22003).";
    expect(answers[1]).toMatchObject({ value: { conflict: "unwritable", reason } });
    expect(await store.read(runKey(1), 1, 9)).toEqual(parts("a", "b"));
    expect(await store.findByIdempotencyKey("acme", "key")).toBeUndefined();
  });

  it("when the connection is lost while the writes of a batch are tried alone, the others are not tried", async () => {
    let sent = 0;
    pool.hook = (run) => {
      sent += 1;
      return sent === 3 ? Promise.reject(failure("08006")) : run();
    };
    const tooLarge = head({ takeovers: 2 ** 40 });
    const answers = await Promise.allSettled([
      tryCreate(store, 1),
      tryCreate(store, 2),
      tryCreate(store, 3, { head: tooLarge }),
      tryCreate(store, 4),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected", "rejected"]);
    expect(sent).toBe(3);
  });

  it("messages for a session that may be missing are requested once, and only if it exists", async () => {
    let asked = 0;
    const messages = () => {
      asked += 1;
      return [message("said")];
    };
    const change = { session_id: sessionKey(1).session_id, create: false, messages, at: 5 };
    const finish = (n: number) => append(store, runKey(n), 1, write([ended()], { head: over(), session: change }));
    for (const n of [1, 2, 3, 4]) await create(store, n);
    await finish(1);
    expect(asked).toBe(0);
    await store.putSession(sessionKey(1), { history: [], state: null }, 1);
    pool.statements.length = 0;
    await Promise.all([finish(2), finish(3)]);

    expect(asked).toBe(2);
    expect(pool.statements).toHaveLength(2);
    expect((await store.session(sessionKey(1)))?.history).toHaveLength(2);
    const other = { ...change, session_id: sessionKey(2).session_id };
    const makes = { ...other, create: true, messages: () => [message("first")] };
    const both = [
      append(store, runKey(4), 1, write(parts("a"), { session: makes })),
      append(store, runKey(4), 2, write(parts("b"), { session: other })),
    ];
    await Promise.all(both);
    expect((await store.session(sessionKey(2)))?.history).toEqual([message("first"), message("said")]);
  });

  it("batches that make the same sessions in other orders do not wait for each other", async () => {
    const refusals: unknown[] = [];
    pool.hook = noteRefused(refusals);
    const other = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    const numbers = Array.from({ length: 200 }, (_, n) => n);
    const make = (one: PostgresStore, order: readonly number[]) =>
      Promise.all(order.map((n) => one.makeSession(sessionKey(n), { history: [], state: n }, 1)));
    const [made, madeByOther] = await Promise.all([make(store, numbers), make(other, numbers.toReversed())]);
    await other.close();

    expect(refusals).toEqual([]);
    expect(madeByOther.toReversed()).toEqual(made.map((isMade) => !isMade));
  });

  it("batches with the same idempotency keys in other orders do not wait for each other", async () => {
    const refusals: unknown[] = [];
    pool.hook = noteRefused(refusals);
    const other = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    const numbers = Array.from({ length: 200 }, (_, n) => n);
    const make = (one: PostgresStore, order: readonly number[], first: number) =>
      Promise.all(order.map((n) => tryCreate(one, first + n, { idempotencyKey: `key ${n}` })));
    const [made, madeByOther] = await Promise.all([make(store, numbers, 0), make(other, numbers.toReversed(), 200)]);
    await other.close();

    expect(refusals).toEqual([]);
    const isMade = (answers: typeof made) => answers.map((answer) => answer === undefined);
    expect(isMade(madeByOther.toReversed())).toEqual(isMade(made).map((one) => !one));
  });

  it("a statement that met another transaction is tried again, eight times in all", async () => {
    let fails = 7;
    pool.hook = (run) => (fails-- > 0 ? Promise.reject(failure("40P01")) : run());
    await create(store, 1);
    expect(pool.statements).toHaveLength(8);
    fails = 7;
    expect((await store.find(runKey(1)))?.position).toBe(1);
    fails = 8;
    await expect(create(store, 2)).rejects.toMatchObject({ code: "store_failed", cause: { code: "40P01" } });
    expect(await store.find(runKey(2))).toBeUndefined();
  });

  it("a write that gets no lock for long is told as one that the store failed to make", async () => {
    pool.hook = () => Promise.reject(failure("55P03"));
    await expect(create(store, 1)).rejects.toMatchObject({ message: expect.stringContaining("A lock was held") });
    await expect(store.find(runKey(1))).rejects.toThrow("A lock was held");
  });

  it.each([
    ["57014", "statement_timeout"],
    ["25006", "read-only"],
    ["3D000", "database does not exist"],
    ["3F000", "not set up"],
    ["42P01", "not set up"],
    ["42883", "not set up"],
    ["42501", "lacks a right"],
    ["28P01", "role or its password"],
    ["53100", "disk is full"],
    ["57P01", "closed the connection"],
    ["53300", "no connection"],
    ["08006", "connection was lost"],
    ["ECONNRESET", "connection to PostgreSQL failed"],
  ])("an error %s is told as one of the store, and its statement is sent once", async (code, said) => {
    pool.hook = () => Promise.reject(failure(code));
    const failed = Promise.allSettled([tryCreate(store, 1), tryCreate(store, 2)]);

    for (const answer of await failed)
      expect(answer).toMatchObject({ reason: { code: "store_failed", message: expect.stringContaining(said) } });
    expect(pool.statements).toHaveLength(1);
    await expect(store.find(runKey(1))).rejects.toThrow(said);
  });

  it("a write whose answer is lost has been made, and the same write again is refused", async () => {
    const lose = (n: number): void => {
      let count = 0;
      pool.hook = async (run) => {
        const result = await run();
        if (++count % n === 0) throw failure("ECONNRESET");
        return result;
      };
    };
    lose(1);
    await expect(create(store, 1)).rejects.toThrow("connection");
    await expect(store.renew("owner-1", 1_000)).rejects.toThrow("connection");
    pool.hook = (run) => run();
    expect(await tryCreate(store, 1)).toEqual({ conflict: "exists" });
    lose(1);
    const more = write([ended()], { head: over(), counters: counters({ completed: 1 }) });
    await expect(append(store, runKey(1), 1, more)).rejects.toThrow("connection");
    pool.hook = (run) => run();
    const again = await store.append(runKey(1), { epoch: 1, position: 1 }, more);
    expect(again).toEqual({ conflict: "changed", epoch: 2, position: 2 });
    expect((await store.counters("echo"))?.completed).toBe(1);
  });

  it("after a lost answer nothing that was waiting is sent, and all of it fails", async () => {
    let sent = 0;
    pool.hook = async () => {
      sent += 1;
      await Promise.allSettled([]);
      waitingWrites.push(Promise.allSettled([tryCreate(store, 8), tryCreate(store, 9)]));
      await Promise.resolve();
      throw failure("57P01");
    };
    const waitingWrites: Promise<unknown>[] = [];
    await expect(create(store, 1)).rejects.toThrow("closed the connection");
    expect(await waitingWrites[0]).toMatchObject([{ status: "rejected" }, { status: "rejected" }]);
    expect(sent).toBe(1);
    pool.hook = (run) => run();
    await create(store, 8);
  });

  it("a call that gets no answer fails at its deadline, and its connection is not used again", async () => {
    const fewer = newPool(18, { max: 1 });
    let removed = 0;
    fewer.on("remove", () => {
      removed += 1;
    });
    const hooked = new HookedPool(fewer);
    const schema = newSchema();
    const patient = await openPostgresStore({ pool: hooked, schema, hints: false, ...PATIENT });
    const time = stopPostgresTime();
    const hasty = await openPostgresStore({ pool: hooked, schema, hints: false, timeoutMs: 500 });
    hooked.hook = () => new Promise(() => {});
    for (const call of [() => create(hasty, 1), () => hasty.find(runKey(1))]) {
      const failed = expect(call()).rejects.toThrow("no answer within 500 ms");
      await time.advance(500);
      await failed;
    }
    await expect.poll(() => removed).toBeGreaterThanOrEqual(1);
    hooked.hook = (run) => run();
    await create(patient, 1, { head: waiting() });
    await hasty.close();
    await patient.close();
    await fewer.end();
  });

  it("a deadline counts from the call: neither a batch under way nor another attempt prolongs it", async () => {
    const time = stopPostgresTime();
    const hasty = await openPostgresStore({ pool, schema, hints: false, timeoutMs: 900 });
    let sent = 0;
    let waiting = 0;
    pool.hook = async (run, sql) => {
      if (sql.includes("pg_cancel_backend")) return run();
      if (!sql.includes("write_v1") && !sql.includes("backlog_v1")) return new Promise(() => {});
      const answer = sql.includes("write_v1") && ++sent === 1 ? run() : undefined;
      await new Promise<void>((resolve) => {
        time.setTimeout(resolve, 600);
        waiting += 1;
      });
      if (!sql.includes("write_v1")) throw failure("40P01");
      return answer ?? new Promise(() => {});
    };
    const failed: string[] = [];
    const first = create(hasty, 1);
    await nextTurn();
    const calls = {
      "behind a batch": () => create(hasty, 2),
      "tried again": () => hasty.backlog(),
      "no answer": () => hasty.find(runKey(1)),
    };
    const failing = Object.entries(calls).map(([name, call]) => call().catch(() => void failed.push(name)));
    await expect.poll(() => waiting).toBe(2);
    await time.advance(600);
    await first;
    await expect.poll(() => sent).toBe(2);
    await time.advance(300);
    await Promise.all(failing);
    expect(failed).toEqual(Object.keys(calls));
    const closed = hasty.close();
    await time.advance(900);
    await closed;
  });

  it("lost connections end no process, also with a pool without a listener", async () => {
    expect(real.listenerCount("error")).toBe(0);
    const own = newPool(18, { application_name: "mine" });
    const sturdy = await openPostgresStore({ pool: own, schema: newSchema(), hints: false });
    const others = await Promise.all(
      [1, 2].map(() => openPostgresStore({ pool: own, schema: newSchema(), hints: false })),
    );
    for (const other of others) await other.close();
    expect(own.listenerCount("error")).toBe(1);
    const kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mine'";
    for (let n = 0; n < 3; n++) {
      const slow = own.query("SELECT pg_sleep(10)").catch(() => undefined);
      await create(sturdy, n);
      await real.query(kill);
      await slow;
    }
    await create(sturdy, 9).catch(() => create(sturdy, 9));
    await sturdy.close();
    expect(own.listenerCount("error")).toBe(0);
    await own.end();
  });
});

function failure(code: string): Error {
  return Object.assign(new Error(`planted ${code}`), { code });
}
