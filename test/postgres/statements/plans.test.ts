import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { RunQuery, SurveyQuery } from "cadenza/store";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NOW } from "../../../src/stores/contract/check.ts";
import {
  append,
  create,
  ended,
  keep,
  keepOf,
  message,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  TAKER,
  TENANT,
  take,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { ASIDE_MS, quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";

const missing = missingServer(18);
const clock = { now: () => NOW };
/** How many runs have ended, and how many wait for a later time. */
const ENDED = 20_000;
const WAITING = 2_000;

describe.skipIf(missing !== undefined)(`among ${ENDED} runs${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let name: string;
  let schema: string;
  let store: PostgresStore;

  beforeAll(async () => {
    // One connection, whose statistics are complete.
    pool = newPool(18, { max: 1 });
    name = newSchema();
    schema = quoteName(name);
    store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock });
    await fill(pool, schema);
  });
  afterAll(async () => {
    await store.close();
    await pool.end();
  });

  const pages: readonly (readonly [name: string, query: Partial<RunQuery>])[] = [
    ["the newest", {}],
    ["those after a run", { after: id(9_000) }],
    ["those of an agent", { agent_name: "echo" }],
    ["those of a session", { session_id: id(50) }],
    ["those that wait for an answer", { statuses: ["awaiting"] }],
    ["those that have not ended", { statuses: ["created", "in-progress", "awaiting"] }],
    ["those of a time", { createdAfter: NOW - 500, createdBefore: NOW - 400 }],
    ["those with labels", { labels: { order: "7" } }],
    ["the sub-runs of a run", { parents: [runId(7)] }],
    ["the sub-runs of many runs", { parents: Array.from({ length: 100 }, (_, n) => runId(n)) }],
    ["those of another tenant", { tenant: "other" }],
  ];
  it.each(pages)("a list of %s reads no table as a whole", async (_name, query) => {
    await expectIndexes(async () => {
      await store.list({ tenant: TENANT, limit: 10, offset: 0, ...query });
    });
  });

  const surveys: readonly (readonly [name: string, query: Partial<SurveyQuery>])[] = [
    ["all tenants", {}],
    ["all tenants, behind a place", { after: 9_000 }],
    ["a tenant", { tenant: TENANT }],
    ["another tenant", { tenant: "other" }],
    ["an agent", { agent_name: "rare" }],
    ["those that wait", { statuses: ["awaiting"] }],
    ["those that failed", { statuses: ["failed"] }],
    ["those that completed", { statuses: ["completed"] }],
    ["those of a time", { createdAfter: NOW - 500, createdBefore: NOW - 400, statuses: ["failed", "cancelled"] }],
    ["those with a label", { tenant: TENANT, labels: { order: "7" } }],
    ["those whose ids begin so", { idPrefix: id(9_000) }],
  ];
  it.each(surveys)("a survey of %s reads no table as a whole", async (_name, query) => {
    await expectIndexes(async () => {
      await store.survey({ limit: 10, ...query });
    });
  });

  const owner = { owner: TAKER, agents: [{ agent_name: "echo", version: null }], limit: 8 };
  const calls: readonly (readonly [name: string, call: () => Promise<unknown>])[] = [
    ["find", () => store.find({ tenant: TENANT, run_id: id(9_000) })],
    ["findByIdempotencyKey", () => store.findByIdempotencyKey(TENANT, "key 5")],
    ["read", () => store.read({ tenant: TENANT, run_id: id(9_000) }, 0, 9)],
    ["moved", () => store.moved([1, 2, 3].map((n) => ({ key: runKey(n), epoch: 1, position: 1 })))],
    ["owned", () => store.owned("none", 9)],
    ["blocked", () => store.blocked({ limit: 9 })],
    ["tails", () => store.tails([{ tenant: TENANT, run_id: id(9_000) }, runKey(1)], 2)],
    ["census", () => store.census()],
    ["workers", () => store.workers()],
    ["session", () => store.session(sessionKey(1))],
    ["sessionHead", () => store.sessionHead(sessionKey(1))],
    ["backlog", () => store.backlog()],
    ["lines", () => store.lines({ limit: 9 })],
    ["comeBack", () => store.comeBack(9)],
    [
      "changeVersion",
      () =>
        store.changeVersion(
          { tenant: TENANT, run_id: id(9_000) },
          { epoch: 99, position: 1 },
          { type: "moved", at: NOW, version: "2" },
        ),
    ],
    ["take, with nothing due", () => store.take(owner)],
    ["take, with cancelled ones", () => store.take({ ...owner, cancelledForMs: 5 })],
    ["deleteSession", () => store.deleteSession(sessionKey(2))],
    ["delete", () => store.delete([{ tenant: TENANT, run_id: id(2) }])],
    ["prune", () => store.prune({ maxRuns: ENDED, endedBefore: 0, sessionsBefore: 0 })],
    ["prune of another tenant", () => store.prune(keepOf(["other"], { maxRuns: 1, maxSessions: 1 }))],
    ["renew", () => store.renew("owner", 1_000)],
  ];
  it.each(calls)("%s reads no table as a whole", async (_name, call) => {
    await expectIndexes(call);
  });

  it("a list looks at no more runs than it may, and is refused beyond that", async () => {
    const page = { tenant: TENANT, limit: 10, offset: 0, most: 5_000 };
    const read = async (query: Partial<RunQuery>): Promise<number> => {
      const before = await readOf(pool, name);
      await store.list({ ...page, ...query });
      return (await readOf(pool, name)) - before;
    };
    const limit = { code: "limit_reached", limit: "maxExaminedRuns" };
    const before = await readOf(pool, name);
    await expect(store.list({ ...page, agent_name: "none" })).rejects.toMatchObject(limit);
    expect((await readOf(pool, name)) - before).toBeLessThan(6_100);
    expect(await read({})).toBeLessThan(100);
    expect(await read({ agent_name: "rare", statuses: ["awaiting"] })).toBeLessThan(200);
    expect(await read({ statuses: ["failed", "cancelled"] })).toBe(0);
    expect(await read({ labels: { order: "7" }, agent_name: "none" })).toBeLessThan(20);
    expect(await read({ labels: { order: "7" }, statuses: ["awaiting"], createdAfter: 0 })).toBeLessThan(20);
    expect(await read({ createdAfter: NOW - 500, agent_name: "none" })).toBeLessThan(3_600);
  });

  it("the life of a run reads no table as a whole", async () => {
    await expectIndexes(async () => {
      const slot = { key: "slot", max: 2 };
      const session = { session_id: sessionId(1), create: true, messages: () => [message("hello")], at: 5 };
      const key = await create(store, 1, { head: waiting(NOW), slot, idempotencyKey: "new" });
      await store.post(key, { entries: parts("a"), due: "work" });
      expect(await take(store)).toEqual([key.run_id]);
      const holds = { epoch: 2, owner: TAKER, holds_slot: true };
      await append(store, key, 2, write(parts("b"), { head: waiting(null, holds), session, wake: runKey(2) }), 2);
      await store.claim(key, { epoch: 2, position: 3 }, waiting(null, { epoch: 3 }));
      await append(store, key, 3, write([ended()], { head: over(NOW, { epoch: 4 }), session }), 2);
    });
  });

  it("of a label that many runs have few rows are read for a page, and for a prune few but those of what it deletes", async () => {
    await pool.query(
      `INSERT INTO ${schema}.labels (run, name, value, tenant) SELECT r.id, 'kind', 'old', r.tenant FROM ${schema}.runs r`,
    );
    await pool.query(`VACUUM ANALYZE ${schema}.labels`);
    const read = async (call: () => Promise<unknown>): Promise<number> => {
      const before = await readOf(pool, name, "labels");
      await call();
      return (await readOf(pool, name, "labels")) - before;
    };
    for (const query of [{}, { statuses: ["awaiting"] }, { agent_name: "rare" }] as const)
      for (const labels of [{ kind: "old" }, { kind: "old", order: "7" }]) {
        const page = { tenant: TENANT, labels, limit: 10, ...query };
        expect(await read(() => store.list({ ...page, offset: 0 }))).toBeLessThan(1_200);
        expect(await read(() => store.survey(page))).toBeLessThan(1_200);
      }
    const rules = [{ labels: { kind: "old" }, maxRuns: Number.POSITIVE_INFINITY, endedBefore: 1_000 }];
    let deleted = 0;
    const prune = async (): Promise<void> => {
      deleted = await store.prune({ ...keep, rules });
    };
    expect(await read(prune)).toBeLessThan(10_000);
    expect(deleted).toBeGreaterThan(900);
  });

  it("nine of ten plain appends touch no index", async () => {
    const key = await create(store, 3);
    const before = await statistics();
    for (let position = 1; position <= 100; position++) await append(store, key, position, write(parts("a")));
    const after = await statistics();
    expect(after.updated - before.updated).toBe(100);
    expect(after.hot - before.hot).toBeGreaterThanOrEqual(90);
  });

  async function expectIndexes(call: () => Promise<unknown>): Promise<void> {
    const before = await statistics();
    await call();
    expect((await statistics()).scans).toEqual(before.scans);
  }

  /** How often each large table was read as a whole, and how many rows of runs were changed. */
  async function statistics() {
    await pool.query("SELECT pg_stat_force_next_flush()");
    const { rows } = await pool.query(
      `SELECT relname, seq_scan, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
       WHERE relid IN (SELECT ($1 || '.' || name)::regclass FROM unnest($2::text[]) name) ORDER BY relname`,
      [schema, ["runs", "entries", "messages", "labels", "sessions", "slots"]],
    );
    const runs = rows.find(({ relname }) => relname === "runs");
    return {
      scans: Object.fromEntries(rows.map(({ relname, seq_scan }) => [relname, Number(seq_scan)])),
      updated: Number(runs.n_tup_upd),
      hot: Number(runs.n_tup_hot_upd),
    };
  }
});

describe.skipIf(missing !== undefined)(`in a new schema${missing ? `: ${missing}` : ""}`, () => {
  it("posts and ends find runs by their keys, although the plans were made when few runs had an owner", async () => {
    const pool = newPool(18, { max: 1 });
    const name = newSchema();
    const store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock });
    const post = (n: number) => store.post(runKey(n), { entries: parts("a") });
    const end = (n: number) => append(store, runKey(n), 1, write([ended()], { head: over() }));
    for (let n = 0; n < 8; n++) {
      await create(store, n);
      await Promise.all([post(n), post(n)]);
      await Promise.all([post(n), end(n)]);
    }
    await pool.query(
      `INSERT INTO ${quoteName(name)}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, owner,
         holds_slot, takeovers, position, created_at, arrived)
       SELECT tenant, 'owned ' || n, agent_name, version, session_id, '', 0, 'in-progress', 1, 'owner-1', false, 0, 1, ${NOW}, 1
       FROM ${quoteName(name)}.runs, generate_series(1, 1000) n WHERE run_id = '${runKey(1).run_id}'`,
    );
    await create(store, 9);
    const before = await readOf(pool, name);
    await post(9);
    await Promise.all([post(9), append(store, runKey(9), 1, write(parts("a")))]);
    await append(store, runKey(9), 2, write([ended()], { head: over() }));
    expect((await readOf(pool, name)) - before).toBeLessThan(100);
    await store.close();
    await pool.end();
  });

  it("runs that are set aside are in the way of no take, and of none that comes back", async () => {
    const pool = newPool(18, { max: 1 });
    const name = newSchema();
    const store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock });
    await create(store, 0, { head: waiting(ASIDE_MS + NOW - 1) });
    await pool.query(
      `INSERT INTO ${quoteName(name)}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch,
         due_at, holds_slot, takeovers, position, created_at)
       SELECT 'paused', 'aside ' || n, agent_name, version, session_id, '', 0, 'created', 1, due_at, false, 0, 1, ${NOW}
       FROM ${quoteName(name)}.runs, generate_series(1, 5000) n`,
    );
    await store.pause({ tenant: "paused" }, null);
    const before = await readOf(pool, name);
    expect(await take(store)).toEqual([]);
    expect(await store.comeBack(100)).toBe(1);
    expect(await take(store)).toEqual([runId(0)]);
    expect((await readOf(pool, name)) - before).toBeLessThan(200);
    await store.close();
    await pool.end();
  });

  it("writes find sessions by their keys, although the plans were made when there was none", async () => {
    const pool = newPool(18, { max: 1 });
    const name = newSchema();
    const store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock });
    const said = (n: number) => ({ session_id: sessionId(n), create: true, messages: () => [message("hello")], at: 5 });
    const more = (n: number) => ({ session_id: sessionId(n), create: false, messages: () => [message("more")], at: 6 });
    for (const from of [0, 100, 200]) {
      const numbers = Array.from({ length: 100 }, (_, n) => from + n);
      await Promise.all(numbers.map((n) => create(store, n)));
      await Promise.all(numbers.map((n) => append(store, runKey(n), 1, write(parts("a"), { session: said(n) }))));
      await Promise.all(
        numbers.map((n) => append(store, runKey(n), 2, write([ended()], { head: over(), session: more(n) }))),
      );
    }
    expect(await readOf(pool, name, "sessions")).toBeLessThan(300 * 20);
    await store.close();
    await pool.end();
  });

  it("writes find runs by their keys, although the plans were made when there was no run", async () => {
    const pool = newPool(18, { max: 1 });
    const name = newSchema();
    const store = await openPostgresStore({ pool, schema: name, hints: false, ...PATIENT, clock });
    for (const from of [0, 100, 200]) {
      const numbers = Array.from({ length: 100 }, (_, n) => from + n);
      await Promise.all(numbers.map((n) => create(store, n)));
      await Promise.all(numbers.map((n) => append(store, runKey(n), 1, write([ended()], { head: over() }))));
    }
    // An index that has the tenant but not the id would be read from its beginning for each run: 100,000 rows and more.
    expect(await readOf(pool, name)).toBeLessThan(300 * 20);
    await store.close();
    await pool.end();
  });
});

describe.skipIf(missing !== undefined)(`with many runs in line${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  let schema: string;
  let store: PostgresStore;
  /** Keys, and how many runs wait for each, but for the first: many more than are counted wait for that. */
  const [KEYS, EACH, FIRST] = [300, 4, 9_000];

  beforeAll(async () => {
    pool = newPool(18, { max: 1 });
    schema = newSchema();
    store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT, clock });
    const names = quoteName(schema);
    await fill(pool, names);
    await pool.query(
      `INSERT INTO ${names}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, line, rank, status, epoch,
         owner, due_at, holds_slot, takeovers, position, created_at)
       SELECT 'acme', 'in line ' || k || ' ' || n, 'echo', '', 'session', '=key ' || k, 1, '=key ' || k, n, 'created', 1,
         NULL, ${NOW}, false, 0, 1, ${NOW}
       FROM generate_series(0, ${KEYS - 1}) k, generate_series(1, ${FIRST}) n WHERE k = 0 OR n <= ${EACH}`,
    );
    await pool.query(
      `INSERT INTO ${names}.slots (key, gen, n, held, first, last)
       SELECT '=key ' || k, 1, 0, 1, 1, ${FIRST} FROM generate_series(0, ${KEYS - 1}) k`,
    );
  });
  afterAll(async () => {
    await store.close();
    await pool.end();
  });

  it("a page of lines reads few rows of each key, and counts no further than it says", async () => {
    expect(await read(() => store.lines({ limit: 1 }))).toBeLessThan(1_001 + 20);
    expect(await read(() => store.lines({ after: "key 0", limit: 1 }))).toBeLessThan(EACH + 20);
    expect(await read(() => store.lines({ after: "key 0", limit: 50 }))).toBeLessThan(50 * (EACH + 5));
    await pool.query(`VACUUM ANALYZE ${quoteName(schema)}.runs, ${quoteName(schema)}.slots`);
    expect(await read(() => store.lines({ limit: 1 }))).toBeLessThan(1_001 + 20);
    // Whatever the statistics make the planner believe.
    await pool.query("SET enable_indexscan = off");
    expect(await read(() => store.lines({ after: "key 0", limit: 50 }))).toBeLessThan(50 * (EACH + 5));
    await pool.query("RESET enable_indexscan");
    expect((await store.lines({ limit: 500 })).map(({ waiting }) => waiting)).toEqual([
      1_001,
      ...new Array<number>(KEYS - 1).fill(EACH),
    ]);
  });

  /** How many rows of runs and slots a call reads, by an index or not. */
  async function read(call: () => Promise<unknown>): Promise<number> {
    const before = await rowsRead();
    await call();
    return (await rowsRead()) - before;
  }

  async function rowsRead(): Promise<number> {
    await pool.query("SELECT pg_stat_force_next_flush()");
    const { rows } = await pool.query(
      `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = $1)
         + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1) AS read`,
      [schema],
    );
    return Number(rows[0].read);
  }
});

/** How many entries of the indexes of a table were read. */
async function readOf(pool: pg.Pool, schema: string, table = "runs"): Promise<number> {
  await pool.query("SELECT pg_stat_force_next_flush()");
  const { rows } = await pool.query(
    "SELECT sum(idx_tup_read) AS read FROM pg_stat_user_indexes WHERE schemaname = $1 AND relname = $2",
    [schema, table],
  );
  return Number(rows[0].read);
}

/** The id of a run that `fill` makes. */
function id(n: number): string {
  return `filled ${n}`;
}

/** Makes ended runs and waiting ones, with sessions, messages and labels, in one statement each. */
async function fill(pool: pg.Pool, schema: string): Promise<void> {
  const created = JSON.stringify({ type: "created" });
  const statements = [
    `INSERT INTO ${schema}.runs (tenant, run_id, agent_name, version, session_id, parent, idempotency_key, slot, slot_max,
       status, epoch, owner, due_at, holds_slot, finished_at, takeovers, position, created_at)
     SELECT 'acme', 'filled ' || n, CASE WHEN n % 5 = 0 THEN 'rare' ELSE 'echo' END, '', 'filled ' || n / 4,
       CASE WHEN n % 10 = 0 THEN 'filled ' || n / 10 END, CASE WHEN n % 9 = 0 THEN 'key ' || n END, '', 0,
       CASE WHEN n <= ${ENDED} THEN 'completed' ELSE 'awaiting' END, 2, NULL,
       CASE WHEN n > ${ENDED} THEN ${NOW} + 1000 + n END, false, CASE WHEN n <= ${ENDED} THEN n END, 0, 2,
       ${NOW - ENDED} + n
     FROM generate_series(1, ${ENDED + WAITING}) n`,
    `INSERT INTO ${schema}.entries (run, position, lines) SELECT r.id, p, '${created}' || E'\\n'
     FROM ${schema}.runs r CROSS JOIN generate_series(0, 1) p`,
    `INSERT INTO ${schema}.labels (run, name, value, tenant) SELECT r.id, 'order', (r.id / 3)::text, 'acme'
     FROM ${schema}.runs r`,
    `INSERT INTO ${schema}.sessions (tenant, session_id, length, state, changed_at)
     SELECT 'acme', 'filled ' || n, 2, 'null', n FROM generate_series(1, ${ENDED / 4}) n`,
    `INSERT INTO ${schema}.messages (session, position, message) SELECT s.id, p, '{}'
     FROM ${schema}.sessions s CROSS JOIN generate_series(0, 1) p`,
    ...["runs", "entries", "labels", "sessions", "messages"].map((table) => `VACUUM ANALYZE ${schema}.${table}`),
  ];
  for (const sql of statements) await pool.query(sql);
}
