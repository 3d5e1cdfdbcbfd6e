import { randomUUID } from "node:crypto";
import { getBuiltinModule } from "node:process";
import Libsql from "libsql";
import { durableRuns, registerDurable } from "./durable.mjs";
import { library } from "./library.mjs";

/** Node's own SQLite if it has one, else libsql. */
function openDatabase(path) {
  const Database = getBuiltinModule("node:sqlite")?.DatabaseSync ?? Libsql;
  return new Database(path);
}

/*
 * What an application would write by hand: a row for each run, a row of a log for each change of it, one transaction
 * up to the next stop of the run. Transactions that are due in one turn of the event loop are one.
 */
export function openSqliteFloor(path) {
  const db = openDatabase(path);
  db.exec("PRAGMA journal_mode = WAL");
  db.exec("PRAGMA synchronous = FULL");
  db.exec("CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT NOT NULL, position INTEGER NOT NULL)");
  db.exec(`CREATE TABLE log (run TEXT NOT NULL, position INTEGER NOT NULL, line TEXT NOT NULL,
    PRIMARY KEY (run, position)) WITHOUT ROWID`);
  const add = db.prepare("INSERT INTO runs VALUES (?, ?, ?)");
  const change = db.prepare("UPDATE runs SET status = ?, position = ? WHERE id = ? AND position = ?");
  const log = db.prepare("INSERT INTO log VALUES (?, ?, ?)");
  let due = [];
  const flush = () => {
    const jobs = due;
    due = [];
    db.exec("BEGIN IMMEDIATE");
    for (const { write } of jobs) write();
    db.exec("COMMIT");
    for (const { done } of jobs) done();
  };
  const together = (write) =>
    new Promise((done) => {
      due.push({ write, done });
      if (due.length === 1) setImmediate(flush);
    });
  const append = (id, from, entries) => {
    for (const [index, entry] of entries.entries()) log.run(id, from + index, JSON.stringify(entry));
  };
  const begin = (id, status, entries) =>
    together(() => {
      add.run(id, status, entries.length);
      append(id, 0, entries);
    });
  const goOn = (id, status, from, entries) =>
    together(() => {
      change.run(status, from + entries.length, id, from);
      append(id, from, entries);
    });
  const entry = (type, fields) => ({ type, at: Date.now(), ...fields });
  return {
    run: async (text) => {
      const id = randomUUID();
      await begin(id, "in-progress", [entry("created", { input: text }), entry("started")]);
      await goOn(id, "completed", 2, [entry("emitted", { text }), entry("ended")]);
    },
    cycle: async (text) => {
      const id = randomUUID();
      const asked = [entry("created", { input: text }), entry("started"), entry("awaited", { question: text })];
      await begin(id, "awaiting", asked);
      await goOn(id, "completed", 3, [entry("resumed", { text }), entry("emitted", { text }), entry("ended")]);
    },
    close: async () => db.close(),
  };
}

/** The library with durable agents. */
export async function openSqliteCadenza(path) {
  const entryAt = (entry) => import(library.replace(/index(\.m?js)$/, `${entry}$1`));
  const { AgentRuntime } = await import(library);
  const { SqliteStore } = await entryAt("sqlite");
  const { durable } = await entryAt("store");
  const runtime = registerDurable(new AgentRuntime({ store: durable(new SqliteStore(openDatabase(path))) }));
  return { ...durableRuns(runtime), close: () => runtime.close() };
}
