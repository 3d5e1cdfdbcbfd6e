import { execFileSync } from "node:child_process";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AgentRuntime } from "cadenza";
import type { PostgresStore, PostgresStoreOptions } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { RunKey } from "cadenza/store";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  append,
  create,
  ended,
  keep,
  over,
  parts,
  runKey,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { postOf } from "../../../src/stores/postgres/writes.ts";
import { FakeClock } from "../../harness/clock.ts";
import { eventually } from "../../harness/eventually.ts";
import { HookedPool } from "../../harness/hooked-pool.ts";
import type { WatchedEvent } from "../../harness/internals.ts";
import { quoteName } from "../../harness/internals.ts";
import type { Server } from "../../harness/postgres-server.ts";
import { startServer } from "../../harness/postgres-server.ts";
import { missingServer, newSchema, openHinted } from "../../harness/postgres-stores.ts";
import { Random } from "../../harness/random.ts";

const missing = missingServer(18);
const feed = { keepMs: 86_400_000 };
const completed: WatchedEvent = { type: "run.completed" };

describe.skipIf(missing !== undefined)(`the feed of a PostgresStore${missing ? `: ${missing}` : ""}`, () => {
  let server: Server;
  let pool: pg.Pool;
  let schema: string;
  let name: string;
  let store: PostgresStore;

  beforeAll(async () => {
    // A server of its own: a transaction of another test would hold back what is read here.
    server = await startServer(18, { autovacuum: "off" });
    pool = poolOf(server);
  }, 60_000);
  afterAll(async () => {
    await server.stop();
    await pool.end();
  });

  beforeEach(async () => {
    schema = newSchema();
    name = quoteName(schema);
    store = await open({ feed });
    return () => store.close();
  });

  const open = (options: Partial<PostgresStoreOptions> = {}) =>
    openPostgresStore({ pool, schema, hints: false, ...options });

  const read = async (from = "start", limit = 1_000) => {
    const page = await store.readFeed?.({ from, limit });
    if (page === undefined) throw new Error(`lost: ${from}`);
    return { ...page, ids: page.items.map(({ event }) => ("await_id" in event ? event.await_id : event.type)) };
  };

  describe("while a transaction is open", () => {
    let client: pg.PoolClient;
    beforeEach(async () => {
      client = await pool.connect();
      return () => client.release(true);
    });

    /** Posts in the open transaction, as a batch of another process. */
    const postIn = (on: pg.ClientBase, key: RunKey, id: string) =>
      on.query(`SELECT ${name}.write_fed_v1($1::jsonb, NULL, 0)`, [
        JSON.stringify([postOf(key, { entries: parts(id), feed: [question(id)] }).json]),
      ]);

    it("it holds back what is committed after it has begun to write, and no more", async () => {
      await create(store, 1, { feed: [question("before")] });
      await client.query("BEGIN");
      await client.query("SELECT 1");
      await create(store, 2, { feed: [question("while it only reads")] });
      const { ids, position, more } = await read();
      expect([ids, more]).toEqual([["before", "while it only reads"], null]);
      await client.query("SELECT pg_current_xact_id()");
      await create(store, 3, { feed: [question("after")] });

      expect(await read(position)).toMatchObject({ ids: [], position, more: "soon" });
      expect((await read("now")).position).toBe(position);
      await client.query("COMMIT");
      expect(await read(position)).toMatchObject({ ids: ["after"], more: null });
    });

    it.each(["COMMIT", "ROLLBACK"])(
      "what it adds comes in front of what is committed later, or never: %s",
      async (end) => {
        await create(store, 1, { head: waiting() });
        await create(store, 2, { head: waiting() });
        await client.query("BEGIN");
        await postIn(client, runKey(1), "first");
        await store.post(runKey(2), { entries: parts("b"), feed: [question("second")] });
        expect(await read()).toMatchObject({ ids: [], more: "soon" });
        await client.query(end);
        expect(await read()).toMatchObject({ ids: end === "COMMIT" ? ["first", "second"] : ["second"], more: null });
      },
    );

    it("a run's events keep their order if the transaction with the lower number writes last", async () => {
      await create(store, 1, { head: waiting() });
      const other = await pool.connect();
      await client.query("BEGIN");
      await client.query("SELECT pg_current_xact_id()");
      // It has the higher number, and commits first.
      await other.query("BEGIN");
      await postIn(other, runKey(1), "first");
      const posting = postIn(client, runKey(1), "second");
      await other.query("COMMIT");
      await posting;
      other.release();
      expect((await read()).ids).toEqual([]);
      await client.query("COMMIT");
      await store.post(runKey(1), { entries: parts("c"), feed: [question("third")] });

      expect((await read()).ids).toEqual(["first", "second", "third"]);
      const one = await read("start", 1);
      const two = await read(one.position, 1);
      expect([one.ids, two.ids, (await read(two.position, 1)).ids]).toEqual([["first"], ["second"], ["third"]]);
    });

    it("prune deletes nothing that was never readable", async () => {
      const young = await open({ feed: { keepMs: 0 } });
      await create(store, 1, { feed: [question("old")] });
      await client.query("BEGIN");
      await client.query("SELECT pg_current_xact_id()");
      await create(store, 2, { feed: [question("held")] });
      const { position } = await read();
      await eventually(async () => {
        await young.prune(keep);
        expect((await read()).ids).toEqual([]);
      });
      await client.query("COMMIT");
      expect((await read(position)).ids).toEqual(["held"]);
      await young.close();
    });

    it("many others, in random order, lose, reorder and insert nothing for those who read meanwhile", async () => {
      const keys = [1, 2, 3, 4, 5].map((n) => runKey(n));
      const posted = new Map<string, number>();
      for (const n of [1, 2, 3, 4, 5]) await create(store, n, { head: waiting() });
      let isOver = false;
      const readAlong = async (limit: number): Promise<readonly string[]> => {
        const seen: string[] = [];
        for (let from = "start"; ; ) {
          const wasOver = isOver;
          const page = await read(from, limit);
          seen.push(...page.items.map(({ position }) => position));
          from = page.position;
          if (wasOver && page.more === null) return seen;
        }
      };
      const readers = [1, 3, 1_000].map(readAlong);
      const writer = async (n: number): Promise<void> => {
        // One for each writer: what it does must not depend on how the others are scheduled.
        const random = new Random(n);
        const own = await pool.connect();
        for (let round = 0; round < 25; round++) {
          await own.query("BEGIN");
          if (random.chance(0.5)) await own.query("SELECT pg_current_xact_id()");
          if (random.chance(0.3)) await own.query("SELECT pg_sleep(0.005)");
          // One run for each transaction: two would wait for each other.
          const key = random.pick(keys);
          await postIn(own, key, `${n}.${round}`);
          if (random.chance(0.3)) await own.query("SELECT pg_sleep(0.005)");
          const isKept = random.chance(0.9);
          await own.query(isKept ? "COMMIT" : "ROLLBACK");
          if (isKept) posted.set(key.run_id, (posted.get(key.run_id) ?? 0) + 1);
        }
        own.release();
      };
      await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(writer));
      isOver = true;
      const all = await read();

      for (const reader of readers) expect(await reader).toEqual(all.items.map(({ position }) => position));
      for (const key of keys) {
        const log = (await store.read(key, 1, 1_000)) ?? [];
        const told = all.items.filter((item) => item.key.run_id === key.run_id).map(({ event }) => event);
        expect(told.map((event) => "await_id" in event && event.await_id)).toEqual(
          log.map((entry) => entry.type === "emitted" && entry.kind === "part" && entry.part.content),
        );
        expect(log).toHaveLength(posted.get(key.run_id) ?? 0);
      }
    });
  });

  it("tells once, and only what is in the log, of a post that shares a batch with another write to its run", async () => {
    const head = (epoch: number) => waiting(null, { epoch });
    const late = (n: number) => store.post(runKey(n), { entries: parts("late"), feed: [question(`late ${n}`)] });
    for (const n of [1, 2]) await create(store, n);
    await create(store, 3, { head: head(1) });
    const end = write([ended()], { head: over(), feed: [completed] });
    await Promise.all([late(1), append(store, runKey(1), 1, end)]);
    await Promise.all([late(2), append(store, runKey(2), 1, write([], { head: head(2), takes: "all" }))]);
    const taken = { ...head(2), owner: "owner-1" };
    await Promise.all([late(3), store.claim(runKey(3), { epoch: 1, position: 2 }, taken)]);
    expect((await read()).ids).toEqual(["run.completed", "late 2", "late 3"]);
  });

  it("is kept by stores that are opened without the option, until it is ended with false", async () => {
    const later = await open();
    await create(later, 1, { feed: [question("kept")] });
    const { position } = await read();
    expect((await read()).ids).toEqual(["kept"]);
    for (let n = 2; n < 20; n++) await create(later, n, { feed: [question("kept too")] });
    const none = await open({ feed: false });
    expect(none.readFeed).toBeUndefined();
    expect((await open()).readFeed).toBeUndefined();
    await create(later, 20, { feed: [question("of a process that does not know")] });
    expect(await store.readFeed?.({ from: "start", limit: 9 })).toBeUndefined();
    const { rows } = await pool.query(`SELECT count(*) AS count FROM ${name}.feed_events`);
    expect(Number(rows[0].count)).toBe(0);

    const again = await open({ feed });
    expect(await again.readFeed?.({ from: position, limit: 9 })).toBeUndefined();
    await create(later, 21, { feed: [question("kept again")] });
    expect((await read()).ids).toEqual(["kept again"]);
  });

  it("of a database that was restored has other positions, and all events in their order", async () => {
    await create(store, 1, { feed: [question("a")] });
    const before = await read();
    // The numbers of transactions begin anew in the new server.
    await pool.query(`UPDATE ${name}.feed_events SET tx = tx + 1000000000`);
    await pool.query(`UPDATE ${name}.feed SET server = 'another'`);
    await append(store, runKey(1), 1, write([ended()], { head: over(), feed: [question("b"), completed] }));

    expect(await store.readFeed?.({ from: before.position, limit: 9 })).toBeUndefined();
    const after = await read();
    expect(after.ids).toEqual(["a", "b", "run.completed"]);
    await create(store, 2, { feed: [question("c")] });
    expect((await read(after.position)).ids).toEqual(["c"]);
    // A process that is started finds it, too.
    await pool.query(`UPDATE ${name}.feed SET server = 'a third'`);
    await open({ feed });
    expect(await store.readFeed?.({ from: after.position, limit: 9 })).toBeUndefined();
  });

  it("wakes those who watch in other processes by a hint", async () => {
    const clock = new FakeClock();
    const hinted = () => openHinted({ pool, schema, feed });
    const reading = await hinted();
    // The clock stands still: no poll comes.
    const watching = new AgentRuntime({ store: reading, clock, work: false });
    const executing = new AgentRuntime({ store: await hinted() }).register("echo", (input) => input);
    const found: string[] = [];
    const loop = (async () => {
      for await (const { event } of watching.watch({ from: "now" })) found.push(event.type);
    })();
    await eventually(async () => {
      await executing.createRun({ agent_name: "echo", input: "" });
      expect(found.length).toBeGreaterThan(0);
    });
    await watching.close();
    await loop;
    await executing.close();
  });

  it("costs a store without one neither a statement nor a byte", async () => {
    const plain = newSchema();
    const hooked = new HookedPool(pool);
    const parameters: string[] = [];
    hooked.hook = (run, _sql, parameter) => {
      parameters.push(String(parameter));
      return run();
    };
    const without = await openPostgresStore({ pool: hooked, schema: plain, hints: false });
    hooked.statements.length = 0;
    const runtime = new AgentRuntime({ store: without }).register(
      "asks",
      async (_input, { ask }) => void (await ask("?")),
    );
    const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
    await runtime.resume({ run_id, await_resume: { ok: true } });
    await without.prune(keep);
    await runtime.close();

    expect(hooked.statements.filter((sql) => /feed|fed/.test(sql))).toEqual([]);
    expect(parameters.filter((one) => one.includes('"feed"'))).toEqual([]);
    const { rows } = await pool.query(`SELECT pg_relation_size('${quoteName(plain)}.feed_events') AS size`);
    expect(Number(rows[0].size)).toBe(0);
  });

  it("is read, kept and trimmed by a role with the documented rights", async () => {
    const role = quoteName(`role of ${schema}`);
    await pool.query(`CREATE ROLE ${role} LOGIN`);
    await pool.query(`GRANT USAGE ON SCHEMA ${name} TO ${role}`);
    await pool.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${name} TO ${role}`);
    const own = poolOf(server, { user: `role of ${schema}` });
    const store = await openPostgresStore({ pool: own, schema, migrate: false, hints: false, feed: { keepMs: 0 } });
    await create(store, 1, { feed: [completed] });
    expect((await store.readFeed?.({ from: "start", limit: 9 }))?.items).toHaveLength(1);
    await eventually(async () => {
      await store.prune(keep);
      expect((await store.readFeed?.({ from: "start", limit: 9 }))?.items).toHaveLength(0);
    });
    const reading = await openPostgresStore({ pool: own, schema, readOnly: true, feed: false });
    expect(await reading.readFeed?.({ from: "start", limit: 9 })).toMatchObject({ items: [] });
    await store.close();
    await own.end();
  });

  it("is read and trimmed by its index alone, also by conditions that few events meet", async () => {
    const single = poolOf(server, { max: 1 });
    const counting = await openPostgresStore({ pool: single, schema, hints: false });
    await single.query(
      `INSERT INTO ${name}.feed_events (tx, at, run_id, tenant, agent_name, event)
       SELECT (1::bigint << 48) | 1, n, gen_random_uuid(), CASE WHEN n % 1000 = 0 THEN 'rare' ELSE '' END, 'echo', 'c'
       FROM generate_series(1, 50000) n`,
    );
    await single.query(`VACUUM ANALYZE ${name}.feed_events`);
    const read = async () => {
      await single.query("SELECT pg_stat_force_next_flush()");
      const { rows } = await single.query(
        `SELECT seq_scan, seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE relid = '${name}.feed_events'::regclass`,
      );
      return [Number(rows[0].seq_scan), Number(rows[0].idx_tup_fetch)] as const;
    };
    const [scans, fetched] = await read();
    const page = await counting.readFeed?.({ from: "start", limit: 100 });
    await counting.readFeed?.({ from: page?.position ?? "", limit: 100, tenant: "rare", types: ["run.failed"] });
    await counting.readFeed?.({ from: "now", limit: 100 });
    const [scansAfter, fetchedAfter] = await read();
    expect(scansAfter).toBe(scans);
    expect(fetchedAfter - fetched).toBeLessThan(1_000);
    await counting.close();
    await single.end();
  });
});

it.skipIf(missing !== undefined)(
  "after a failover that has lost the last commits, all events of the new server come behind every position",
  { timeout: 120_000 },
  async () => {
    const server = await startServer(18);
    const pool = poolOf(server);
    const folder = String(pool.options.host);
    const [data, behind] = [join(folder, "data"), join(folder, "behind")];
    try {
      const store = await openPostgresStore({ pool, hints: false, feed });
      const page = async (from: string) => eventually(async () => store.readFeed?.({ from, limit: 99 }));
      await create(store, 1, { feed: [question("kept")] });
      await server.crash();
      execFileSync("cp", ["-a", data, behind]);
      await server.restart();
      for (const n of [2, 3, 4, 5, 6, 7, 8]) await eventually(() => create(store, n, { feed: [question("lost")] }));
      const before = await page("start");
      expect(before?.items).toHaveLength(8);

      await server.crash();
      rmSync(data, { recursive: true });
      renameSync(behind, data);
      writeFileSync(join(data, "standby.signal"), "");
      await server.restart();
      await eventually(() => pool.query("SELECT pg_promote()"));
      for (const n of [2, 3]) await eventually(() => create(store, n, { feed: [question(`new ${n}`)] }));
      const { rows } = await pool.query(
        "SELECT (max(tx) & ((1::bigint << 48) - 1))::text AS tx FROM cadenza.feed_events",
      );
      const [, , lastTx] = /^(.*)\.(\d+)\./.exec(before?.position ?? "") ?? [];

      // Numbers of transactions have come again.
      expect(Number(rows[0].tx)).toBeLessThanOrEqual(Number(BigInt(lastTx ?? 0) & ((1n << 48n) - 1n)));
      const after = await page(before?.position ?? "");
      expect(after?.items.map(({ event }) => "await_id" in event && event.await_id)).toEqual(["new 2", "new 3"]);
      await store.close();
    } finally {
      await pool.end();
      await server.stop();
    }
  },
);

function poolOf({ address }: Server, options: pg.PoolConfig = {}): pg.Pool {
  if ("missing" in address) throw new Error(address.missing);
  const { host, port } = address;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 20, ...options });
  pool.on("error", () => {});
  return pool;
}

function question(await_id: string): WatchedEvent {
  return { type: "run.awaiting", await_id, of: null };
}
