import type { PostgresPool, PostgresStore, PostgresStoreOptions } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { RunKey } from "cadenza/store";
import type { OpenStores } from "cadenza/testing";
import pg from "pg";
import { inject, onTestFinished } from "vitest";
import type { OpenedStores } from "./internals.ts";
import { quoteName } from "./internals.ts";
import type { Major } from "./postgres-server.ts";

let schemas = 0;

/** A schema name that no other test uses. */
export function newSchema(): string {
  schemas += 1;
  return `test ${process.pid} ${schemas}`;
}

const emptied = new WeakMap<pg.Pool, string[]>();

/**
 * A schema on which the test opens stores of this pool. It is emptied after the test and used again, since to make one, and
 * to compile its functions on each connection, takes longer than most tests. The test closes its stores and changes no
 * definition in the schema. A schema is not used again if the test has failed, or if a connection still works in it.
 */
export function borrowSchema(pool: pg.Pool): string {
  const free = emptied.get(pool) ?? [];
  emptied.set(pool, free);
  const schema = free.pop() ?? newSchema();
  onTestFinished(async ({ task }) => {
    if (task.result?.state === "fail" || (await isUsed(pool, schema))) return;
    await emptySchema(pool, schema);
    free.push(schema);
  });
  return schema;
}

/** Whether another connection has a transaction or a statement in the schema. */
async function isUsed(pool: pg.Pool, schema: string): Promise<boolean> {
  const { rowCount } = await pool.query(
    `SELECT FROM pg_stat_activity a WHERE pid <> pg_backend_pid() AND (
       (state <> 'idle' AND strpos(query, $1) > 0) OR EXISTS (
         SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
         WHERE l.pid = a.pid AND c.relnamespace = to_regnamespace($1)))`,
    [quoteName(schema)],
  );
  return rowCount !== 0;
}

/** Options of stores that a test keeps busy: a call may take long, and no process is taken for dead meanwhile. */
export const PATIENT = { timeoutMs: 60_000, durability: { leaseMs: 600_000 } } as const;

/**
 * Opens a store with hints. A store opens without them where a notification to itself takes long, as it may on a busy machine.
 */
export async function openHinted(options: PostgresStoreOptions): Promise<PostgresStore> {
  for (;;) {
    const store = await openPostgresStore(options);
    if (store.watch !== undefined) return store;
    await store.close();
  }
}

/** Why there is no server of this version; undefined if there is one. */
export function missingServer(major: Major): string | undefined {
  const address = inject("postgres")[major];
  return "missing" in address ? address.missing : undefined;
}

/** A pool of connections to the server of this version. The test ends it. */
export function newPool(major: Major, options: pg.PoolConfig = {}): pg.Pool {
  const address = inject("postgres")[major];
  if ("missing" in address) throw new Error(address.missing);
  const { host, port } = address;
  return new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 5, ...options });
}

/**
 * Opens two stores on empty data, for the store contract. A schema is emptied and used again, since to make one takes
 * longer than most checks. `prepare` changes a schema that has been made, of which it gets the name as in SQL. `open` opens
 * one of the stores.
 */
export function openTwice(
  pool: PostgresPool,
  options: Partial<PostgresStoreOptions> = {},
  prepare: (schema: string) => Promise<void> = async () => {},
  open: (options: PostgresStoreOptions) => Promise<PostgresStore> = openPostgresStore,
): OpenStores {
  const free: string[] = [];
  return async ({ clock, feed }) => {
    const emptied = free.pop();
    const schema = emptied ?? newSchema();
    const both = async (): Promise<OpenedStores> => {
      const first = await open({ hints: false, pool, schema, clock, feed, ...options });
      const second = await open({ hints: false, pool, schema, clock, feed, ...options });
      const closeBoth = async () => {
        await first.close();
        await second.close();
      };
      return {
        first,
        second,
        damage: (key, position) => damage(pool, schema, key, position),
        async reopen() {
          await closeBoth();
          return both();
        },
        async close() {
          await closeBoth();
          await emptySchema(pool, schema);
          free.push(schema);
        },
      };
    };
    const opened = await both();
    if (emptied === undefined) await prepare(quoteName(schema));
    return opened;
  };
}

/** Has the plain writes of each batch made together, however small it is. `schema`: as in SQL. */
export async function makeTogether(pool: PostgresPool, schema: string): Promise<void> {
  const find = "SELECT pg_get_functiondef(to_regprocedure($1::text)) AS text";
  const { rows } = await pool.query(find, [`${schema}.write_v2(jsonb, float8, integer)`]);
  const [found] = rows as readonly { readonly text: string }[];
  const before = found?.text ?? "";
  const text = before.replace("jsonb_array_length(writes) >= 4", "jsonb_array_length(writes) >= 1");
  if (text === before) throw new Error("write_v2 does not say from how many writes on it makes them together.");
  await pool.query(text, []);
}

/** Makes one entry of a run unreadable: its line begins in the middle. */
async function damage(pool: PostgresPool, schema: string, { tenant, run_id }: RunKey, position: number): Promise<void> {
  const name = quoteName(schema);
  await pool.query(
    `UPDATE ${name}.entries SET lines = substr(lines, 2) WHERE position = $1::integer
     AND run = (SELECT id FROM ${name}.runs WHERE tenant = $2::text AND run_id = $3::text)`,
    [position, tenant, run_id],
  );
}

/** Empties the tables that were written, and lets all ids begin with 1, as in a schema that has just been made. */
async function emptySchema(pool: PostgresPool, schema: string): Promise<void> {
  const { rows } = await pool.query(
    `SELECT CASE relkind WHEN 'r' THEN format('DELETE FROM %s;', oid::regclass)
         ELSE format('PERFORM setval(%L, 1, false);', oid::regclass) END AS statement
     FROM pg_class WHERE relnamespace = to_regnamespace($1)
       AND (relkind = 'S' OR relkind = 'r' AND relname <> 'migrations' AND pg_relation_size(oid) > 0)`,
    [quoteName(schema)],
  );
  const statements = (rows as readonly { statement: string }[]).map(({ statement }) => statement);
  await pool.query(`DO $$ BEGIN ${statements.join(" ")} END $$`, []);
}
