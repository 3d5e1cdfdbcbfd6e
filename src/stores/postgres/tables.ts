import { counterNames } from "../../core/statistics.ts";

/*
 * The tables. The row of a run is small, since each write changes it. An update of a row stays on its page only if no
 * indexed column changes, conditions of indexes included, and if the page has room: so no index contains `position`,
 * `epoch` or `takeovers`, and pages are left partly empty. Times are `float8`, as JavaScript has them.
 * Everything from outside is `text` that is sorted by its bytes: it takes any JSON, and a change of the operating
 * system's sort order breaks no index. `version` is empty for none, and else begins with `=`. So does `slot`. `queue` and
 * `runs_in_slot` are gone since runs stand in lines (`line-sql.ts`). `wakes` is how often the run was
 * woken under its owner, and `for_look` whether it may be taken although its slot is full.
 *
 * `runs_by_time` has a condition that holds for every run. Only a statement that repeats the condition uses the index.
 * Otherwise a write that was planned when the table was empty would search it for its run.
 *
 * A row of `entries` has the entries of one write, each as JSON in a line of its own; `position` is that of the first. It
 * is never changed. A lease has in `for_ms` for how long it was asked for last. The counters of an agent are in several
 * rows, which are summed up when they are read: so processes seldom wait for one another.
 */
export function tables(schema: string): string {
  const runs = `${schema}.runs`;
  return `
  CREATE TABLE ${runs} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    agent_name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    idempotency_key text COLLATE "C",
    slot text COLLATE "C" NOT NULL,
    slot_max float8 NOT NULL,
    status text COLLATE "C" NOT NULL,
    epoch integer NOT NULL,
    owner text COLLATE "C",
    due_at float8,
    blocked text,
    holds_slot boolean NOT NULL,
    finished_at float8,
    takeovers integer NOT NULL,
    wakes integer NOT NULL DEFAULT 0,
    for_look boolean NOT NULL DEFAULT false,
    position integer NOT NULL,
    created_at float8 NOT NULL,
    queue text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN holds_slot OR for_look THEN '' ELSE slot END) STORED
  ) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
  CREATE UNIQUE INDEX runs_by_key ON ${runs} (tenant, run_id);
  CREATE UNIQUE INDEX runs_by_idempotency_key ON ${runs} (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
  CREATE INDEX runs_by_tenant ON ${runs} (tenant, id) WHERE tenant <> '';
  CREATE INDEX runs_by_session ON ${runs} (tenant, session_id) WHERE session_id <> run_id;
  CREATE INDEX runs_by_parent ON ${runs} (tenant, parent) WHERE parent IS NOT NULL;
  CREATE INDEX runs_by_time ON ${runs} (tenant, created_at, id) WHERE created_at > '-Infinity';
  CREATE INDEX runs_awaiting ON ${runs} (tenant, id) WHERE finished_at IS NULL AND status = 'awaiting';
  CREATE INDEX runs_executing ON ${runs} (tenant, id) WHERE finished_at IS NULL AND status <> 'awaiting';
  CREATE INDEX runs_due ON ${runs} (agent_name, version, queue, due_at NULLS FIRST, id)
    WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL;
  CREATE INDEX runs_by_owner ON ${runs} (owner, id) WHERE finished_at IS NULL AND owner IS NOT NULL;
  CREATE INDEX runs_in_slot ON ${runs} (slot) WHERE finished_at IS NULL AND holds_slot AND slot <> '';
  CREATE INDEX runs_cancelling ON ${runs} (owner, due_at) WHERE finished_at IS NULL AND status = 'cancelling';
  CREATE INDEX runs_blocked ON ${runs} (agent_name, version, id) WHERE finished_at IS NULL AND blocked IS NOT NULL;
  CREATE INDEX runs_ended ON ${runs} (finished_at, id) WHERE finished_at IS NOT NULL;

  CREATE TABLE ${schema}.entries (
    run bigint NOT NULL,
    position integer NOT NULL,
    lines text NOT NULL,
    PRIMARY KEY (run, position)
  ) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);

  CREATE TABLE ${schema}.labels (
    run bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, name)
  );
  CREATE INDEX labels_by_value ON ${schema}.labels (tenant, name, value, run);

  CREATE TABLE ${schema}.sessions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    length integer NOT NULL,
    state text NOT NULL,
    changed_at float8 NOT NULL
  ) WITH (fillfactor = 70);
  CREATE UNIQUE INDEX sessions_by_key ON ${schema}.sessions (tenant, session_id);
  CREATE INDEX sessions_by_change ON ${schema}.sessions (changed_at, id);

  CREATE TABLE ${schema}.messages (
    session bigint NOT NULL,
    position integer NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (session, position)
  );

  CREATE TABLE ${schema}.leases (
    owner text COLLATE "C" PRIMARY KEY,
    until float8 NOT NULL,
    for_ms float8 NOT NULL
  ) WITH (fillfactor = 50);

  CREATE TABLE ${schema}.counters (
    agent_name text COLLATE "C" NOT NULL,
    shard integer NOT NULL,
    ${counterNames.map((name) => `${name} float8 NOT NULL`).join(",\n    ")},
    PRIMARY KEY (agent_name, shard)
  ) WITH (fillfactor = 50);
`;
}

/**
 * Operators find runs by their ids, and by their status, over all tenants. A run that completes without waiting is never
 * in the index of the states: it has an owner until then.
 */
export function surveyIndexes(schema: string): string {
  const runs = `${schema}.runs`;
  return `
  CREATE UNIQUE INDEX IF NOT EXISTS runs_by_id ON ${runs} (run_id, tenant);
  DROP INDEX ${schema}.runs_by_key;
  ALTER INDEX ${schema}.runs_by_id RENAME TO runs_by_key;
  CREATE INDEX IF NOT EXISTS runs_by_state ON ${runs} (status, id)
    WHERE status <> 'completed' AND (owner IS NULL OR finished_at IS NOT NULL);
`;
}

/** Failed and cancelled runs are few in most applications. A run that completes is never in their index. */
export function failedRuns(schema: string): string {
  return `
  CREATE INDEX IF NOT EXISTS runs_failed ON ${schema}.runs (tenant, status, id)
    WHERE finished_at IS NOT NULL AND status <> 'completed';
`;
}
