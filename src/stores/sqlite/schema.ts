import { CadenzaError } from "../../core/errors.ts";
import { ASIDE_MS } from "../../core/pauses.ts";
import { counts } from "./counts.ts";
import type { Connection } from "./database.ts";
import { readable } from "./database.ts";
import { firstId, LAST_POSITION, POSITION_BITS } from "./entries.ts";
import { isThrough } from "./gates.ts";
import { isApart, place } from "./run-row.ts";
import { stepLimits } from "./step-limits.ts";

/*
 * The row of a run is small, since each append writes it. Large values are in rows that are never changed.
 * Each index costs a page in every commit that touches one of its columns, so each covers as few rows as possible.
 * `session_id <> run_id` selects sessions that a caller named. An application without tenants has the tenant `''`, and
 * its runs are found in the table itself. Some indexes include columns that are always null in them, so that the index
 * alone answers a query.
 * A live run is in one index by its status or in one by its owner, and lists by status read both. A run that waits for
 * no time is not in the index of those that become due. SQLite evaluates the condition of an index when one of its
 * columns is written, so conditions leave out what runtimes never write: an ended run is neither cancelling nor blocked.
 */
const firstSchema = `
  CREATE TABLE cadenza_runs (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    version TEXT,
    session_id TEXT NOT NULL,
    -- The run that started this one, if it is a sub-run.
    parent TEXT,
    idempotency_key TEXT,
    slot TEXT,
    slot_max INTEGER,
    status TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    due_at INTEGER,
    blocked TEXT,
    holds_slot INTEGER NOT NULL,
    finished_at INTEGER,
    takeovers INTEGER NOT NULL,
    -- How often the run was woken under its owner, and whether it may be taken although its slot is full.
    wakes INTEGER NOT NULL DEFAULT 0,
    for_look INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL,
    queue TEXT GENERATED ALWAYS AS (CASE WHEN holds_slot OR for_look THEN NULL ELSE slot END) VIRTUAL
  );
  CREATE UNIQUE INDEX cadenza_runs_by_key ON cadenza_runs (tenant, run_id);
  CREATE UNIQUE INDEX cadenza_runs_by_idempotency_key ON cadenza_runs (tenant, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
  CREATE INDEX cadenza_runs_by_tenant ON cadenza_runs (tenant) WHERE tenant <> '';
  CREATE INDEX cadenza_runs_by_session ON cadenza_runs (tenant, session_id) WHERE session_id <> run_id;
  CREATE INDEX cadenza_runs_due ON cadenza_runs (agent_name, version, queue, due_at, id, owner, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL;
  CREATE INDEX cadenza_runs_by_status ON cadenza_runs (tenant, status, id, parent, agent_name, version, owner, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL;
  CREATE INDEX cadenza_runs_by_owner ON cadenza_runs (owner, agent_name, version, due_at, id, tenant, status, parent, finished_at)
    WHERE finished_at IS NULL AND owner IS NOT NULL;
  CREATE INDEX cadenza_runs_in_slot ON cadenza_runs (slot)
    WHERE finished_at IS NULL AND holds_slot AND slot IS NOT NULL;
  CREATE INDEX cadenza_runs_cancelling ON cadenza_runs (owner, due_at)
    WHERE status = 'cancelling';
  CREATE INDEX cadenza_runs_blocked ON cadenza_runs (agent_name, version)
    WHERE blocked IS NOT NULL;
  CREATE INDEX cadenza_runs_ended ON cadenza_runs (finished_at) WHERE finished_at IS NOT NULL;

  -- The entries of one write, each as JSON in a line of its own; position is that of the first. The id holds both
  -- numbers: the batches of a run are side by side, and a write changes one page and no index.
  CREATE TABLE cadenza_entries (
    id INTEGER PRIMARY KEY,
    run INTEGER GENERATED ALWAYS AS (id >> ${POSITION_BITS}) VIRTUAL,
    position INTEGER GENERATED ALWAYS AS (id & ${LAST_POSITION}) VIRTUAL,
    lines TEXT NOT NULL
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
    until INTEGER NOT NULL,
    -- For how long it was asked for last.
    for_ms INTEGER NOT NULL
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

/* Runs are found by their labels, which never change, and by their parent. Most runs have neither. */
const labelsAndParents = `
  CREATE TABLE cadenza_labels (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    tenant TEXT NOT NULL,
    PRIMARY KEY (run, name)
  ) WITHOUT ROWID;
  CREATE INDEX cadenza_labels_by_value ON cadenza_labels (tenant, name, value, run);
  CREATE INDEX cadenza_runs_by_parent ON cadenza_runs (tenant, parent) WHERE parent IS NOT NULL;
`;

/*
 * Runs are found by the time of their creation, in the order of these times. A file of an earlier version has them in the
 * first entries. A run whose first entry cannot be read has none.
 */
const creationTimes = `
  ALTER TABLE cadenza_runs ADD COLUMN created_at INTEGER;
  UPDATE cadenza_runs SET created_at = (
    SELECT CASE WHEN json_valid(line) THEN json_extract(line, '$.at') END FROM (
      SELECT substr(lines, 1, instr(lines, char(10)) - 1) AS line FROM cadenza_entries e
      WHERE e.id = ${firstId("cadenza_runs.id")}));
  CREATE INDEX cadenza_runs_by_time ON cadenza_runs (tenant, created_at);
`;

/*
 * Operators find runs by their ids, and by their status, over all tenants. A run that completes without waiting is never
 * in the index of the states: it has an owner until then.
 */
const surveys = `
  DROP INDEX cadenza_runs_by_key;
  CREATE UNIQUE INDEX cadenza_runs_by_key ON cadenza_runs (run_id, tenant);
  CREATE INDEX cadenza_runs_by_state ON cadenza_runs (status)
    WHERE status <> 'completed' AND (owner IS NULL OR finished_at IS NOT NULL);
`;

/*
 * The feed: one row says whether it is kept, for how long (null: it has ended) and up to which id events were deleted. Both
 * tables stay empty in a file that never had one.
 */
const feed = `
  CREATE TABLE cadenza_feed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    keep_ms INTEGER,
    trimmed INTEGER NOT NULL
  );
  CREATE TABLE cadenza_feed_events (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    type TEXT NOT NULL,
    data TEXT
  );
`;

/* What made a session, or replaced it, tells its later messages from those of a deleted one. */
const generations = "ALTER TABLE cadenza_sessions ADD COLUMN generation TEXT;";

/* Runs and sessions are found by the user who has created them. Those of earlier versions have none, nor do many others. */
const creators = `
  ALTER TABLE cadenza_runs ADD COLUMN creator TEXT;
  CREATE INDEX cadenza_runs_by_creator ON cadenza_runs (tenant, creator) WHERE creator IS NOT NULL;
  ALTER TABLE cadenza_sessions ADD COLUMN creator TEXT;
`;

/*
 * A run that needs a permit of its slot stands in a line until it gets one, and is due only then. The runs of a file of an
 * earlier version that wait for a permit are put into lines, in the order of their times, and get the permits that are
 * free. Processes of earlier versions know no lines: each of their writes of a run names a column that has another name now.
 */
const lines = `
  DROP INDEX cadenza_runs_due;
  ALTER TABLE cadenza_runs DROP COLUMN queue;
  ALTER TABLE cadenza_runs RENAME COLUMN for_look TO look;
  ALTER TABLE cadenza_runs RENAME COLUMN creator TO created_by;
  ALTER TABLE cadenza_runs ADD COLUMN line TEXT;
  ALTER TABLE cadenza_runs ADD COLUMN rank INTEGER;
  CREATE TABLE cadenza_slots (
    key TEXT PRIMARY KEY,
    -- How many runs hold it, at least 1.
    held INTEGER NOT NULL,
    -- The highest rank since the slot has been in use. A run that joins gets a higher one.
    last INTEGER
  ) WITHOUT ROWID;
  INSERT INTO cadenza_slots (key, held)
    SELECT slot, count(*) FROM cadenza_runs WHERE finished_at IS NULL AND holds_slot AND slot IS NOT NULL GROUP BY slot;
  UPDATE cadenza_runs SET line = slot, rank = due_at
    WHERE finished_at IS NULL AND owner IS NULL AND slot IS NOT NULL AND NOT holds_slot AND NOT look AND blocked IS NULL
      AND due_at <= (julianday('now') - 2440587.5) * 86400000;
  UPDATE cadenza_runs SET holds_slot = 1, line = NULL, rank = NULL WHERE id IN (
    SELECT id FROM (
      SELECT id, max(beyond) OVER (PARTITION BY line ORDER BY rank, id) AS beyond FROM (
        SELECT r.id, r.line, r.rank,
          ifnull(s.held, 0) + row_number() OVER (PARTITION BY r.line ORDER BY r.rank, r.id) - r.slot_max AS beyond
        FROM cadenza_runs r LEFT JOIN cadenza_slots s ON s.key = r.line WHERE r.line IS NOT NULL))
    WHERE beyond <= 0);
  DELETE FROM cadenza_slots;
  INSERT INTO cadenza_slots (key, held, last)
    SELECT slot, count(*) FILTER (WHERE holds_slot), max(rank)
    FROM cadenza_runs WHERE finished_at IS NULL AND slot IS NOT NULL AND (holds_slot OR line IS NOT NULL) GROUP BY slot;
  DROP INDEX cadenza_runs_in_slot;
  CREATE INDEX cadenza_runs_due ON cadenza_runs (agent_name, version, due_at, id, owner, line, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL AND line IS NULL AND due_at IS NOT NULL;
  CREATE INDEX cadenza_runs_in_line ON cadenza_runs (line, rank, id, agent_name, version, due_at, finished_at)
    WHERE finished_at IS NULL AND line IS NOT NULL;
`;

/* What has arrived for runs with owners. Ids are never used again: a write names those that it takes. */
const inbox = `
  CREATE TABLE cadenza_inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    -- How many entries the lines hold.
    count INTEGER NOT NULL,
    lines TEXT NOT NULL,
    is_cancel INTEGER NOT NULL,
    feed TEXT
  );
  CREATE INDEX cadenza_inbox_by_run ON cadenza_inbox (run, id);
  -- How many rows of it are the run's: its owner reads it with each write.
  ALTER TABLE cadenza_runs ADD COLUMN arrived INTEGER NOT NULL DEFAULT 0;
`;

/* Since when runs without an owner hold a permit. Runs with an owner stand in lines, too, and are not due there. */
const reservations = `
  ALTER TABLE cadenza_runs ADD COLUMN since INTEGER;
  UPDATE cadenza_runs SET since = due_at WHERE finished_at IS NULL AND owner IS NULL AND slot IS NOT NULL AND holds_slot;
  CREATE INDEX cadenza_runs_reserved ON cadenza_runs (agent_name, since) WHERE since IS NOT NULL;
  DROP INDEX cadenza_runs_in_line;
  CREATE INDEX cadenza_runs_in_line ON cadenza_runs (line, rank, id, agent_name, version, due_at, owner, finished_at)
    WHERE finished_at IS NULL AND line IS NOT NULL;
`;

/* A run that is not durable has 1 in `plain`, others have null: without its owner it can only be ended. */
const plainRuns = `
  ALTER TABLE cadenza_runs ADD COLUMN plain INTEGER;
  UPDATE cadenza_runs SET plain = 1 WHERE finished_at IS NULL AND (
    SELECT instr(substr(lines, 1, instr(lines, char(10))), '"durable":true') FROM cadenza_entries e
    WHERE e.id = ${firstId("cadenza_runs.id")}) = 0;
  DROP INDEX cadenza_runs_by_owner;
  CREATE INDEX cadenza_runs_by_owner
    ON cadenza_runs (owner, agent_name, version, due_at, id, tenant, status, parent, plain, finished_at)
    WHERE finished_at IS NULL AND owner IS NOT NULL;
`;

/* Pauses, and an index of the runs that pauses of their tenants have set aside: few runs are due that late. */
const pauses = `
  CREATE TABLE cadenza_pauses (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    runs TEXT NOT NULL,
    at INTEGER NOT NULL,
    by TEXT NOT NULL
  );
  CREATE INDEX cadenza_runs_aside ON cadenza_runs (tenant, agent_name, version, due_at, id) WHERE due_at >= ${ASIDE_MS};
`;

/* Failed and cancelled runs are few in most applications. A run that completes is never in their index. */
const failedRuns = `
  CREATE INDEX cadenza_runs_failed ON cadenza_runs (tenant, status) WHERE status IN ('failed', 'cancelled');
`;

/*
 * Runs of priorities other than 0 and runs with gates are in an index of their own, in the order of their priorities, and
 * those of lines, too. Most runs have no gate.
 * Processes of earlier versions know no priorities: each of their writes of a run names a column that has another name now.
 */
const limits = `
  ALTER TABLE cadenza_runs RENAME COLUMN rank TO turn;
  ALTER TABLE cadenza_runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE cadenza_runs ADD COLUMN gate TEXT;
  -- All slots of which a run needs permits, if these are several, or one has a rate.
  ALTER TABLE cadenza_runs ADD COLUMN limits TEXT;
  -- The highest count of a rate that has given permits of the key, until when these count, and when it gives the next one to the first in line.
  ALTER TABLE cadenza_slots ADD COLUMN kept INTEGER;
  ALTER TABLE cadenza_slots ADD COLUMN until INTEGER;
  ALTER TABLE cadenza_slots ADD COLUMN look_at INTEGER;
  CREATE INDEX cadenza_slots_idle ON cadenza_slots (until) WHERE held = 0;
  CREATE INDEX cadenza_slots_marked ON cadenza_slots (look_at) WHERE look_at IS NOT NULL;
  -- When rates gave the last permits of a key.
  CREATE TABLE cadenza_grants (
    key TEXT NOT NULL,
    n INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (key, n)
  ) WITHOUT ROWID;
  -- When a run with a gate came among the due ones.
  ALTER TABLE cadenza_runs ADD COLUMN came_at INTEGER;
  DROP INDEX cadenza_runs_due;
  CREATE INDEX cadenza_runs_due ON cadenza_runs (agent_name, version, due_at, id, owner, line, finished_at)
    WHERE finished_at IS NULL AND owner IS NULL AND line IS NULL AND due_at IS NOT NULL AND priority = 0 AND gate IS NULL;
  CREATE INDEX cadenza_runs_apart
    ON cadenza_runs (owner, agent_name, version, priority, ${place}, id, gate, due_at, line, finished_at)
    WHERE ${isApart};
  DROP INDEX cadenza_runs_cancelling;
  CREATE INDEX cadenza_runs_cancelling ON cadenza_runs (owner, agent_name, version, priority, due_at)
    WHERE status = 'cancelling';
  CREATE INDEX cadenza_runs_through ON cadenza_runs (gate, due_at, line, owner, blocked, finished_at)
    WHERE ${isThrough};
  DROP INDEX cadenza_runs_in_line;
  CREATE INDEX cadenza_runs_in_line
    ON cadenza_runs (line, priority DESC, turn, id, agent_name, version, due_at, owner, finished_at)
    WHERE finished_at IS NULL AND line IS NOT NULL;
`;

/*
 * How far the rules of a retention have come, by keys of the rules. And the ids of deleted runs whose entries are left: no new
 * run gets such an id.
 */
const retention = `
  CREATE TABLE cadenza_retention (
    key TEXT PRIMARY KEY,
    progress TEXT NOT NULL,
    at INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE TABLE cadenza_removed (run INTEGER PRIMARY KEY);
`;

/** Folded states of long logs. They go with their runs, in each way in which these are deleted. */
const snapshots = `
  CREATE TABLE cadenza_snapshots (
    run INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    format INTEGER NOT NULL,
    state TEXT NOT NULL
  );
  CREATE TRIGGER cadenza_snapshots_go AFTER DELETE ON cadenza_runs BEGIN
    DELETE FROM cadenza_snapshots WHERE run = OLD.id;
  END;
`;

/** The version of `firstSchema`. Earlier versions were never released. */
const FIRST_VERSION = 5;
/** The steps from one version of the schema to the next. Append only: existing files have taken the earlier steps. */
const migrations: readonly string[] = [
  firstSchema,
  labelsAndParents,
  creationTimes,
  surveys,
  feed,
  generations,
  creators,
  lines,
  `${inbox}${reservations}${plainRuns}`,
  pauses,
  counts,
  failedRuns,
  stepLimits,
  limits,
  retention,
  snapshots,
];
const LAST_VERSION = FIRST_VERSION + migrations.length - 1;

/** Brings the database to this version's schema. Several processes may do so at once. */
export function migrate(connection: Connection): void {
  if (schemaVersion(connection) === LAST_VERSION) return;
  connection.patiently(() => connection.exec("BEGIN IMMEDIATE"));
  try {
    // Another process may have migrated the file first.
    const before = schemaVersion(connection);
    for (const [index, sql] of migrations.entries()) {
      const version = FIRST_VERSION + index;
      if (version <= before) continue;
      connection.exec("CREATE TABLE IF NOT EXISTS cadenza_migrations (number INTEGER PRIMARY KEY)");
      connection.exec(sql);
      connection.run("INSERT INTO cadenza_migrations (number) VALUES (?)", version);
    }
    connection.exec("COMMIT");
  } catch (error) {
    connection.rollback();
    throw error;
  }
}

/** Throws `store_failed` unless the database has this version's schema. */
export function checkSchema(connection: Connection): void {
  const version = readable(() => schemaVersion(connection));
  if (version === LAST_VERSION) return;
  throw new CadenzaError(
    "store_failed",
    version === 0
      ? "The database holds no store of cadenza. Open the file that the store writes."
      : `The database has schema ${version}, and this version of cadenza reads ${LAST_VERSION}: an older one has written it. Read it with that version, or open it once without \`readOnly\`, which brings it up to date.`,
  );
}

/** The version of the database's schema; 0 if it has none. */
function schemaVersion(connection: Connection): number {
  if (connection.get("SELECT 1 FROM sqlite_master WHERE name = 'cadenza_migrations'") === undefined) return 0;
  const version = Number(connection.get("SELECT max(number) AS version FROM cadenza_migrations")?.["version"]);
  if (version < FIRST_VERSION) {
    throw new CadenzaError(
      "store_failed",
      `The database has schema ${version}, and this version of cadenza knows ${FIRST_VERSION} and later: a version before the first release has written it. Open another file.`,
    );
  }
  if (version > LAST_VERSION) {
    throw new CadenzaError(
      "store_failed",
      `The database has schema ${version}, and this version of cadenza knows ${LAST_VERSION}: a newer one has written it. Update cadenza, or open another file.`,
    );
  }
  return version;
}
