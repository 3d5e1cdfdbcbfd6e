import { CadenzaError } from "../core/errors.ts";
import type { Connection } from "./sqlite-database.ts";

/*
 * The row of a run is small, since it is written with each append; what is large lies in rows that are never changed.
 * Each index costs a page in every commit, so each leaves out what it can: `session_id <> run_id` is a session that
 * somebody named, and an application without tenants has the tenant `''`, whose runs are found in the table itself.
 */
const firstSchema = `
  CREATE TABLE cadenza_runs (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    session_id TEXT NOT NULL,
    idempotency_key TEXT,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    deadline INTEGER,
    finished_at INTEGER,
    takeovers INTEGER NOT NULL,
    position INTEGER NOT NULL
  );
  CREATE UNIQUE INDEX cadenza_runs_by_key ON cadenza_runs (tenant, run_id);
  CREATE UNIQUE INDEX cadenza_runs_by_idempotency_key ON cadenza_runs (tenant, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
  CREATE INDEX cadenza_runs_by_tenant ON cadenza_runs (tenant) WHERE tenant <> '';
  CREATE INDEX cadenza_runs_by_session ON cadenza_runs (tenant, session_id) WHERE session_id <> run_id;
  CREATE INDEX cadenza_runs_live ON cadenza_runs (owner, status, deadline, tenant, finished_at)
    WHERE finished_at IS NULL;
  CREATE INDEX cadenza_runs_ended ON cadenza_runs (finished_at) WHERE finished_at IS NOT NULL;

  -- The entries of one write, each as JSON in a line of its own; position is that of the first.
  CREATE TABLE cadenza_entries (
    run INTEGER NOT NULL,
    position INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (run, position)
  );

  CREATE TABLE cadenza_sessions (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    length INTEGER NOT NULL,
    state TEXT NOT NULL,
    changed_at INTEGER NOT NULL
  );
  CREATE UNIQUE INDEX cadenza_sessions_by_key ON cadenza_sessions (tenant, session_id);
  CREATE INDEX cadenza_sessions_by_change ON cadenza_sessions (changed_at);

  CREATE TABLE cadenza_messages (
    session INTEGER NOT NULL,
    position INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (session, position)
  );

  CREATE TABLE cadenza_leases (
    owner TEXT PRIMARY KEY,
    until INTEGER NOT NULL
  ) WITHOUT ROWID;

  CREATE TABLE cadenza_counters (
    agent_name TEXT PRIMARY KEY,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    active_ms INTEGER NOT NULL,
    waiting_ms INTEGER NOT NULL,
    reported INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL
  ) WITHOUT ROWID;
`;

/** The parent of a sub-run, so that a list can leave sub-runs out. The index of live runs holds it: lists of them look at nothing else. */
const parentOfRuns = `
  ALTER TABLE cadenza_runs ADD COLUMN parent TEXT;
  UPDATE cadenza_runs SET parent = (
    SELECT CASE WHEN json_valid(first) THEN json_extract(first, '$.parent.run_id') END
    FROM (SELECT substr(lines, 1, instr(lines, char(10))) AS first FROM cadenza_entries e WHERE e.run = cadenza_runs.id AND e.position = 0)
  );
  DROP INDEX cadenza_runs_live;
  CREATE INDEX cadenza_runs_live ON cadenza_runs (owner, status, deadline, tenant, finished_at, parent)
    WHERE finished_at IS NULL;
`;

/** What turns one version of the schema into the next. Only ever added to: files out there have been through them. */
const migrations: readonly string[] = [firstSchema, parentOfRuns];

/** Brings the database to this version's schema. Several processes may do so at once. */
export function migrate(connection: Connection): void {
  if (schemaVersion(connection) === migrations.length) return;
  connection.patiently(() => connection.exec("BEGIN IMMEDIATE"));
  try {
    // Another process may have come first.
    for (const [index, sql] of migrations.slice(schemaVersion(connection)).entries()) {
      if (index === 0) connection.exec("CREATE TABLE IF NOT EXISTS cadenza_migrations (number INTEGER PRIMARY KEY)");
      connection.exec(sql);
      connection.run(
        "INSERT INTO cadenza_migrations (number) SELECT coalesce(max(number), 0) + 1 FROM cadenza_migrations",
      );
    }
    connection.exec("COMMIT");
  } catch (error) {
    connection.rollback();
    throw error;
  }
}

/** How many migrations the database has been through. */
function schemaVersion(connection: Connection): number {
  if (connection.get("SELECT 1 FROM sqlite_master WHERE name = 'cadenza_migrations'") === undefined) return 0;
  const version = Number(connection.get("SELECT max(number) AS version FROM cadenza_migrations")?.["version"]);
  if (version > migrations.length) {
    throw new CadenzaError(
      "store_failed",
      `The database has schema ${version}, and this version of cadenza knows ${migrations.length}: a newer one has written it. Update cadenza, or open another file.`,
    );
  }
  return version;
}
