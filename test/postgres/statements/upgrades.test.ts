import { openPostgresStore, postgresSchemaSql } from "cadenza/postgres";
import type pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  append,
  create,
  created,
  ended,
  head,
  over,
  runId,
  runKey,
  take,
  write,
} from "../../../src/stores/contract/samples.ts";
import { quoteName } from "../../harness/internals.ts";
import { missingServer, newPool, newSchema, PATIENT } from "../../harness/postgres-stores.ts";
import { lineComplaints } from "./line-judge.ts";

const missing = missingServer(18);
const DUE = 1_000;
const LATER = 1e15;

/** The columns of a run that tell it from others: its number is its id. */
interface Row {
  readonly slot?: string;
  readonly owner?: string;
  readonly due?: number;
  readonly holds?: true;
  readonly look?: true;
  readonly blocked?: true;
  readonly ended?: true;
}

const rows: readonly Row[] = [
  { slot: "full", owner: "owner-1", holds: true },
  { slot: "full", due: DUE + 3 },
  { slot: "full", due: DUE + 2 },
  { slot: "full", due: LATER },
  { slot: "full", due: DUE + 4, look: true },
  { slot: "full", blocked: true },
  { slot: "full", holds: true, ended: true },
  { slot: "free", due: DUE + 9 },
  { slot: "free", due: DUE + 8 },
  { slot: "kept", holds: true },
  { slot: "kept", due: DUE + 1 },
  { due: DUE + 7 },
];

describe.skipIf(missing !== undefined)(`a schema of an earlier version${missing ? `: ${missing}` : ""}`, () => {
  let pool: pg.Pool;
  beforeAll(() => {
    pool = newPool(18);
  });
  afterAll(() => pool.end());

  it.each([1, 2, 3, 4, 5, 6, 7])("%i: runs that wait for a slot stand in line after the upgrade", async (version) => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(sqlUpTo(schema, version));
    for (const [n, row] of rows.entries()) await insert(name, n, row);
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    expect(await lineComplaints(pool, name)).toEqual([]);
    await store.renew("owner-1", 60_000);
    expect(await take(store)).toEqual([4, 11, 8].map(runId));
    expect(await lineComplaints(pool, name)).toEqual([]);
    await append(store, runKey(0), 1, write([ended()], { head: over() }));
    expect(await take(store)).toEqual([runId(2)]);
    await append(store, runKey(9), 1, write([], { head: head({ owner: null }) }));
    expect(await take(store)).toEqual([runId(10)]);
    expect(await lineComplaints(pool, name)).toEqual([]);
    await store.close();
  });

  it("refuses processes of its release after the upgrade, and gives their runs to those of this one", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(sqlUpTo(schema, 2));
    const write = (json: object) =>
      pool.query(`SELECT ${name}.write_v1(($1::text)::jsonb, NULL, 1) AS answers`, [JSON.stringify([json])]);
    const lease = { kind: "lease", owner: "owner-1", for_ms: "0" };
    await insert(name, 0, { owner: "owner-1" });
    await insert(name, 1, { ended: true });
    expect((await write(lease)).rows).toEqual([{ answers: [null] }]);
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });

    const refusal = "A newer version of cadenza has changed the schema";
    const append = { kind: "append", ...runKey(0), epoch: 1, position: 1, wakes: 0, head: over(), count: 0, lines: "" };
    for (const json of [
      { ...lease, for_ms: "60000" },
      append,
      { ...append, kind: "post" },
      { ...append, kind: "claim" },
    ])
      await expect(write(json)).rejects.toThrow(refusal);
    const taking = pool.query(`SELECT ${name}.take_v1('owner-2', '[["echo", ""]]', 9, 99, 0, NULL, NULL)`);
    await expect(taking).rejects.toThrow(refusal);
    await expect(pool.query(`SELECT ${name}.prune_runs_v1(0, 20, 9)`)).rejects.toThrow(refusal);
    expect(await store.find(runKey(1))).toBeDefined();
    expect(await take(store)).toEqual([runId(0)]);
    expect(await store.find(runKey(0))).toMatchObject({ position: 1, head: { epoch: 2 } });
    await store.close();
  });

  it("wakes runs to which a question of a sub-run was written with a status of before, after the upgrade", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(sqlUpTo(schema, 2));
    for (const n of [0, 1, 2]) await insert(name, n, {});
    for (const [run, type] of [
      [1, "settled"],
      [2, "received"],
    ])
      await pool.query(`INSERT INTO ${name}.entries (run, position, lines) VALUES ($1, 1, $2)`, [
        run,
        `{"type":"${type}","at":1}\n`,
      ]);
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    expect(await take(store)).toEqual([runId(0)]);
    await store.close();
  });

  it("knows which runs are not durable, after the upgrade", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(sqlUpTo(schema, 9));
    for (const n of [0, 1, 2]) await insert(name, n, { owner: "dead" });
    await pool.query(
      `UPDATE ${name}.entries SET lines = replace(lines, '"durable":true,', '') WHERE run > 1;
       UPDATE ${name}.entries SET lines = replace(lines, 'echo', '\\"durable\\":true') WHERE run = 3`,
    );
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    await create(store, 3, { isPlain: true, head: head({ owner: "dead" }) });
    expect(await take(store, { agents: [] })).toEqual([1, 2, 3].map(runId));
    await store.close();
  });

  it("counts steps, after the upgrade", async () => {
    const schema = newSchema();
    await pool.query(sqlUpTo(schema, 12));
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    expect(await store.grantSteps("limit", { count: 2, perMs: 1e9 }, 9)).toEqual([0, 0]);
    expect(await store.permitSteps("a", "limit", 2, { turn: 1, used: 0, over: 0, wanted: 3 })).toBe(2);
    await store.close();
  });

  it("has pauses, after the upgrade", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(sqlUpTo(schema, 10));
    await insert(name, 0, { due: 5 });
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    expect(await store.pauses()).toEqual([]);
    expect(await store.pause({ tenant: "acme" }, "ann")).toBe(true);
    expect(await store.pauses()).toMatchObject([{ tenant: "acme", by: "ann" }]);
    expect(await take(store)).toEqual([]);
    await store.resume({ tenant: "acme" });
    expect(await store.comeBack(1)).toBe(1);
    expect(await take(store)).toEqual([runId(0)]);
    await store.close();
  });

  it("has the functions of this version, whatever an earlier one has left in their place", async () => {
    const schema = newSchema();
    const name = quoteName(schema);
    await pool.query(postgresSchemaSql(schema));
    const { rows } = await pool.query(
      `SELECT pg_get_functiondef(p.oid) AS made FROM pg_proc p WHERE pronamespace = $1::regnamespace AND proname = 'try_write_v1'`,
      [name],
    );
    await pool.query(`${rows[0].made.replace("BEGIN", "BEGIN RAISE EXCEPTION 'of an earlier version';")};
      DROP FUNCTION ${name}.lock_runs_v1; DELETE FROM ${name}.migrations WHERE number >= 18`);
    const store = await openPostgresStore({ pool, schema, hints: false, ...PATIENT });
    await Promise.all([1, 2].map((n) => create(store, n)));
    expect(await store.find(runKey(1))).toBeDefined();
    await store.close();
  });

  async function insert(schema: string, n: number, row: Row): Promise<void> {
    const status = row.ended === true ? "completed" : row.blocked === true ? "awaiting" : "in-progress";
    await pool.query(
      `WITH run AS (
        INSERT INTO ${schema}.runs (tenant, run_id, agent_name, version, session_id, slot, slot_max, status, epoch, owner,
          due_at, holds_slot, finished_at, takeovers, position, created_at, for_look, blocked)
        VALUES ('acme', $1, 'echo', '', $1, $2, 1, $3, 1, $4, $5, $6, $7, 0, 1, 1, $8, $9) RETURNING id)
      INSERT INTO ${schema}.entries (run, position, lines) SELECT id, 0, $10 FROM run`,
      [
        runId(n),
        row.slot === undefined ? "" : `=${row.slot}`,
        status,
        row.owner ?? null,
        row.due ?? null,
        row.holds ?? false,
        row.ended === true ? 5 : null,
        row.look ?? false,
        row.blocked === true ? "{}" : null,
        `${JSON.stringify(created(n))}\n`,
      ],
    );
  }
});

/** The SQL of a release that knew so many versions. */
function sqlUpTo(schema: string, version: number): string {
  const sql = postgresSchemaSql(schema);
  const next = sql.indexOf(`WHERE number = ${version + 1})`);
  return `${sql.slice(0, sql.lastIndexOf("IF NOT EXISTS", next))}END $migration$;`;
}
