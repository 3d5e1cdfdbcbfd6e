import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { AgentRuntime, CadenzaError } from "cadenza";
import type { SqliteStoreOptions } from "cadenza/sqlite";
import { openSqliteStore, SqliteStore } from "cadenza/sqlite";
import type { RunQuery } from "cadenza/store";
import Libsql from "libsql";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { NOW } from "../../../src/stores/contract/check.ts";
import {
  append,
  counters,
  create,
  createEnded,
  ended,
  head,
  keep,
  look,
  message,
  over,
  parts,
  runId,
  runKey,
  sessionId,
  sessionKey,
  take,
  waiting,
  write,
} from "../../../src/stores/contract/samples.ts";
import { counterNames } from "../../harness/internals.ts";
import { complaintsOf } from "../../harness/slot-judge.ts";
import { drivers, openDatabase, temporaryFolder } from "../../harness/sqlite-files.ts";

/** A time that has not come. */
const FAR = 9_000_000_000_000;

let folder: ReturnType<typeof temporaryFolder>;
let path: string;

beforeEach(() => {
  folder = temporaryFolder();
  path = join(folder.path, "runs.db");
});

afterEach(() => folder.remove());

describe.each(drivers)("a handle of $name", ({ open }) => {
  it("that is closed already may be closed with the store", () => {
    const db = open(path);
    const store = new SqliteStore(db, { closeDatabase: true });
    db.close();
    store.close();
    store.close();

    expect(() => db.prepare("SELECT 1").get()).toThrow();
  });
});

it("a runtime that has closed its store says so, whatever is asked of the store", async () => {
  const runtime = new AgentRuntime({ store: new SqliteStore(openDatabase(path), { closeDatabase: true }) });
  runtime.register("asks", { durable: true }, (_input, { ask }) => ask("Well?").then(() => "done"));
  const { run_id } = await runtime.createRun({ agent_name: "asks", input: "" });
  await runtime.close();
  const asked = {
    getRun: () => runtime.getRun(run_id),
    listRuns: () => runtime.listRuns(),
    getAgent: () => runtime.getAgent("asks"),
    resume: () => runtime.resume({ run_id, await_resume: { ok: true } }),
    cancel: () => runtime.cancel(run_id),
    fork: () => runtime.fork(run_id),
    events: () => runtime.events(run_id).next(),
  };
  for (const [name, ask] of Object.entries(asked))
    await expect(ask(), name).rejects.toMatchObject({ code: "runtime_closed" });
});

describe("the handle", () => {
  it.each<[options: SqliteStoreOptions, synchronous: number]>([
    [{}, 2],
    [{ synchronous: "FULL" }, 2],
    [{ synchronous: "NORMAL" }, 1],
  ])("is set to WAL and, with %j, to synchronous = %i", (options, synchronous) => {
    const db = openDatabase(path);
    db.exec(`PRAGMA synchronous = ${3 - synchronous}`);
    new SqliteStore(db, options);

    expect(db.prepare("PRAGMA synchronous").get()).toMatchObject({ synchronous });
    expect(db.prepare("PRAGMA journal_mode").get()).toMatchObject({ journal_mode: "wal" });
    db.close();
  });

  it.each<[options: object, said: string]>([
    [{ synchronous: "OFF" }, "synchronous: expected FULL or NORMAL, received OFF"],
    [{ busyTimeoutMs: 0 }, "busyTimeoutMs: expected a positive number, received 0"],
    [{ busyTimeoutMs: Number.NaN }, "busyTimeoutMs: expected a positive number, received NaN"],
    [{ busyTimeoutMs: "5" }, "busyTimeoutMs: expected a positive number, received 5"],
  ])("is not touched with %j", (options, said) => {
    const db = openDatabase(path);
    expect(() => new SqliteStore(db, options as SqliteStoreOptions)).toThrow(said);

    expect(db.prepare("SELECT * FROM sqlite_master").all()).toEqual([]);
    db.close();
  });

  it("is not closed with the store, unless closeDatabase is set", () => {
    const db = openDatabase(path);
    new SqliteStore(db).close();
    expect(db.prepare("SELECT 1 AS one").get()).toMatchObject({ one: 1 });
    new SqliteStore(db, { closeDatabase: true }).close();

    expect(() => db.prepare("SELECT 1").get()).toThrow();
  });

  it("may give bigints for numbers", async () => {
    const db = new Libsql(path).defaultSafeIntegers(true);
    const store = new SqliteStore(db, { synchronous: "NORMAL" });
    const session = { session_id: sessionId(1), create: true, at: 5 };
    const key = await create(store, 1, {
      idempotencyKey: "key",
      session,
      head: over(7),
      counters: counters({ failed: 1 }),
    });
    const expected = new SqliteStore(openDatabase(path));

    expect(await look(store, key, sessionKey(1))).toEqual(await look(expected, key, sessionKey(1)));
    const answer = await store.append(key, { epoch: 9, position: 9 }, write([ended()]));
    expect(answer).toEqual({ conflict: "changed", epoch: 2, position: 1 });
    expect(await store.prune({ maxRuns: 0, endedBefore: 0, sessionsBefore: 9 })).toBe(1);
  });

  it("makes a persistent store only if it is a file", () => {
    expect(new SqliteStore(openDatabase(path)).persistent).toBe(true);
    expect(new SqliteStore(openDatabase(":memory:")).persistent).toBe(false);
  });

  it("may hold the user's own tables", async () => {
    const db = openDatabase(path);
    db.exec("CREATE TABLE runs (mine TEXT); PRAGMA user_version = 42");
    await create(new SqliteStore(db), 1);

    expect(db.prepare("PRAGMA user_version").get()).toMatchObject({ user_version: 42 });
    const tables = db
      .prepare("SELECT name FROM sqlite_master WHERE name NOT LIKE '%cadenza%' AND name NOT LIKE 'sqlite_%'")
      .all();
    expect(tables.map((row) => ({ ...(row as object) }))).toMatchObject([{ name: "runs" }]);
  });
});

/** Takes away what version 20 has changed. */
const withoutSnapshots = "DROP TRIGGER cadenza_snapshots_go; DROP TABLE cadenza_snapshots";
/** Takes away what versions 19 and 20 have changed. */
const withoutRetention = `${withoutSnapshots}; DROP TABLE cadenza_retention; DROP TABLE cadenza_removed`;
/** Takes away what versions 18 to 20 have changed. */
const withoutLimits = `${withoutRetention}; DROP INDEX cadenza_runs_cancelling;
  CREATE INDEX cadenza_runs_cancelling ON cadenza_runs (owner, due_at) WHERE status = 'cancelling'; DROP INDEX cadenza_runs_due; DROP INDEX cadenza_runs_apart; DROP INDEX cadenza_runs_in_line;
  DROP INDEX cadenza_runs_through; ALTER TABLE cadenza_runs DROP COLUMN limits; DROP INDEX cadenza_slots_marked; DROP INDEX cadenza_slots_idle; DROP TABLE cadenza_grants;
  ALTER TABLE cadenza_slots DROP COLUMN look_at; ALTER TABLE cadenza_slots DROP COLUMN until; ALTER TABLE cadenza_slots DROP COLUMN kept;
  ALTER TABLE cadenza_runs DROP COLUMN came_at; ALTER TABLE cadenza_runs DROP COLUMN gate;
  ALTER TABLE cadenza_runs RENAME COLUMN turn TO rank; ALTER TABLE cadenza_runs DROP COLUMN priority;
  CREATE INDEX cadenza_runs_due ON cadenza_runs (agent_name, version, due_at, id, owner, line, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL AND line IS NULL AND due_at IS NOT NULL;
  CREATE INDEX cadenza_runs_in_line ON cadenza_runs (line, rank, id, agent_name, version, due_at, owner, finished_at)
    WHERE finished_at IS NULL AND line IS NOT NULL`;
/** Takes away what versions 17 to 20 have changed. */
const withoutStepLimits = `${withoutLimits}; DROP TABLE cadenza_step_grants; DROP TABLE cadenza_step_permits`;
/** Takes away what versions 16 to 20 have changed. */
const withoutFailed = `${withoutStepLimits}; DROP INDEX cadenza_runs_failed`;
/** Takes away what versions 15 to 20 have changed. */
const withoutCounts = `${withoutFailed}; DROP INDEX cadenza_runs_waiting`;
/** Takes away what versions 14 to 20 have changed. */
const withoutPauses = `${withoutCounts}; DROP TABLE cadenza_pauses; DROP INDEX cadenza_runs_aside`;
/** Takes away what versions 13 to 20 have changed. */
const withoutInbox = `${withoutPauses}; DROP TABLE cadenza_inbox; ALTER TABLE cadenza_runs DROP COLUMN arrived;
  DROP INDEX cadenza_runs_reserved; ALTER TABLE cadenza_runs DROP COLUMN since;
  DROP INDEX cadenza_runs_by_owner; ALTER TABLE cadenza_runs DROP COLUMN plain;
  CREATE INDEX cadenza_runs_by_owner ON cadenza_runs (owner, agent_name, version, due_at, id, tenant, status, parent, finished_at)
    WHERE finished_at IS NULL AND owner IS NOT NULL`;
/** Takes away what versions 12 to 20 have changed. */
const withoutLines = `${withoutInbox}; DROP INDEX cadenza_runs_in_line; DROP INDEX cadenza_runs_due; DROP TABLE cadenza_slots;
  ALTER TABLE cadenza_runs DROP COLUMN line; ALTER TABLE cadenza_runs DROP COLUMN rank;
  ALTER TABLE cadenza_runs RENAME COLUMN created_by TO creator; ALTER TABLE cadenza_runs RENAME COLUMN look TO for_look;
  ALTER TABLE cadenza_runs ADD COLUMN
    queue TEXT GENERATED ALWAYS AS (CASE WHEN holds_slot OR for_look THEN NULL ELSE slot END) VIRTUAL;
  CREATE INDEX cadenza_runs_due ON cadenza_runs (agent_name, version, queue, due_at, id, owner, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL;
  CREATE INDEX cadenza_runs_in_slot ON cadenza_runs (slot) WHERE finished_at IS NULL AND holds_slot AND slot IS NOT NULL`;
/** Takes away what versions 11 to 20 have changed. */
const withoutCreators = `${withoutLines}; DROP INDEX cadenza_runs_by_creator; ALTER TABLE cadenza_runs DROP COLUMN creator;
  ALTER TABLE cadenza_sessions DROP COLUMN creator`;
/** Takes away what versions 10 to 20 have changed. */
const withoutGenerations = `${withoutCreators}; ALTER TABLE cadenza_sessions DROP COLUMN generation`;
/** Takes away what versions 9 to 20 have changed. */
const withoutFeed = `${withoutGenerations}; DROP TABLE cadenza_feed; DROP TABLE cadenza_feed_events`;
/** Takes away what versions 8 to 20 have changed. */
const withoutStates = `${withoutFeed}; DROP INDEX cadenza_runs_by_state; DROP INDEX cadenza_runs_by_key;
  CREATE UNIQUE INDEX cadenza_runs_by_key ON cadenza_runs (tenant, run_id)`;
/** Takes away what versions 7 to 20 have changed. */
const withoutTimes = `${withoutStates}; DROP INDEX cadenza_runs_by_time; ALTER TABLE cadenza_runs DROP COLUMN created_at`;

describe("the schema", () => {
  it("is created once, and used by a store that is opened later", async () => {
    const first = new SqliteStore(openDatabase(path));
    const key = await create(first, 1);
    const before = schema();
    const second = new SqliteStore(openDatabase(path));

    expect(second.find(key)).toEqual(first.find(key));
    expect(schema()).toEqual(before);
    expect(versions()).toEqual([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
  });

  it("is created completely or not at all", () => {
    const db = openDatabase(path);
    db.exec("CREATE TABLE cadenza_counters (other INTEGER)");
    expect(() => new SqliteStore(db)).toThrow(/cadenza_counters/);
    expect(tables()).toEqual(["cadenza_counters"]);
    db.exec("DROP TABLE cadenza_counters");
    new SqliteStore(db);

    expect(versions()).toEqual([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
  });

  it("of version 5 is brought up to date, with the runs in it", async () => {
    const db = openDatabase(path);
    const parent = { run_id: runId(1), key: "run:echo#1", depth: 1 };
    const key = await create(new SqliteStore(db), 2, { created: { parent } });
    const before = definitions();
    db.exec(`${withoutTimes}; DROP TABLE cadenza_labels; DROP INDEX cadenza_runs_by_parent;
      DELETE FROM cadenza_migrations WHERE number > 5`);
    const store = new SqliteStore(openDatabase(path));
    await create(store, 3, { created: { labels: { order: "1" } } });

    expect(definitions()).toEqual(before);
    expect(versions()).toEqual([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
    expect(store.list({ tenant: key.tenant, parents: [runId(1)], limit: 9, offset: 0 })).toEqual([store.find(key)]);
    expect(store.list({ tenant: key.tenant, labels: { order: "1" }, limit: 9, offset: 0 })).toHaveLength(1);
  });

  it("of version 6 is brought up to date, with the times of the runs in it", async () => {
    const db = openDatabase(path);
    const former = new SqliteStore(db);
    for (const n of [1, 2, 3]) await create(former, n, { created: { at: NOW + 10 * n } });
    await append(former, runKey(3), 1, write(parts("a")));
    await create(former, 4);
    const before = definitions();
    db.exec(`${withoutTimes}; DELETE FROM cadenza_migrations WHERE number > 6;
      UPDATE cadenza_entries SET lines = substr(lines, 5) WHERE run = 4`);
    const store = new SqliteStore(openDatabase(path));
    await create(store, 5, { created: { at: NOW + 50 } });
    const list = (query: Partial<RunQuery>) =>
      store.list({ tenant: runKey(1).tenant, limit: 9, offset: 0, ...query }).map(({ key }) => key);

    expect(definitions()).toEqual(before);
    expect(versions()).toEqual([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
    expect(list({ createdAfter: NOW + 20, createdBefore: NOW + 50 })).toEqual([runKey(3), runKey(2)]);
    expect(list({ createdAfter: 0 })).toEqual([5, 3, 2, 1].map((n) => runKey(n)));
    expect(list({})).toHaveLength(5);
  });

  it("of version 7 is brought up to date, and finds its runs by their ids and states", async () => {
    const db = openDatabase(path);
    const key = await create(new SqliteStore(db), 1, { head: waiting() });
    const before = definitions();
    db.exec(`${withoutStates}; DELETE FROM cadenza_migrations WHERE number > 7`);
    const store = new SqliteStore(openDatabase(path));
    const found = { runs: [store.find(key)], next: null };

    expect(definitions()).toEqual(before);
    expect(store.survey({ idPrefix: key.run_id, limit: 9 })).toEqual(found);
    expect(store.survey({ statuses: ["awaiting"], limit: 9 })).toEqual(found);
  });

  it("of version 8 is brought up to date, and may have a feed", async () => {
    const db = openDatabase(path);
    const key = await create(new SqliteStore(db), 1);
    const before = definitions();
    db.exec(`${withoutFeed}; DELETE FROM cadenza_migrations WHERE number > 8`);
    const store = new SqliteStore(openDatabase(path), { feed: { keepMs: 1_000 } });
    await append(store, key, 1, write([ended()], { head: over(), feed: [{ type: "run.completed" }] }));

    expect(definitions()).toEqual(before);
    expect(store.readFeed?.({ from: "start", limit: 9 })?.items).toMatchObject([{ key, agent_name: "echo" }]);
  });

  it("of version 9 is brought up to date, and its sessions have no generation until they are made again", async () => {
    const db = openDatabase(path);
    const session = { history: [message("a")], state: null };
    await new SqliteStore(db).putSession(sessionKey(1), { ...session, generation: "lost" }, NOW);
    const before = definitions();
    db.exec(`${withoutGenerations}; DELETE FROM cadenza_migrations WHERE number > 9`);
    const store = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    expect(store.session(sessionKey(1))).toEqual(session);
    await store.deleteSession(sessionKey(1));
    await store.putSession(sessionKey(1), { ...session, generation: "new" }, NOW);
    expect(store.sessionHead(sessionKey(1))).toEqual({ length: 1, state: null, generation: "new" });
  });

  it("of version 10 is brought up to date, and what was in it has no creator", async () => {
    const db = openDatabase(path);
    const former = new SqliteStore(db);
    const key = await create(former, 1, { created: { principal: "ada" } });
    await former.putSession(sessionKey(1), { history: [], state: null, creator: "ada" }, NOW);
    const before = definitions();
    db.exec(`${withoutCreators}; DELETE FROM cadenza_migrations WHERE number > 10`);
    const store = new SqliteStore(openDatabase(path));
    const newer = await create(store, 2, { created: { principal: "ada" } });

    expect(definitions()).toEqual(before);
    expect(store.session(sessionKey(1))).toEqual({ history: [], state: null });
    const found = store.list({ tenant: key.tenant, creator: "ada", limit: 9, offset: 0 });
    expect(found.map((one) => one.key)).toEqual([newer]);
  });

  it("of version 11 is brought up to date, and what waits for a permit stands in line", async () => {
    const db = openDatabase(path);
    const former = new SqliteStore(db);
    const slot = { key: "slot \u0000", max: 2 };
    await create(former, 1, { slot, head: waiting(null, { holds_slot: true }) });
    for (const [n, due_at] of [NOW - 1, NOW - 3, NOW - 2, FAR, NOW - 9].entries())
      await create(former, 2 + n, { slot, head: waiting(due_at) });
    await create(former, 7, { slot, head: waiting(NOW, { blocked: { position: 1, expected: "a", asked: "b" } }) });
    await create(former, 8, { slot: { ...slot, key: "free" }, head: waiting(NOW) });
    const before = definitions();
    db.exec(`${withoutLines}; DELETE FROM cadenza_migrations WHERE number > 11;
      UPDATE cadenza_runs SET holds_slot = id = 1, for_look = id = 6`);
    const store = new SqliteStore(openDatabase(path), { clock: { now: () => NOW } });
    const taken = async () => {
      const runs = await store.take({ owner: "owner", agents: [{ agent_name: "echo", version: null }], limit: 9 });
      return runs.map(({ key }) => key.run_id);
    };

    expect(definitions()).toEqual(before);
    expect(complaintsOf(db)).toEqual([]);
    await store.renew("owner", 1_000);
    expect(await taken()).toEqual([6, 3, 8].map(runId));
    for (const [ends, next] of [
      [1, 4],
      [3, 2],
      [4, 7],
    ] as const) {
      const { head, position } = store.find(runKey(ends)) ?? expect.fail();
      await store.append(runKey(ends), { epoch: head.epoch, position }, write([], { head: over() }));
      expect(await taken()).toEqual([runId(next)]);
    }
    expect(complaintsOf(db)).toEqual([]);
  });

  it("of version 12 is brought up to date, and knows which runs are not durable", async () => {
    const db = openDatabase(path);
    const former = new SqliteStore(db);
    const dead = head({ owner: "dead" });
    await create(former, 1, { head: dead });
    await create(former, 2, { head: dead, isPlain: true });
    await create(former, 3, { head: dead, isPlain: true, created: { agent_name: '"durable":true' } });
    const before = definitions();
    db.exec(`${withoutInbox}; DELETE FROM cadenza_migrations WHERE number > 12`);
    const store = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    const taken = await store.take({ owner: "owner", agents: [], limit: 9 });
    expect(taken.map(({ key }) => key.run_id)).toEqual([2, 3].map(runId));
  });

  it("of version 14 is brought up to date, and counts what was in it", async () => {
    const db = openDatabase(path);
    const store = new SqliteStore(db);
    await create(store, 1, { head: waiting(null) });
    const counted = [store.census(), store.backlog()];
    const before = definitions();
    db.exec(`${withoutCounts}; DELETE FROM cadenza_migrations WHERE number > 14`);
    const next = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    expect([next.census(), next.backlog()]).toEqual(counted);
    expect(counted[0]).toHaveLength(1);
  });

  it("of version 13 is brought up to date, and has no pauses", async () => {
    const db = openDatabase(path);
    const key = await create(new SqliteStore(db), 1);
    const before = definitions();
    db.exec(`${withoutPauses}; DELETE FROM cadenza_migrations WHERE number > 13`);
    const store = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    expect(store.pauses()).toEqual([]);
    expect(await store.pause({ tenant: key.tenant }, null)).toBe(true);
  });

  it("of version 15 is brought up to date, and its runs have the priority 0", async () => {
    const db = openDatabase(path);
    const store = new SqliteStore(db, { clock: { now: () => NOW } });
    const slot = { key: "one", max: 1 };
    for (const n of [1, 2, 3]) await create(store, n, { slot, head: waiting(NOW - n) });
    await create(store, 4, { head: waiting(NOW - 9) });
    const before = definitions();
    db.exec(`${withoutFailed}; DELETE FROM cadenza_migrations WHERE number > 15`);
    const next = new SqliteStore(openDatabase(path), { clock: { now: () => NOW } });
    await create(next, 5, { slot, head: waiting(NOW), priority: 1 });
    await create(next, 6, { head: waiting(NOW), priority: -1 });

    expect(definitions()).toEqual(before);
    expect(complaintsOf(db)).toEqual([]);
    expect(await take(next)).toEqual([4, 1, 6].map(runId));
    for (const [ends, taken] of [
      [1, 5],
      [5, 2],
      [2, 3],
    ] as const) {
      await append(next, runKey(ends), 1, write([ended()], { head: over(NOW, { epoch: 3 }) }), 2);
      expect(await take(next)).toEqual([runId(taken)]);
    }
  });

  it("of version 18 is brought up to date, and has retention rules", async () => {
    const db = openDatabase(path);
    const key = await createEnded(new SqliteStore(db), 1, 10);
    const before = definitions();
    db.exec(`${withoutRetention}; DELETE FROM cadenza_migrations WHERE number > 18`);
    const store = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    expect(await store.prune({ ...keep, rules: [{ tenant: key.tenant, maxRuns: 0, endedBefore: 0 }] })).toBe(1);
  });

  it("of version 19 is brought up to date, and keeps snapshots", async () => {
    const db = openDatabase(path);
    const key = await create(new SqliteStore(db), 1);
    const before = definitions();
    db.exec(`${withoutSnapshots}; DELETE FROM cadenza_migrations WHERE number > 19`);
    const store = new SqliteStore(openDatabase(path));

    expect(definitions()).toEqual(before);
    await store.keepSnapshot(key, { position: 1, format: 1, state: "{}" });
    expect(store.snapshot(key)).toEqual({ position: 1, format: 1, state: "{}" });
  });

  it("refuses the writes of processes with an earlier version, which know no priorities", () => {
    const db = openDatabase(path);
    new SqliteStore(db);

    expect(() => db.prepare("INSERT INTO cadenza_runs (tenant, run_id, line, rank) VALUES (?, ?, ?, ?)")).toThrow(
      "rank",
    );
    expect(() => db.prepare("SELECT look, line, rank FROM cadenza_runs WHERE run_id = ?")).toThrow("rank");
    expect(() => db.prepare("SELECT id, look, rank FROM cadenza_runs WHERE due_at <= ?")).toThrow("rank");
  });

  it("refuses the writes of processes with an earlier version, which know no lines", () => {
    const db = openDatabase(path);
    new SqliteStore(db);

    expect(() => db.prepare("INSERT INTO cadenza_runs (tenant, run_id, creator) VALUES (?, ?, ?)")).toThrow("creator");
    expect(() => db.prepare("SELECT wakes, for_look, position FROM cadenza_runs WHERE run_id = ?")).toThrow("for_look");
    expect(() => db.prepare("SELECT min(queue) FROM cadenza_runs")).toThrow("queue");
  });

  it("of a newer version is refused, and not changed", () => {
    const db = openDatabase(path);
    new SqliteStore(db);
    db.exec("INSERT INTO cadenza_migrations (number) VALUES (21)");
    const before = schema();
    const opening = () => new SqliteStore(openDatabase(path));

    expect(opening).toThrow(CadenzaError);
    expect(opening).toThrow("has schema 21, and this version of cadenza knows 20");
    expect(schema()).toEqual(before);
  });

  it.each([1, 2, 3, 4])("of version %i, which was never released, is refused, and not changed", (version) => {
    const db = openDatabase(path);
    db.exec("CREATE TABLE cadenza_migrations (number INTEGER PRIMARY KEY); CREATE TABLE cadenza_runs (id INTEGER)");
    for (let number = 1; number <= version; number++)
      db.exec(`INSERT INTO cadenza_migrations (number) VALUES (${number})`);
    const before = schema();
    const opening = () => new SqliteStore(openDatabase(path));

    expect(opening).toThrow(CadenzaError);
    expect(opening).toThrow(`has schema ${version}, and this version of cadenza knows 5 and later`);
    expect(schema()).toEqual(before);
  });

  it("has a column for every counter", () => {
    new SqliteStore(openDatabase(path));
    const columns = openDatabase(path).prepare("SELECT name FROM pragma_table_info('cadenza_counters')").all();

    expect(columns.map((row) => (row as { name: string }).name)).toEqual(["agent_name", ...counterNames]);
  });
});

it("a log that is full takes no more entries, and the write changes nothing", async () => {
  const db = openDatabase(path);
  const store = new SqliteStore(db, { synchronous: "NORMAL" });
  const key = await create(store, 1);
  await create(store, 2);
  const position = 2 ** 26 - 1;
  db.exec(`UPDATE cadenza_runs SET position = ${position} WHERE id = 1`);
  const before = store.find(key);
  const more = store.append(key, { epoch: 1, position }, write(parts("a"), { head: waiting() }));

  await expect(more).rejects.toThrow(`expected fewer than ${position} entries`);
  expect(store.find(key)).toEqual(before);
  expect(store.read(runKey(2), 0, 9)).toHaveLength(1);
});

describe("openSqliteStore", () => {
  const builtIn = drivers.some(({ name }) => name === "node:sqlite");

  it.runIf(builtIn)("opens a file with Node's own SQLite, and close closes it", async () => {
    const store = openSqliteStore(path);
    const key = await create(store, 1);
    store.close();
    expect(() => store.find(key)).toThrow();
    const again = openSqliteStore(path, { synchronous: "NORMAL" });

    expect(again.persistent).toBe(true);
    expect(again.find(key)?.position).toBe(1);
    again.close();
  });

  it.runIf(builtIn)("says what is wrong with a path", () => {
    writeFileSync(path, "x".repeat(5_000));
    expect(() => openSqliteStore(path)).toThrow(/^The database cannot be read: file is not a database\.$/);
    expect(() => openSqliteStore(folder.path)).toThrow(/^The database cannot be read: unable to open database file\.$/);
    expect(() => openSqliteStore({ path } as never)).toThrow("path: expected a string that is not empty");
  });

  it.runIf(builtIn)("closes what it has opened if the store refuses it", () => {
    openSqliteStore(path).close();
    const db = openDatabase(path);
    db.exec("INSERT INTO cadenza_migrations (number) VALUES (99)");
    db.close();

    expect(() => openSqliteStore(path)).toThrow("has schema 99");
  });
});

function schema(): unknown {
  return openDatabase(path).prepare("SELECT * FROM sqlite_master ORDER BY name").all();
}

function definitions(): readonly unknown[] {
  return openDatabase(path).prepare("SELECT name, sql FROM sqlite_master ORDER BY name").all();
}

function tables(): readonly string[] {
  const rows = openDatabase(path).prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all();
  return rows.map((row) => (row as { name: string }).name);
}

function versions(): readonly number[] {
  const rows = openDatabase(path).prepare("SELECT number FROM cadenza_migrations ORDER BY number").all();
  return rows.map((row) => (row as { number: number }).number);
}
