import { AgentRuntime } from "cadenza";
import type { PostgresStore } from "cadenza/postgres";
import { openPostgresStore } from "cadenza/postgres";
import type { Entry } from "cadenza/store";
import pg from "pg";
import { resultKey } from "../internals.ts";
import { Random } from "../random.ts";
import type { Listening } from "./wire.ts";

/*
 * A failover to a standby that was behind: the last commits of the server are gone, as if they had never been, under
 * running runs. Triggers note what each transaction has changed, so that the last ones can be undone.
 */

export interface FailoverOptions {
  readonly seed: string;
  readonly server: Listening;
  /** How many commits are lost each time. */
  readonly lost: readonly number[];
  readonly leaseMs: number;
  /** Whether runs also wait, for an answer and for a time. Then they have no owner, and go on in any process. */
  readonly areWaiting: boolean;
}

export interface FailoverReport {
  readonly runs: number;
  /** The runs that are there, and those of which also the first commit was lost. */
  readonly ended: number;
  readonly gone: number;
  /** How long the last run took to end after the last failover, in milliseconds. */
  readonly endedAfterMs: number;
  readonly wrong: readonly string[];
}

const tables = ["runs", "entries", "labels", "sessions", "messages", "leases", "counters"] as const;
const PROCESSES = 2;
/** How many runs are open at once. */
const AT_ONCE = 20;
const STEPS = 5;
const STUCK_MS = 20_000;
const MANY = 1_000_000;

let trials = 0;

export async function afterFailovers(options: FailoverOptions): Promise<FailoverReport> {
  const { seed, server, lost } = options;
  const random = new Random(seed);
  trials += 1;
  const schema = `failover_${trials}`;
  const names = { user: "postgres", database: "postgres", application_name: "harness" };
  const pool = new pg.Pool({ ...server, ...names, max: 3 });
  pool.on("error", () => {});
  const processes = await Promise.all(Array.from({ length: PROCESSES }, () => start(options, schema)));
  await pool.query(undoable(schema));
  const accepted = new Set<string>();
  const create = async (): Promise<void> => {
    const { runtime } = random.pick(processes);
    const session_id = random.chance(0.3) ? `00000000-0000-4000-8000-00000000000${random.below(5)}` : null;
    const made = await runtime
      .createRun({ agent_name: "worker", input: "", session_id, mode: "async" })
      .catch(() => {});
    if (made !== undefined) accepted.add(made.run_id);
  };
  const open = async (): Promise<number> =>
    Number((await pool.query(`SELECT count(*) AS count FROM ${schema}.runs WHERE finished_at IS NULL`)).rows[0]?.count);
  for (const count of lost) {
    for (let missing = AT_ONCE - (await open()); missing > 0; missing--) await create();
    await pause(random.below(150));
    await undo(pool, schema, count, random.chance(0.5));
  }
  const over = Date.now();
  while ((await open()) > 0 && Date.now() - over < STUCK_MS) await pause(50);
  const endedAfterMs = Date.now() - over;
  const [{ store }] = processes as [Process];
  const wrong: string[] = [];
  let ended = 0;
  const { rows } = await pool.query<{ run_id: string }>(`SELECT run_id FROM ${schema}.runs`);
  for (const { run_id } of rows) {
    const complaint = await complaintOf(store, run_id);
    if (complaint === undefined) ended += 1;
    else wrong.push(`${run_id} ${complaint}`);
  }
  for (const { runtime } of processes) await runtime.close({ drainMs: 1_000 });
  await Promise.all(processes.map((process) => process.pool.end()));
  await pool.end();
  const stored = new Set(rows.map(({ run_id }) => run_id));
  const gone = [...accepted].filter((run_id) => !stored.has(run_id)).length;
  return { runs: accepted.size, ended, gone, endedAfterMs, wrong };
}

interface Process {
  readonly runtime: AgentRuntime;
  readonly store: PostgresStore;
  readonly pool: pg.Pool;
}

async function start({ server, leaseMs, areWaiting }: FailoverOptions, schema: string): Promise<Process> {
  const pool = new pg.Pool({ ...server, user: "postgres", database: "postgres", max: 5 });
  const durability = { leaseMs, heartbeatMs: 0.3 * leaseMs, scanMs: leaseMs / 10 };
  const store = await openPostgresStore({ pool, schema, durability });
  const runtime = new AgentRuntime({ store });
  runtime.register("child", { durable: true }, (_input, { step }) => step("work", () => pause(5)));
  runtime.register("worker", { durable: true }, async function* (_input, { step, run, ask, sleep }) {
    for (let n = 1; n <= STEPS; n++) {
      await step("work", () => pause(10));
      yield `${n} `;
    }
    await run("child", "");
    if (areWaiting) {
      await ask("Well?", { timeoutMs: 30, default: null });
      await sleep(20);
    }
    await Promise.all([step("one", () => pause(10)), step("two", () => pause(20))]);
  });
  return { runtime, store, pool };
}

/** What is wrong with a run, after all has come to an end. */
async function complaintOf(store: PostgresStore, run_id: string): Promise<string | undefined> {
  const key = { tenant: "", run_id };
  const stored = await store.find(key);
  const log = (await store.read(key, 0, MANY)) ?? [];
  const types = log.map((entry) => `${entry.type} ${resultKey(entry) ?? ("key" in entry ? entry.key : "")}`.trim());
  if (log.length !== stored?.position) return `has ${log.length} entries of ${stored?.position}: ${types.join(" ")}`;
  if (types[0] !== "created" || types.indexOf("ended") !== types.length - 1)
    return `has not ended, or not well (${JSON.stringify(stored.head)}): ${types.join(" ")}`;
  const { outcome } = log.at(-1) as Extract<Entry, { type: "ended" }>;
  // A sub-run may have lost its end, which its parent knew, or its parent the entry that began it.
  const isOrphan = stored.created.parent !== undefined && outcome === "cancelled";
  if (outcome !== "completed" && !isOrphan) return `is ${outcome}`;
  const results = log.flatMap((entry) => (entry.type === "step" ? [entry.key] : []));
  return new Set(results).size === results.length ? undefined : `has two results of a step: ${results.join(" ")}`;
}

/** What notes the changes of each transaction, and undoes those of the last ones. */
function undoable(schema: string): string {
  return `
CREATE TABLE ${schema}.past (n bigint GENERATED ALWAYS AS IDENTITY, xid xid8, name text, was jsonb, became jsonb);
CREATE FUNCTION ${schema}.note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO ${schema}.past (xid, name, was, became)
  VALUES (pg_current_xact_id(), TG_TABLE_NAME, to_jsonb(OLD), to_jsonb(NEW));
  RETURN NULL;
END $$;
${tables
  .map(
    (name) => `CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON ${schema}.${name}
  FOR EACH ROW EXECUTE FUNCTION ${schema}.note_change();`,
  )
  .join("\n")}
CREATE FUNCTION ${schema}.undo(commits integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  undone xid8[];
  change record;
  columns text;
  key text;
BEGIN
  SELECT array_agg(x.xid) INTO undone FROM (
    SELECT p.xid FROM ${schema}.past p GROUP BY p.xid ORDER BY max(p.n) DESC LIMIT commits) x;
  FOR change IN SELECT * FROM ${schema}.past p WHERE p.xid = ANY (undone) ORDER BY p.n DESC LOOP
    SELECT string_agg(quote_ident(c.column_name), ', ') INTO columns FROM information_schema.columns c
    WHERE c.table_schema = '${schema}' AND c.table_name = change.name AND c.is_generated = 'NEVER';
    SELECT string_agg(format('t.%1$I = r.%1$I', a.attname), ' AND ') INTO key FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = format('${schema}.%I', change.name)::regclass AND i.indisprimary;
    IF change.became IS NOT NULL THEN
      EXECUTE format('DELETE FROM ${schema}.%1$I t USING jsonb_populate_record(NULL::${schema}.%1$I, $1) r WHERE %2$s',
        change.name, key) USING change.became;
    END IF;
    IF change.was IS NOT NULL THEN
      EXECUTE format('INSERT INTO ${schema}.%1$I (%2$s) OVERRIDING SYSTEM VALUE
        SELECT %2$s FROM jsonb_populate_record(NULL::${schema}.%1$I, $1)', change.name, columns) USING change.was;
    END IF;
  END LOOP;
  DELETE FROM ${schema}.past p WHERE p.xid = ANY (undone);
  RETURN cardinality(undone);
END $$;`;
}

/** Undoes the last commits. `isNoticed`: all connections end too, as in a real failover. */
async function undo(pool: pg.Pool, schema: string, commits: number, isNoticed: boolean): Promise<void> {
  const names = tables.map((name) => `${schema}.${name}`).join(", ");
  const end = `PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name <> 'harness';`;
  for (;;) {
    try {
      await pool.query(`DO $$ BEGIN
        SET LOCAL lock_timeout = '300ms';
        SET LOCAL session_replication_role = replica;
        LOCK TABLE ${names} IN ACCESS EXCLUSIVE MODE;
        PERFORM ${schema}.undo(${commits});
        ${isNoticed ? end : ""}
      END $$`);
      return;
    } catch (error) {
      // Writers and this transaction may wait for each other.
      if ((error as { readonly code?: string }).code !== "55P03") throw error;
    }
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
