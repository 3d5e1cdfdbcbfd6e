import { CadenzaError } from "../../core/errors.ts";
import type { Connection } from "./connection.ts";
import { pause } from "./connection.ts";
import { backlog, census, waitingRuns } from "./counts.ts";
import { deleteFunctions, pruneWithParents, removeRuns, retention } from "./delete-sql.ts";
import { isLocked, isMadeElsewhere, storeFailed } from "./errors.ts";
import { gateFunctions, gatesOfCustomers } from "./fair-sql.ts";
import { fedWrites, feed } from "./feed.ts";
import { gates } from "./gate-sql.ts";
import { changes, inbox } from "./inbox-sql.ts";
import { limitFunctions, limits, pruneSlots } from "./limits-sql.ts";
import { lineFunctions, lines, priorities } from "./line-sql.ts";
import type { PostgresSettings } from "./options.ts";
import { checkSchemaName } from "./options.ts";
import { comeBack, pauses, setAside } from "./pauses.ts";
import { snapshots } from "./snapshots.ts";
import { stepLimits } from "./step-limits.ts";
import { linesFunction } from "./survey.ts";
import { failedRuns, surveyIndexes, tables } from "./tables.ts";
import { freePermits, plainRuns, reservedRuns, takeDue, takeFunctions } from "./take-sql.ts";
import { tryWriteFunctions, tryWritesInOrder, tryWritesWithGates } from "./try-write-sql.ts";
import {
  creators,
  generationsOfSessions,
  locksOfKeys,
  refuseFirstReleases,
  wakeMisread,
  writeFunctions,
  writesWithInbox,
} from "./write-sql.ts";

/**
 * What the last step makes again, so that the steps before it need not make it as it was then. Who changes one of them moves
 * all of them to a step of their own at the end: schemas that have taken the step before keep what it made.
 */
const functions: readonly ((schema: string) => string)[] = [
  lineFunctions,
  limitFunctions,
  gateFunctions,
  gates,
  changes,
  writesWithInbox,
  fedWrites,
  tryWritesInOrder,
  takeDue,
  freePermits,
  comeBack,
  setAside,
  backlog,
  linesFunction,
  pruneSlots,
  removeRuns,
  refuseFirstReleases,
];

/**
 * Servers up to 17 count a kind of plan that is switched off as a cost of its own, for which they would compile the plans of such
 * functions at each call. That takes longer than what the functions do.
 */
function neverCompiled(schema: string): string {
  return `
DECLARE
  made regprocedure;
BEGIN
  FOR made IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = to_regnamespace(${quoteText(schema)}) AND p.proconfig IS NOT NULL LOOP
    EXECUTE format('ALTER FUNCTION %s SET jit = off', made);
  END LOOP;
END;`;
}

/**
 * The steps from one version of the schema to the next. Append only: existing schemas have taken the earlier steps. A
 * function is replaced only by one that older releases may call in its place: otherwise a later step adds one with a
 * higher version in its name.
 */
const migrations: readonly ((schema: string) => string)[] = [
  (schema) => [tables, writeFunctions, takeFunctions, deleteFunctions].map((part) => part(schema)).join(""),
  surveyIndexes,
  pruneWithParents,
  feed,
  generationsOfSessions,
  locksOfKeys,
  creators,
  lines,
  tryWriteFunctions,
  (schema) => [inbox, reservedRuns, plainRuns, tryWritesWithGates].map((part) => part(schema)).join("\n"),
  pauses,
  (schema) => [waitingRuns, census].map((part) => part(schema)).join("\n"),
  failedRuns,
  stepLimits,
  (schema) => [priorities, gatesOfCustomers, limits].map((part) => part(schema)).join("\n"),
  retention,
  snapshots,
  // The functions were made here five times.
  () => "",
  () => "",
  () => "",
  () => "",
  () => "",
  (schema) => [...functions, wakeMisread, neverCompiled].map((part) => part(schema)).join("\n"),
];

/** A name in SQL, whatever it contains. */
export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A text in SQL. */
function quoteText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/**
 * The SQL that makes or upgrades the schema of a `PostgresStore`: a statement for each step, which does nothing where nothing
 * is missing. For an administrator who runs it by hand, beside `migrate: false`.
 *
 * @param schema the schema's name. Default: `cadenza`.
 * @example
 * ```ts
 * import { postgresSchemaSql } from "cadenza/postgres";
 *
 * console.log(postgresSchemaSql("agents").includes('CREATE TABLE "agents".runs')); // → true
 * ```
 */
export function postgresSchemaSql(schema = "cadenza"): string {
  checkSchemaName(schema);
  return migrations.map((_step, index) => stepSql(schema, index, 0)).join("");
}

/**
 * One step as a statement. Several processes take steps one after the other. `waitMs`: how long the step waits for each
 * table that another transaction uses, while the table is closed for later transactions; 0: until it has it.
 */
function stepSql(schema: string, index: number, waitMs: number): string {
  const name = quoteName(schema);
  const number = index + 1;
  return `DO $migration$
BEGIN
PERFORM pg_advisory_xact_lock(hashtextextended(${quoteText(`cadenza schema ${schema}`)}, 0));
IF to_regnamespace(${quoteText(name)}) IS NULL THEN
  CREATE SCHEMA ${name};
END IF;
CREATE TABLE IF NOT EXISTS ${name}.migrations (number integer PRIMARY KEY);
IF NOT EXISTS (SELECT 1 FROM ${name}.migrations WHERE number = ${number}) THEN
PERFORM set_config('lock_timeout', '${waitMs}', true);
${migrations[index]?.(name) ?? ""}
  INSERT INTO ${name}.migrations (number) VALUES (${number});
END IF;
END $migration$;
`;
}

/** Brings the schema to this version, or only checks that it is. Several processes may do so at once. */
export async function prepareSchema(
  connection: Connection,
  { schema, migrate, readOnly }: Pick<PostgresSettings, "schema" | "migrate" | "readOnly">,
): Promise<void> {
  const before = await versionOf(connection, schema);
  if (before > migrations.length) {
    throw new CadenzaError(
      "store_failed",
      `The schema ${quoteName(schema)} has version ${before}, and this version of cadenza knows ${migrations.length}: a newer one has written it. Update cadenza, or use another schema.`,
    );
  }
  if (before === migrations.length) return;
  if (readOnly) {
    throw new CadenzaError(
      "store_failed",
      before === 0
        ? `There is no store of cadenza in the schema ${quoteName(schema)}, or the role may not see it. Name the schema that the store writes.`
        : `The schema ${quoteName(schema)} has version ${before}, and this version of cadenza reads ${migrations.length}: an older one has written it. Read it with that version, or open it once without \`readOnly\`, which brings it up to date.`,
    );
  }
  if (!migrate) {
    throw new CadenzaError(
      "store_failed",
      `The schema ${quoteName(schema)} has version ${before}, and this version of cadenza needs ${migrations.length}. Run the SQL that postgresSchemaSql(${JSON.stringify(schema)}) returns, or leave out \`migrate: false\`.`,
    );
  }
  for (let index = before; index < migrations.length; index++) await takeStep(connection, schema, index);
}

/** How long a step waits for a table, how often, and the pause in which other transactions go on. In milliseconds. */
const STEP_WAIT_MS = 300;
const STEP_TRIES = 100;
const STEP_PAUSE_MS = 200;

/** Takes a step, however long it lasts. Throws `store_failed` if other transactions never leave it a table. */
async function takeStep(connection: Connection, schema: string, index: number): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await connection.attempt(stepSql(schema, index, STEP_WAIT_MS), [], Number.POSITIVE_INFINITY);
      return;
    } catch (error) {
      if (!isLocked(error) && !isMadeElsewhere(error)) throw storeFailed(error);
      if (attempt === STEP_TRIES) throw await blockedStep(connection, schema, index + 1, error);
      await pause(STEP_PAUSE_MS);
    }
  }
}

async function blockedStep(
  connection: Connection,
  schema: string,
  step: number,
  cause: unknown,
): Promise<CadenzaError> {
  const rows = await connection.query(
    `SELECT DISTINCT a.pid, a.usename::text AS role, a.application_name AS application, a.state, a.xact_start::text AS since
     FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.granted AND c.relnamespace = to_regnamespace($1::text) AND a.pid <> pg_backend_pid() ORDER BY since LIMIT 5`,
    [quoteName(schema)],
  );
  const who = rows.map(
    ({ pid, role, application, state, since }) =>
      `${pid} (${role}, ${application || "no name"}, ${state}, since ${since})`,
  );
  return new CadenzaError(
    "store_failed",
    `The schema ${quoteName(schema)} could not be upgraded: step ${step} needs a table that other transactions use. Processes of the server that use its tables: ${who.join(", ") || "none any more"}. End these transactions, and open the store again.`,
    { cause },
  );
}

/**
 * Refuses a connection whose transactions see no commits that were made while they waited for a lock: they would count
 * the permits of a slot as they were before.
 */
export async function checkIsolation(connection: Connection): Promise<void> {
  const [row] = await connection.query("SELECT current_setting('transaction_isolation') AS level", []);
  const level = String(row?.["level"]);
  if (level !== "repeatable read") return;
  throw new CadenzaError(
    "store_failed",
    `The connections of the pool have default_transaction_isolation = '${level}'. Set it to 'read committed' for the role.`,
  );
}

/** The version of the schema; 0 if it does not exist. */
async function versionOf(connection: Connection, schema: string): Promise<number> {
  const table = `${quoteName(schema)}.migrations`;
  const [found] = await connection.query("SELECT to_regclass($1::text) IS NOT NULL AS found", [table]);
  if (found?.["found"] !== true) return 0;
  const [row] = await connection.query(`SELECT coalesce(max(number), 0) AS version FROM ${table}`, []);
  return Number(row?.["version"]);
}
