import { equal } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { makeSchema, openStore } from "../postgres/cadenza.mjs";
import { inSchema, server } from "../postgres/database.mjs";
import { rateOfProcesses, start } from "../postgres/processes.mjs";
import { rateAtOnce, rateOf } from "../rates.mjs";

const WIDTH = 50;
const OWNER = "bench";

/** Appends of one entry a second: each alone, and of 50 runs at a time. And which share of them was HOT. */
export const measureAppends = async (_subject, scale) =>
  inSchema(async (schema, pool) => {
    const part = scale === "quick" ? 50 : 1500;
    const store = await openStore(schema, { hints: false });
    const runs = await Promise.all(Array.from({ length: WIDTH }, (_, lane) => openLog(store, `run ${lane}`)));
    const append = (index) => runs[index % WIDTH].append();
    await rateOf(part / 2, append);
    const single = await rateOf(part, append);
    const lanes = async () => {
      let lane = 0;
      const started = performance.now();
      let count = 0;
      const one = async () => {
        const run = runs[lane++];
        for (; performance.now() - started < part; count++) await run.append();
      };
      await Promise.all(runs.map(one));
      return (count * 1000) / (performance.now() - started);
    };
    await lanes();
    const before = await statistics(pool, schema);
    const batched = await lanes();
    const after = await statistics(pool, schema);
    await store.close();
    const hot = (100 * (after.hot - before.hot)) / (after.updated - before.updated);
    return { single, batched, hot };
  });

/** Runs a second that are created and end in one write, with two messages for their session: of one process, 50 at a time. */
export const measureSessionWrites = async (subject, scale) =>
  inSchema(async (schema) => {
    const part = scale === "quick" ? 50 : 1500;
    const store = await openStore(schema, { hints: false });
    const sessions = subject === "cadenza, one session" ? 1 : 1_000;
    const message = { role: "user", parts: [{ content_type: "text/plain", content: "hello" }] };
    const head = { status: "completed", epoch: 1, owner: null, due_at: null, blocked: null };
    const rest = { holds_slot: false, finished_at: 1, takeovers: 0 };
    const write = async (index) => {
      const session_id = `session ${index % sessions}`;
      const created = { type: "created", at: 1, agent_name: "echo", session_id, input: [message] };
      const session = { session_id, create: true, at: 1, messages: () => [message, message] };
      const key = { tenant: "", run_id: `run ${index}` };
      equal(await store.create(key, { entries: [created], head: { ...head, ...rest }, session }, null), undefined);
    };
    let next = 0;
    const one = () => write(next++);
    await rateAtOnce(WIDTH, part, one);
    const writes = await rateAtOnce(WIDTH, part, one);
    await store.close();
    return { writes };
  });

/** A run in a store, of which the owner appends. */
async function openLog(store, run_id) {
  const key = { tenant: "", run_id };
  const head = { status: "in-progress", epoch: 1, owner: OWNER, due_at: null, blocked: null };
  const rest = { holds_slot: false, finished_at: null, takeovers: 0 };
  const created = { type: "created", at: Date.now(), agent_name: "echo", session_id: run_id, input: [] };
  let position = 1;
  equal(await store.create(key, { entries: [created], head: { ...head, ...rest } }, null), undefined);
  return {
    append: async () => {
      const content = { content_type: "text/plain", content_encoding: "plain", content: `part ${position}` };
      const entries = [{ type: "emitted", kind: "part", at: Date.now(), part: content }];
      const expected = { epoch: 1, position: position++ };
      equal(await store.append(key, expected, { entries, head: { ...head, ...rest } }), undefined);
    },
  };
}

/**
 * The milliseconds of a `take` that finds nothing due, and of a `list` of the newest 100, among very many runs. And how
 * often a table was read as a whole.
 */
export const measureLooking = async (_subject, scale) =>
  inSchema(async (schema, pool) => {
    await makeSchema(schema);
    const store = await openStore(schema, { hints: false });
    await fill(pool, schema, scale === "quick" ? 500 : 500_000);
    const before = await statistics(pool, schema);
    const agents = [{ agent_name: "echo", version: null }];
    const take = async () => equal((await store.take({ owner: OWNER, agents, limit: 8 })).length, 0);
    const list = async () => equal((await store.list({ tenant: "", limit: 100, offset: 0 })).length, 100);
    const calls = scale === "quick" ? 5 : 200;
    const timesOf = async (call) => {
      const times = [];
      for (let n = 0; n < calls; n++) {
        const started = performance.now();
        await call();
        times.push(performance.now() - started);
      }
      return times.toSorted((a, b) => a - b)[Math.floor(calls / 2)];
    };
    await timesOf(take);
    await timesOf(list);
    const figures = { take: await timesOf(take), list: await timesOf(list) };
    await store.find({ tenant: "", run_id: "filled 7" });
    await store.read({ tenant: "", run_id: "filled 7" }, 0, 10);
    const { scans } = await statistics(pool, schema);
    await store.close();
    return { ...figures, scans: scans - before.scans };
  });

/** Of ten runs six have ended, three wait for an answer and one sleeps. Each has two entries. */
async function fill(pool, schema, count) {
  const created = JSON.stringify({ type: "created", at: 1, agent_name: "echo", session_id: "s", input: [] });
  const statements = [
    `INSERT INTO ${schema}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, due_at,
       holds_slot, finished_at, takeovers, position, created_at)
     SELECT '', 'filled ' || n, 'echo', '', 'filled ' || n, '', 0,
       CASE WHEN n % 10 < 6 THEN 'completed' WHEN n % 10 < 9 THEN 'awaiting' ELSE 'in-progress' END, 2,
       CASE WHEN n % 10 = 9 THEN extract(epoch FROM now()) * 1000 + 1e9 + n END, false,
       CASE WHEN n % 10 < 6 THEN n END, 0, 2, n
     FROM generate_series(1, ${count}) n`,
    `INSERT INTO ${schema}.entries (run, position, lines) SELECT r.id, p, '${created}' || E'\\n'
     FROM ${schema}.runs r CROSS JOIN generate_series(0, 1) p`,
    `VACUUM ANALYZE ${schema}.runs`,
    `VACUUM ANALYZE ${schema}.entries`,
  ];
  for (const sql of statements) await pool.query(sql);
}

/** What the server has counted for the large tables of a schema. */
async function statistics(pool, schema) {
  // Connections report at most once a second.
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  const { rows } = await pool.query(
    `SELECT sum(seq_scan) AS scans, sum(n_tup_upd) FILTER (WHERE relname = 'runs') AS updated,
       sum(n_tup_hot_upd) FILTER (WHERE relname = 'runs') AS hot
     FROM pg_stat_user_tables WHERE schemaname = $1 AND relname IN ('runs', 'entries')`,
    [schema],
  );
  return Object.fromEntries(Object.entries(rows[0]).map(([name, value]) => [name, Number(value)]));
}

/** How late the parts of runs elsewhere arrive, and what it costs to follow many runs of which none moves. */
export const measureFollowing = async (subject, scale) => {
  const hints = subject === "cadenza" ? "hints" : "no hints";
  const measure = (kind) =>
    inSchema(async (schema) => {
      const follower = await start("follower.mjs", schema, hints, kind, scale);
      follower.kill();
      return follower.first;
    });
  const { p50, p99 } = await measure("parts");
  const { rate } = await measure("idle");
  return { p50, p99, queries: rate };
};

/** What the server's log says of a load of two processes: transactions that a client has begun, and deadlocks. */
export const measureLog = async (_subject, scale) =>
  inSchema(async (schema, pool) => {
    const before = readFileSync(server.log, "utf8").length;
    await pool.query("ALTER ROLE postgres SET log_statement = 'all'");
    try {
      await rateOfProcesses(2, "cadenza", "cycle", schema, scale);
    } finally {
      await pool.query("ALTER ROLE postgres RESET log_statement");
    }
    const log = readFileSync(server.log, "utf8").slice(before);
    const count = (pattern) => log.match(pattern)?.length ?? 0;
    const { rows } = await pool.query("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    return {
      statements: count(/write_v\d/g),
      begins: count(/LOG: +(statement|execute [^:]+): *(BEGIN|START TRANSACTION)/gi),
      deadlocks: Number(rows[0].deadlocks),
    };
  });
