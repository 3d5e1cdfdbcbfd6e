import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPostgresStore } from "cadenza/postgres";
import { SqliteStore } from "cadenza/sqlite";
import type { Store } from "cadenza/store";
import pg from "pg";
import type { Place } from "../crash/place.ts";
import { POSITION_BITS } from "../internals.ts";
import { startServer } from "../postgres-server.ts";
import { openDatabase } from "../sqlite-files.ts";

/** Copies get ids in steps of so many: there are fewer patterns. */
const STEP = 1_000;
/** Runs are copied so many at a time. */
const CHUNK = 200_000;
/** The copies of the patterns of a tenant belong to so many tenants. */
const TENANTS = 100;

/** A database whose runs a trial multiplies by statements. */
export interface GrownDatabase {
  /** Where other processes open it. */
  readonly place: Place;
  query(sql: string): Promise<readonly Record<string, unknown>[]>;
  /** What the names of its tables begin with. */
  readonly prefix: string;
  /** Opens a store on it, which its user closes. */
  open(): Promise<Store>;
  /**
   * Makes about so many runs from those that are there at the first call, which are its patterns. Each copy has an id of its
   * own, and was created and ended a millisecond after the one before.
   */
  multiply(runs: number): Promise<void>;
  close(): Promise<void>;
}

/** The statements for both databases, with what differs between them. */
interface Dialect {
  readonly prefix: string;
  readonly numbers: (from: number, to: number) => string;
  /** A number of the copy as so many hexadecimal digits. */
  readonly hex: (number: string, digits: number) => string;
  readonly intoRuns: string;
  readonly copiedEntry: string;
  query(sql: string): Promise<readonly Record<string, unknown>[]>;
}

/** Makes copies, from a number on. Answers the number of the last. */
async function multiply(dialect: Dialect, runs: number, made: number): Promise<number> {
  const { prefix, numbers, hex, intoRuns, copiedEntry, query } = dialect;
  if (made === 0) {
    await query(`CREATE TABLE ${prefix}patterns AS SELECT * FROM ${prefix}runs`);
    for (const table of ["entries", "labels"])
      await query(`CREATE TABLE ${prefix}${table}_of_patterns AS SELECT * FROM ${prefix}${table}`);
  }
  const [first] = await query(`SELECT count(*) AS patterns FROM ${prefix}patterns`);
  const patterns = Number(first?.["patterns"]);
  if (patterns === 0 || patterns >= STEP) throw new Error(`Between 1 and ${STEP - 1} patterns are needed.`);
  const [row = {}] = await query(`SELECT * FROM ${prefix}patterns LIMIT 1`);
  const columns = Object.keys(row);
  const id = `${hex("p.id", 8)} || '-0000-4000-8000-' || ${hex("n", 12)}`;
  const tenant = (of: string): string =>
    `CASE WHEN ${of} = 'acme' THEN 'acme' ELSE ${of} || '-' || (n % ${TENANTS}) END`;
  const values: Record<string, string> = {
    id: `p.id + n * ${STEP}`,
    run_id: id,
    session_id: `CASE WHEN p.session_id = p.run_id THEN ${id} ELSE p.session_id || n END`,
    tenant: tenant("p.tenant"),
    created_at: "p.created_at + n",
    finished_at: "p.finished_at + n",
  };
  const selected = columns.map((name) => values[name] ?? `p.${name}`).join(", ");
  const copies = made + Math.ceil(runs / patterns);
  const chunk = Math.ceil(CHUNK / patterns);
  for (let from = made + 1; from <= copies; from += chunk) {
    const n = numbers(from, Math.min(copies, from + chunk - 1));
    await query(`INSERT INTO ${prefix}runs (${columns.join(", ")}) ${intoRuns}
      SELECT ${selected} FROM ${prefix}patterns p CROSS JOIN ${n}`);
    await query(`INSERT INTO ${prefix}entries ${copiedEntry} CROSS JOIN ${n}`);
    await query(`INSERT INTO ${prefix}labels (run, name, value, tenant)
      SELECT p.run + n * ${STEP}, p.name, CASE WHEN p.value = 'one' THEN p.value || n ELSE p.value END,
        ${tenant("p.tenant")} FROM ${prefix}labels_of_patterns p CROSS JOIN ${n}`);
  }
  return copies;
}

/** A store on a PostgreSQL server of its own. */
export async function growOnPostgres(): Promise<GrownDatabase> {
  const server = await startServer(18, {
    shared_buffers: "1GB",
    max_wal_size: "8GB",
    synchronous_commit: "off",
    autovacuum: "off",
  });
  if ("missing" in server.address) throw new Error(server.address.missing);
  const { host, port } = server.address;
  const pool = new pg.Pool({ host, port, user: "postgres", database: "postgres", max: 8 });
  const query = async (sql: string) => (await pool.query(sql)).rows as readonly Record<string, unknown>[];
  let made = 0;
  return {
    ...{ place: { host, port, schema: "grown" }, query, prefix: "grown." },
    open: () => openPostgresStore({ pool, schema: "grown", hints: false }),
    async multiply(runs) {
      made = await multiply(
        {
          prefix: "grown.",
          numbers: (from, to) => `generate_series(${from}, ${to}) n`,
          hex: (number, digits) => `lpad(to_hex(${number}), ${digits}, '0')`,
          intoRuns: "OVERRIDING SYSTEM VALUE",
          copiedEntry: `SELECT p.run + n * ${STEP}, p.position, p.lines FROM grown.entries_of_patterns p`,
          query,
        },
        runs,
        made,
      );
      await query("SELECT setval(pg_get_serial_sequence('grown.runs', 'id'), (SELECT max(id) FROM grown.runs))");
      for (const table of ["runs", "entries", "labels"]) await query(`VACUUM ANALYZE grown.${table}`);
    },
    async close() {
      await pool.end();
      await server.stop();
    },
  };
}

/** A store in a SQLite file of its own. */
export async function growOnSqlite(): Promise<GrownDatabase> {
  const folder = mkdtempSync(join(tmpdir(), "cadenza-growth-"));
  const path = join(folder, "runs.db");
  const database = openDatabase(path);
  const query = async (sql: string) => {
    const statement = database.prepare(sql);
    if (sql.startsWith("SELECT")) return statement.all() as readonly Record<string, unknown>[];
    statement.run();
    return [];
  };
  let made = 0;
  return {
    ...{ place: { file: path }, query, prefix: "cadenza_" },
    open: async () => new SqliteStore(openDatabase(path)),
    async multiply(runs) {
      made = await multiply(
        {
          prefix: "cadenza_",
          numbers: (from, to) =>
            `(WITH RECURSIVE c (n) AS (SELECT ${from} UNION ALL SELECT n + 1 FROM c WHERE n < ${to}) SELECT n FROM c)`,
          hex: (number, digits) => `printf('%0${digits}x', ${number})`,
          intoRuns: "",
          copiedEntry: `(id, lines) SELECT p.id + ((n * ${STEP}) << ${POSITION_BITS}), p.lines FROM cadenza_entries_of_patterns p`,
          query,
        },
        runs,
        made,
      );
    },
    async close() {
      database.close();
      rmSync(folder, { recursive: true });
    },
  };
}
