import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { StoreHint } from "cadenza/store";
import type pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { append, create, parts, runId, runKey, take, waiting, write } from "../../../src/stores/contract/samples.ts";
import { eventually } from "../../harness/eventually.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import { missingServer, newPool, newSchema, openHinted } from "../../harness/postgres-stores.ts";
import { deferred } from "../../harness/promises.ts";

const missing = missingServer(18);

describe.skipIf(missing !== undefined)(`hints${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let hooked: HookedPool;
  let writer: PostgresStore;
  let reader: PostgresStore;
  let hints: StoreHint[];

  beforeAll(() => {
    pool = newPool(18, { application_name: "hints" });
  });
  afterAll(() => pool.end());

  beforeEach(async () => {
    const schema = newSchema();
    hooked = new HookedPool(pool);
    writer = await openHinted({ pool: hooked, schema });
    reader = await openHinted({ pool, schema });
    hints = [];
    return async () => {
      await writer.close();
      await reader.close();
    };
  });

  const moved = () => hints.flatMap((hint) => hint.moved ?? []);
  const notifies = () => hooked.statements.filter((sql) => sql.includes("pg_notify")).length;

  it("another process hears which runs have moved, and not what it has written itself", async () => {
    reader.watch?.((hint) => void hints.push(hint));
    await untilListening();
    await create(reader, 9);
    const sent = notifies();
    await Promise.all([1, 2, 3].map((n) => create(writer, n)));
    await eventually(() => expect(moved()).toEqual([1, 2, 3].map((n) => runKey(n))));

    expect(notifies()).toBe(sent + 1);
    expect(hints.every(({ due }) => due !== true)).toBe(true);
  });

  it("it hears of a run that is due, and that a run was taken", async () => {
    reader.watch?.((hint) => void hints.push(hint));
    await untilListening();
    await create(writer, 1, { head: waiting(5) });
    await eventually(() => expect(hints.some(({ due }) => due === true)).toBe(true));
    await take(writer);
    await eventually(() => expect(moved()).toHaveLength(2));
    await append(writer, runKey(1), 1, write(parts("a"), { head: waiting(5, { epoch: 2 }) }), 2);
    await eventually(() => expect(moved()).toHaveLength(3));
  });

  it("it hears of a post to a run that has an owner, for which no process needs to look for work", async () => {
    reader.watch?.((hint) => void hints.push(hint));
    await untilListening();
    await create(writer, 1);
    await create(writer, 2, { head: waiting() });
    await eventually(() => expect(moved()).toHaveLength(2));
    const post = (n: number) => writer.post(runKey(n), { entries: parts("a"), due: "work" });
    for (const count of [1, 2]) {
      expect(await post(1)).toBeUndefined();
      await eventually(() => expect(moved().filter(({ run_id }) => run_id === runId(1))).toHaveLength(1 + count));
    }
    expect(hints.every(({ due }) => due !== true)).toBe(true);
    expect(await post(2)).toBeUndefined();
    await eventually(() => expect(hints.some(({ due }) => due === true)).toBe(true));
  });

  it("more runs than one notification holds are told in several", async () => {
    reader.watch?.((hint) => void hints.push(hint));
    await untilListening();
    const sent = notifies();
    const numbers = Array.from({ length: 250 }, (_, n) => n);
    await Promise.all(numbers.map((n) => create(writer, n, { tenant: "ä".repeat(50) })));
    await eventually(() => expect(moved()).toHaveLength(250));
    expect(notifies() - sent).toBeLessThan(10);
  });

  it("one connection at most tells: what is noted while a notification is under way goes with the next one", async () => {
    reader.watch?.((hint) => void hints.push(hint));
    await untilListening();
    const held = deferred();
    let underWay = 0;
    let most = 0;
    hooked.hook = async (run, sql) => {
      if (!sql.includes("pg_notify")) return run();
      underWay += 1;
      most = Math.max(most, underWay);
      await held.promise;
      underWay -= 1;
      return run();
    };
    for (const n of [1, 2, 3]) {
      await create(writer, n);
      // A timer of the store that was set before this one has fired before it.
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(underWay).toBe(1);
    held.resolve();
    await eventually(() => expect(moved()).toEqual([1, 2, 3].map((n) => runKey(n))));
    expect(most).toBe(1);
  });

  it("one connection listens until the store is closed, and a lost one is replaced", async () => {
    const stop = reader.watch?.((hint) => void hints.push(hint));
    const stopOther = reader.watch?.(() => {});
    await untilListening();
    expect(await listeners()).toHaveLength(1);
    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '^LISTEN' AND application_name = 'hints'",
    );
    await eventually(() => expect(hints).toContainEqual({ due: true, fed: true, permits: true }));
    await untilListening();
    await create(writer, 1);
    await eventually(() => expect(moved()).toEqual([runKey(1)]));
    stop?.();
    stopOther?.();
    await create(writer, 2);
    await reader.close();
    expect(moved()).toEqual([runKey(1)]);
    await eventually(async () => expect(await listeners()).toHaveLength(0));
  });

  it("where notifications do not arrive, as behind a transaction pooler, the store has no hints and says so", async () => {
    const warned: string[] = [];
    const logger = { debug: () => {}, info: () => {}, warn: (text: string) => warned.push(text), error: () => {} };
    const deaf = new HookedPool(pool);
    deaf.hook = (run, sql) => (sql.startsWith("LISTEN") ? Promise.resolve({ rows: [] }) : run());
    const store = await openPostgresStore({ pool: deaf, schema: newSchema(), logger });
    expect(store.watch).toBeUndefined();
    expect(warned).toEqual(["Hints of other processes do not arrive here. The store is polled instead."]);
    deaf.statements.length = 0;
    await create(store, 1);
    await store.close();
    expect(deaf.statements.filter((sql) => sql.includes("pg_notify"))).toEqual([]);
  });

  it("where LISTEN gets no answer, the store opens without hints", async () => {
    const deaf = new HookedPool(pool);
    deaf.hook = (run, sql) => (sql.startsWith("LISTEN") ? new Promise(() => {}) : run());
    const store = await openPostgresStore({ pool: deaf, schema: newSchema(), timeoutMs: 1_000 });
    expect(store.watch).toBeUndefined();
    await store.close();
  });

  async function listeners(): Promise<readonly unknown[]> {
    // Other tests use the server at the same time.
    const listening = "SELECT pid FROM pg_stat_activity WHERE query ~ '^LISTEN' AND application_name = 'hints'";
    return (await pool.query(listening)).rows;
  }

  async function untilListening(): Promise<void> {
    await eventually(async () => expect(await listeners()).toHaveLength(1));
  }
});
