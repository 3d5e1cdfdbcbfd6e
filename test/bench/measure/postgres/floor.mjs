import { equal } from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { newPool } from "./database.mjs";

const CONNECTIONS = 5;

/*
 * What an application would write by hand: a row for each run, a row of a log for each change of it, and nothing else.
 * It has no owners, readers, sessions or limits, and a run cannot be taken over. Each write is one statement. Without
 * `alone`, the writes that wait while a statement is under way share the next one.
 */
export async function openFloor(schema, { alone = false } = {}) {
  const pool = newPool(CONNECTIONS);
  await pool.query(
    `DO $$ BEGIN
       PERFORM pg_advisory_xact_lock(1);
       CREATE SCHEMA IF NOT EXISTS ${schema};
       CREATE TABLE IF NOT EXISTS ${schema}.runs
         (id text PRIMARY KEY, status text NOT NULL, position integer NOT NULL) WITH (fillfactor = 60);
       CREATE TABLE IF NOT EXISTS ${schema}.log
         (run text NOT NULL, position integer NOT NULL, line text NOT NULL, PRIMARY KEY (run, position));
     END $$`,
  );
  const sql = `
    WITH w AS (SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]) w (id, status, position, line)),
    made AS (INSERT INTO ${schema}.runs SELECT id, status, position FROM w WHERE position = 0),
    changed AS (UPDATE ${schema}.runs r SET status = w.status, position = w.position FROM w
      WHERE r.id = w.id AND w.position > 0 AND r.position = w.position - 1 RETURNING r.id)
    INSERT INTO ${schema}.log SELECT id, position, line FROM w
    WHERE position = 0 OR id IN (SELECT id FROM changed) RETURNING run`;
  const send = async (jobs) => {
    const columns = [0, 1, 2, 3].map((column) => jobs.map(({ values }) => values[column]));
    const { rowCount } = await pool.query(sql, columns);
    equal(rowCount, jobs.length);
    for (const { done } of jobs) done();
  };
  let waiting = [];
  let isSending = false;
  const sendAll = async () => {
    isSending = true;
    await new Promise(setImmediate);
    while (waiting.length > 0) {
      const jobs = waiting;
      waiting = [];
      await send(jobs);
    }
    isSending = false;
  };
  const write = (...values) =>
    new Promise((done) => {
      if (alone) return void send([{ values, done }]);
      waiting.push({ values, done });
      if (!isSending) void sendAll();
    });
  return {
    run: async (text) => {
      const id = randomUUID();
      await write(id, "created", 0, JSON.stringify({ type: "created", at: Date.now(), input: text }));
      await write(id, "completed", 1, JSON.stringify({ type: "ended", at: Date.now(), output: text }));
    },
    cycle: async (text) => {
      const id = randomUUID();
      await write(id, "created", 0, JSON.stringify({ type: "created", at: Date.now(), input: text }));
      await write(id, "awaiting", 1, JSON.stringify({ type: "awaited", at: Date.now(), question: text }));
      await write(id, "completed", 2, JSON.stringify({ type: "resumed", at: Date.now(), answer: text, output: text }));
    },
  };
}
