import { counterNames } from "../../core/statistics.ts";
import { headColumns, insertedColumns } from "../stored-rows.ts";
import { goesThrough, leaving } from "./gate-sql.ts";
import { keysOf } from "./line-sql.ts";
import { makePlainWrites, plainWrites } from "./plain-sql.ts";

/*
 * The functions that write. Each write of a batch is checked and made in turn: a refused one has changed nothing. First
 * all rows are locked in one order, then they are looked at: what another process has committed meanwhile is seen, and
 * no two batches wait for each other. The order: runs by key, missing sessions and idempotency keys, sessions by key, the
 * keys of slots, runs that get a permit (only if no other transaction has locked them), and counters at the very end. A
 * later release adds functions with another version, or replaces them by ones that older processes may call too, so that
 * processes of both releases can use the database, or by ones that refuse them (`refuseFirstReleases`).
 */
export function writeFunctions(schema: string): string {
  return [
    writeFunction(schema, "CREATE"),
    createFunction(schema, "CREATE", insertedColumns),
    // Why a run with this id or idempotency key cannot be created; null if neither is used, or not any more.
    `
CREATE FUNCTION ${schema}.used_v1(added ${schema}.runs) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  other text;
BEGIN
  PERFORM 1 FROM ${schema}.runs r WHERE r.tenant = added.tenant AND r.run_id = added.run_id;
  IF FOUND THEN
    RETURN '{"conflict": "exists"}';
  END IF;
  SELECT r.run_id INTO other FROM ${schema}.runs r
  WHERE r.tenant = added.tenant AND r.idempotency_key = added.idempotency_key;
  RETURN CASE WHEN FOUND THEN jsonb_build_object('conflict', 'key_used', 'run_id', other) END;
END $function$;`,
    // Changes a run: an append, a post or a claim. A run that was woken without an owner stays due until it has one, ends
    // or is blocked. A change of owner resets what no write contains.
    `
CREATE FUNCTION ${schema}.change_v1(w jsonb, clock float8) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  kind text := w ->> 'kind';
  run ${schema}.runs;
  next ${schema}.runs;
BEGIN
  SELECT * INTO run FROM ${schema}.runs r
  WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN '{"conflict": "missing"}';
  END IF;
  IF kind <> 'append' AND run.finished_at IS NOT NULL THEN
    RETURN '{"conflict": "ended"}';
  END IF;
  IF kind <> 'post' AND (run.epoch <> (w ->> 'epoch')::integer OR run.position <> (w ->> 'position')::integer
    OR w ? 'owner' AND run.owner IS DISTINCT FROM w ->> 'owner')
  THEN
    RETURN jsonb_build_object('conflict', 'changed', 'epoch', run.epoch, 'position', run.position);
  END IF;

  next := jsonb_populate_record(run, coalesce(w -> 'head', '{}'));
  next.position := run.position + coalesce((w ->> 'count')::integer, 0);
  IF kind = 'post' THEN
    next.status := coalesce(w ->> 'status', run.status);
    IF w ? 'unblocks' THEN
      next.blocked := NULL;
    END IF;
    IF w ? 'due' AND run.owner IS NULL AND next.blocked IS NULL THEN
      next.due_at := least(run.due_at, clock);
      next.for_look := run.for_look OR w ->> 'due' = 'look';
    END IF;
  ELSIF kind = 'claim' THEN
    IF run.owner IS NOT NULL THEN
      PERFORM ${schema}.shorten_leases_v1(clock, run.owner);
    END IF;
    PERFORM 1 FROM ${schema}.leases l WHERE l.owner = run.owner AND l.until > clock;
    IF FOUND THEN
      RETURN '{"conflict": "owned"}';
    END IF;
  ELSIF next.owner IS NULL AND next.finished_at IS NULL AND run.owner IS NOT NULL THEN
    IF run.wakes <> (w ->> 'wakes')::integer THEN
      RETURN jsonb_build_object('conflict', 'woken', 'wakes', run.wakes);
    END IF;
  ELSIF next.owner IS NULL AND next.finished_at IS NULL AND run.wakes > 0 AND run.due_at IS NOT NULL
    AND next.blocked IS NULL
  THEN
    next.due_at := least(run.due_at, next.due_at);
  END IF;
  IF run.slot <> '' AND next.holds_slot AND NOT run.holds_slot AND next.finished_at IS NULL
    AND ${schema}.is_full_v1(run.slot, run.slot_max)
  THEN
    RETURN '{"conflict": "full"}';
  END IF;

  IF kind = 'claim' OR next.owner IS DISTINCT FROM run.owner THEN
    next.wakes := 0;
  END IF;
  next.for_look := next.for_look AND next.owner IS NULL;
  UPDATE ${schema}.runs r SET ${changing.map((name) => `${name} = next.${name}`).join(", ")} WHERE r.id = run.id;
  IF w ->> 'lines' <> '' THEN
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (run.id, run.position, w ->> 'lines');
  END IF;
  RETURN NULL;
END $function$;`,
    // Whether no permit is free. Until the end of the transaction no other one gets a permit of the slot.
    `
CREATE FUNCTION ${schema}.is_full_v1(key text, most float8) RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
  PERFORM pg_advisory_xact_lock(${schema}.slot_lock_v1(key));
  RETURN (SELECT count(*) FROM ${schema}.runs r
    WHERE r.finished_at IS NULL AND r.holds_slot AND r.slot <> '' AND r.slot = key) >= most;
END $function$;`,
    // The lock of a slot. A row for each slot would have to be deleted some day.
    `
CREATE FUNCTION ${schema}.slot_lock_v1(key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $function$
  SELECT hashtextextended('${schema.replaceAll("'", "''")} slot ' || key, 0);
$function$;`,
    // The lock of a session that has no row yet. Batches that make the same sessions in other orders would wait for each other.
    `
CREATE FUNCTION ${schema}.session_lock_v1(its_tenant text, its_id text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $function$
  SELECT hashtextextended('${schema.replaceAll("'", "''")} session ' || its_tenant || ' ' || its_id, 0);
$function$;`,
    // Wakes a run, unless it has ended or is blocked. With an owner it stays as it is, and the wake-up is counted.
    `
CREATE FUNCTION ${schema}.wake_v1(its_tenant text, its_id text, clock float8) RETURNS void
LANGUAGE plpgsql AS $function$
BEGIN
  UPDATE ${schema}.runs r SET
    wakes = r.wakes + 1,
    due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, clock) ELSE r.due_at END
  WHERE r.tenant = its_tenant AND r.run_id = its_id AND r.finished_at IS NULL
    AND (r.owner IS NOT NULL OR r.blocked IS NULL);
END $function$;`,
    // Renews a lease, or with null ends it. An expired owner without runs needs no row.
    `
CREATE FUNCTION ${schema}.lease_v1(its_owner text, its_ms float8, clock float8) RETURNS jsonb
LANGUAGE plpgsql AS $function$
BEGIN
  IF its_ms IS NULL THEN
    DELETE FROM ${schema}.leases l WHERE l.owner = its_owner;
    RETURN NULL;
  END IF;
  INSERT INTO ${schema}.leases (owner, until, for_ms) VALUES (its_owner, clock + its_ms, its_ms)
  ON CONFLICT (owner) DO UPDATE SET until = excluded.until, for_ms = excluded.for_ms;
  DELETE FROM ${schema}.leases l WHERE l.owner IN (
    SELECT e.owner FROM ${schema}.leases e WHERE e.until <= clock AND NOT EXISTS (
      SELECT 1 FROM ${schema}.runs r WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = e.owner)
    FOR UPDATE OF e SKIP LOCKED);
  RETURN NULL;
END $function$;`,
    // Cuts short the leases that now last longer than requested: the clock was set back. Of one owner, or with null of all.
    `
CREATE FUNCTION ${schema}.shorten_leases_v1(clock float8, its_owner text) RETURNS void LANGUAGE plpgsql AS $function$
BEGIN
  UPDATE ${schema}.leases l SET until = clock + l.for_ms WHERE l.owner IN (
    SELECT e.owner FROM ${schema}.leases e WHERE e.until > clock + e.for_ms AND e.owner = coalesce(its_owner, e.owner)
    FOR UPDATE SKIP LOCKED);
END $function$;`,
    // Changes a session, and makes it if that is requested. With isNew one that exists stays, and the answer is false; with
    // isWhole it is replaced. If messages are missing, the session has been made since the locks were taken: the
    // statement is tried again, and asks for them.
    `
CREATE FUNCTION ${schema}.session_v1(its_tenant text, change jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  session ${schema}.sessions;
  is_made boolean := false;
BEGIN
  LOOP
    SELECT * INTO session FROM ${schema}.sessions s
    WHERE s.tenant = its_tenant AND s.session_id = change ->> 'session_id' FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    IF NOT (change ->> 'create')::boolean THEN
      RETURN NULL;
    END IF;
    INSERT INTO ${schema}.sessions (tenant, session_id, length, state, changed_at)
    VALUES (its_tenant, change ->> 'session_id', 0, 'null', (change ->> 'at')::float8) ON CONFLICT DO NOTHING;
    is_made := FOUND;
  END LOOP;
  IF change ? 'isNew' AND NOT is_made THEN
    RETURN 'false';
  END IF;
  IF change ? 'isLazy' THEN
    RAISE EXCEPTION 'The session exists now.' USING ERRCODE = '40001';
  END IF;
  IF change ? 'isWhole' THEN
    DELETE FROM ${schema}.messages m WHERE m.session = session.id;
    session.length := 0;
  END IF;
  INSERT INTO ${schema}.messages (session, position, message)
  SELECT session.id, session.length + m.n - 1, m.message
  FROM jsonb_array_elements_text(change -> 'messages') WITH ORDINALITY m (message, n);
  UPDATE ${schema}.sessions s SET
    length = session.length + jsonb_array_length(change -> 'messages'),
    state = coalesce(change ->> 'state', s.state),
    changed_at = (change ->> 'at')::float8
  WHERE s.id = session.id;
  RETURN NULL;
END $function$;`,
  ].join("\n");
}

/** Adds a run. A run that was in the way may have been deleted meanwhile. `before`: what is looked at first. */
function createFunction(
  schema: string,
  create: "CREATE" | "CREATE OR REPLACE",
  columns: readonly string[],
  before = "",
): string {
  return `
${create} FUNCTION ${schema}.create_v1(w jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  added ${schema}.runs := jsonb_populate_record(NULL::${schema}.runs, w || (w -> 'head'));
  refusal jsonb;
BEGIN${before}
  IF added.slot <> '' AND added.holds_slot THEN
    refusal := ${schema}.used_v1(added);
    IF refusal IS NULL AND ${schema}.is_full_v1(added.slot, added.slot_max) THEN
      refusal := '{"conflict": "full"}';
    END IF;
  END IF;
  WHILE refusal IS NULL LOOP
    INSERT INTO ${schema}.runs (${columns.join(", ")}) VALUES (${columns.map((name) => `added.${name}`).join(", ")})
    ON CONFLICT DO NOTHING RETURNING id INTO added.id;
    EXIT WHEN added.id IS NOT NULL;
    refusal := ${schema}.used_v1(added);
  END LOOP;
  IF refusal IS NULL THEN
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (added.id, 0, w ->> 'lines');
    IF w ? 'labels' THEN
      INSERT INTO ${schema}.labels (run, name, value, tenant)
      SELECT added.id, l ->> 0, l ->> 1, added.tenant FROM jsonb_array_elements(w -> 'labels') l;
    END IF;
  END IF;
  RETURN refusal;
END $function$;`;
}

/** How a batch deals with slots. */
interface Slots {
  /** Settings of the function, and its further variables. */
  readonly settings: string;
  readonly variables: string;
  /** What is asked of the runs that are locked, and of each of them. */
  readonly lockRuns: string;
  readonly ofRun: string;
  /** The posts that need no row of a run. Empty: each write but a creation needs it. */
  readonly posts: string;
  /** What is locked after the rows of runs. */
  readonly gates: string;
  /** What is locked before the sessions, and after them. */
  readonly firstLocks: string;
  readonly lastLocks: string;
  /** Whether an answer says that the write was not made. */
  readonly refused: string;
  readonly create: string;
  /** The time of the writes. */
  readonly clock: string;
  /** What makes some writes together, and puts their numbers into `made`. */
  readonly together: string;
  /** The agent of a write `w`. `stored`: as its run has it. */
  readonly agent: (stored: string) => string;
}

const withoutGates = { posts: "", gates: "", together: "", agent: (stored: string) => stored };

/** The first version counts the runs that hold a permit. */
function countedSlots(schema: string): Slots {
  return {
    settings: "",
    variables: "",
    lockRuns: "PERFORM 1",
    ofRun: "1",
    ...withoutGates,
    firstLocks: `SELECT ${schema}.slot_lock_v1(nullif(coalesce(w ->> 'slot', (SELECT r.slot FROM ${schema}.runs r
      WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' AND NOT r.holds_slot)), '')) AS lock
    FROM jsonb_array_elements(writes) w WHERE (w -> 'head' ->> 'holds_slot')::boolean
    UNION `,
    lastLocks: "",
    refused: "answer IS NOT NULL",
    create: `${schema}.create_v1(write)`,
    clock: "clock",
  };
}

/**
 * Locks the keys of slots last, and only those whose permits or lines the batch may change. So a batch that has a key waits
 * for nothing but counters. What is due now is so from the time on at which all locks were there.
 */
function lockedKeys(schema: string): Slots {
  return {
    settings: " SET enable_seqscan = off",
    variables: `
  late float8;
  has_slots boolean;`,
    lockRuns: "SELECT bool_or(r.slot <> '') INTO has_slots",
    ofRun: "r.slot",
    ...withoutGates,
    firstLocks: "",
    lastLocks: `
  PERFORM 1 FROM jsonb_array_elements(writes) w WHERE has_slots OR w ->> 'slot' <> '' LIMIT 1;
  IF FOUND THEN
    PERFORM pg_advisory_xact_lock(k.lock) FROM (
      SELECT DISTINCT s.lock FROM ${schema}.slot_locks_v1(writes) s ORDER BY s.lock
    ) k;
  END IF;
  late := coalesce(given_time, floor(extract(epoch FROM clock_timestamp()) * 1000));
`,
    refused: "answer IS NOT NULL",
    create: `${schema}.create_v2(write, late)`,
    clock: "late",
  };
}

/**
 * The locks of the slots whose permits or lines writes may change, each with the number of its write. The first one has 1. A run
 * whose time has come since its last write joins the line with the next one, whatever that is.
 */
function slotLocks(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.slot_locks_v1(writes jsonb) RETURNS TABLE (n bigint, lock bigint) LANGUAGE sql STABLE AS $function$
  SELECT x.n, ${schema}.slot_lock_v1(x.w ->> 'slot') FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  WHERE x.w ->> 'slot' <> ''
  UNION ALL SELECT x.n, ${schema}.slot_lock_v1(l ->> 'key') FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  CROSS JOIN LATERAL jsonb_array_elements(x.w -> 'limits') l
  UNION ALL SELECT x.n, ${schema}.slot_lock_v1(k.key) FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  CROSS JOIN LATERAL (SELECT * FROM ${schema}.runs r WHERE r.tenant = x.w ->> 'tenant' AND r.run_id = x.w ->> 'run_id') r CROSS JOIN LATERAL unnest(${keysOf("r")} || r.line) k (key)
  WHERE k.key IS NOT NULL AND r.slot <> '' AND r.finished_at IS NULL AND CASE x.w ->> 'kind'
    WHEN 'post' THEN NOT r.holds_slot AND (x.w ? 'due' OR x.w ? 'unblocks' OR r.due_at IS NOT NULL)
    ELSE r.line IS NOT NULL OR x.w ? 'asks' AND NOT r.holds_slot
      OR r.holds_slot <> ((x.w -> 'head' ->> 'holds_slot')::boolean AND x.w -> 'head' ->> 'finished_at' IS NULL)
      OR NOT r.holds_slot AND x.w -> 'head' ->> 'owner' IS NULL AND (r.due_at IS NOT NULL OR x.w -> 'head' ->> 'due_at' IS NOT NULL)
    END
  UNION ALL SELECT x.n, ${schema}.slot_lock_v1(k.key) FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  CROSS JOIN LATERAL (
    SELECT * FROM ${schema}.runs r WHERE r.tenant = x.w -> 'wake' ->> 'tenant' AND r.run_id = x.w -> 'wake' ->> 'run_id') r CROSS JOIN LATERAL unnest(${keysOf("r")}) k (key)
  WHERE r.slot <> '' AND r.finished_at IS NULL AND NOT r.holds_slot;
$function$;
`;
}

/** The rows of the runs that a batch changes, locked in one order. `ofRun`: what is read of each. `but`: which writes need no row. */
export function lockedRuns(schema: string, ofRun = "1", but = ""): string {
  return `(
    SELECT w ->> 'tenant' AS tenant, w ->> 'run_id' AS id FROM jsonb_array_elements(writes) w WHERE w ->> 'kind' <> 'create'${but}
    UNION SELECT w -> 'wake' ->> 'tenant', w -> 'wake' ->> 'run_id' FROM jsonb_array_elements(writes) w WHERE w ? 'wake'
    ORDER BY tenant, id
  ) k CROSS JOIN LATERAL (
    SELECT ${ofRun} FROM ${schema}.runs r WHERE r.tenant = k.tenant AND r.run_id = k.id FOR NO KEY UPDATE
  ) r`;
}

/**
 * Makes the writes of a batch, in their order. Answers a list with null for each write that was made, and else why it was
 * not. Or, if writes have to bring messages with them, changes nothing and answers which: {"wanted": [0, 2]}.
 */
function writeFunction(
  schema: string,
  create: "CREATE" | "CREATE OR REPLACE",
  moreLocks = "",
  slots: Slots = countedSlots(schema),
  name = "write_v1",
): string {
  return `
${create} FUNCTION ${schema}.${name}(writes jsonb, given_time float8, its_shard integer) RETURNS jsonb
LANGUAGE plpgsql${slots.settings} AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));${slots.variables}
  has_sessions boolean := jsonb_path_exists(writes, '$[*].session');
  wanted jsonb;
  made bigint[] := '{}';
  n integer;
  write jsonb;
  answer jsonb;
  answers jsonb[] := array_fill(NULL::jsonb, ARRAY[jsonb_array_length(writes)]);
  counted jsonb[] := '{}';
BEGIN
  ${slots.lockRuns} FROM ${lockedRuns(schema, slots.ofRun, slots.posts)};${slots.gates}

  IF has_sessions THEN
    SELECT jsonb_agg(x.n - 1) INTO wanted FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
    WHERE x.w -> 'session' ? 'isLazy' AND (
      EXISTS (SELECT 1 FROM ${schema}.sessions s
        WHERE s.tenant = x.w ->> 'tenant' AND s.session_id = x.w -> 'session' ->> 'session_id')
      OR (x.w ->> 'tenant', x.w -> 'session' ->> 'session_id') IN (
        SELECT o ->> 'tenant', o -> 'session' ->> 'session_id' FROM jsonb_array_elements(writes) o
        WHERE (o -> 'session' ->> 'create')::boolean));
    IF wanted IS NOT NULL THEN
      RETURN jsonb_build_object('wanted', wanted);
    END IF;
  END IF;

  PERFORM pg_advisory_xact_lock(k.lock) FROM (
    ${slots.firstLocks}SELECT ${schema}.session_lock_v1(w ->> 'tenant', w -> 'session' ->> 'session_id') AS lock
    FROM jsonb_array_elements(writes) w WHERE (w -> 'session' ->> 'create')::boolean AND (
      SELECT s.id FROM ${schema}.sessions s
      WHERE s.tenant = w ->> 'tenant' AND s.session_id = w -> 'session' ->> 'session_id') IS NULL${moreLocks}
    ORDER BY lock
  ) k;

  IF has_sessions THEN
    PERFORM 1 FROM (
      SELECT DISTINCT w ->> 'tenant' AS tenant, w -> 'session' ->> 'session_id' AS id FROM jsonb_array_elements(writes) w
      WHERE w ? 'session' ORDER BY tenant, id
    ) k CROSS JOIN LATERAL (
      SELECT 1 FROM ${schema}.sessions s WHERE s.tenant = k.tenant AND s.session_id = k.id FOR NO KEY UPDATE
    ) s;
  END IF;
${slots.lastLocks}${slots.together}
  FOR n, write IN SELECT x.n, x.w FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n) WHERE x.n <> ALL (made) ORDER BY x.n LOOP
    CASE write ->> 'kind'
      WHEN 'create' THEN answer := ${slots.create};
      WHEN 'lease' THEN answer := ${schema}.lease_v1(write ->> 'owner', (write ->> 'for_ms')::float8, clock);
      WHEN 'session' THEN answer := ${schema}.session_v1(write ->> 'tenant', write -> 'session');
      ELSE answer := ${schema}.change_v1(write, ${slots.clock});
    END CASE;
    answers[n] := answer;
    CONTINUE WHEN ${slots.refused};
    IF write ? 'session' AND write ->> 'kind' <> 'session' THEN
      PERFORM ${schema}.session_v1(write ->> 'tenant', write -> 'session');
    END IF;
    IF write ? 'wake' THEN
      PERFORM ${schema}.wake_v1(write -> 'wake' ->> 'tenant', write -> 'wake' ->> 'run_id', ${slots.clock});
    END IF;
    IF write ? 'counters' THEN
      counted := array_append(counted, write);
    END IF;
  END LOOP;

  IF counted = '{}' THEN
    RETURN to_jsonb(answers);
  END IF;
  INSERT INTO ${schema}.counters AS c (agent_name, shard, ${counterNames.join(", ")})
  SELECT k.agent_name, its_shard, ${counterNames.map((name) => `sum((k.w ->> '${name}')::float8)`).join(", ")}
  FROM (SELECT ${slots.agent(`(SELECT r.agent_name FROM ${schema}.runs r
      WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id')`)} AS agent_name, w -> 'counters' AS w
    FROM unnest(counted) w) k
  GROUP BY k.agent_name ORDER BY k.agent_name
  ON CONFLICT (agent_name, shard) DO UPDATE SET
    ${counterNames.map((name) => `${name} = c.${name} + excluded.${name}`).join(",\n      ")};
  RETURN to_jsonb(answers);
END $function$;`;
}

/**
 * Two batches that create runs with the same idempotency keys, in other orders, would wait for each other: the keys are
 * locked in one order before.
 */
export function locksOfKeys(schema: string): string {
  return writeFunction(schema, "CREATE OR REPLACE", idempotencyLocks(schema));
}

/**
 * The answer to a write that was made may have the inbox of its run. A post to a run whose gate is open needs no row; a write
 * that takes the owner away, or ends the run, locks its gates after the rows.
 */
export function writesWithInbox(schema: string): string {
  const slots: Slots = {
    ...lockedKeys(schema),
    posts: ` AND NOT (w ->> 'kind' = 'post' AND EXISTS (SELECT 1 FROM ${schema}.runs r
      WHERE r.tenant = w ->> 'tenant' AND r.run_id = w ->> 'run_id' AND ${goesThrough("w", "r")}))`,
    gates: `
  PERFORM ${schema}.shut_v1(k.run, true) FROM (SELECT l.run FROM (${leaving(schema)}) l ORDER BY (l.run).id) k;`,
    together: makePlainWrites(schema),
    agent: (stored) => `coalesce(w ->> 'agent_name', ${stored})`,
    refused: "answer ? 'conflict' OR write ->> 'kind' = 'session' AND answer IS NOT NULL",
  };
  return (
    slotLocks(schema) +
    plainWrites(schema) +
    writeFunction(schema, "CREATE OR REPLACE", idempotencyLocks(schema), slots, "write_v2")
  );
}

function idempotencyLocks(schema: string): string {
  return `
    UNION SELECT hashtextextended('${schema.replaceAll("'", "''")} key ' || (k.w ->> 'tenant') || ' ' || (k.w ->> 'idempotency_key'), 0)
    FROM (SELECT w, count(*) OVER () AS keys FROM jsonb_array_elements(writes) w
      WHERE w ->> 'kind' = 'create' AND w ->> 'idempotency_key' IS NOT NULL) k WHERE k.keys > 1`;
}

/**
 * Refuses the calls of the first releases, which know neither lines nor inboxes. An owner of such a release would renew its lease
 * and keep its runs, but would not see what arrives for them. Its lease ends instead, and processes of later releases, which
 * call other functions, take over its runs. A process of such a release logs the message.
 */
export function refuseFirstReleases(schema: string): string {
  const calls = [
    ["write_v1(writes jsonb, given_time float8, its_shard integer)", "jsonb"],
    [
      "take_v1(taker text, agents jsonb, most integer, suspect_from float8, most_suspects float8, cancelled_for float8, given_time float8)",
      "SETOF text",
    ],
    ["prune_runs_v1(most bigint, before float8, chunk integer)", "integer"],
  ];
  // After the SQLSTATE of a missing function these releases do not try each write of a batch alone.
  const refusal = `
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'undefined_function',
    MESSAGE = 'A newer version of cadenza has changed the schema, which this version cannot write any more. Update cadenza in this process. Processes of the newer version take over its runs.';
END `;
  const refused = calls.map(
    ([call, type]) =>
      `CREATE OR REPLACE FUNCTION ${schema}.${call} RETURNS ${type} LANGUAGE plpgsql AS $function$${refusal}$function$;`,
  );
  return refused.join("\n");
}

/**
 * Wakes the runs whose status may be wrong: earlier releases wrote a question of a sub-run to the end of a log with a status that
 * they had decided before. If the run had asked a question meanwhile, nothing shows that it is awaiting. The process that
 * takes such a run writes its status anew.
 */
export function wakeMisread(schema: string): string {
  return `
PERFORM ${schema}.wake_v1(r.tenant, r.run_id, floor(extract(epoch FROM now()) * 1000)) FROM ${schema}.runs r CROSS JOIN LATERAL (
  SELECT e.lines FROM ${schema}.entries e WHERE e.run = r.id ORDER BY e.position DESC LIMIT 1
) e WHERE r.finished_at IS NULL AND r.status = 'in-progress' AND r.owner IS NULL AND r.due_at IS NULL AND r.blocked IS NULL
  AND (e.lines LIKE '{"type":"settled"%' OR e.lines LIKE '{"type":"awaited"%');`;
}

/** A session has the generation that the write names which makes it or replaces it. An older release names none. */
export function generationsOfSessions(schema: string): string {
  return `
ALTER TABLE ${schema}.sessions ADD COLUMN generation text COLLATE "C";
${sessionFunction(schema, ["generation"])}`;
}

/**
 * Runs and sessions are found by the user who has created them, whom an older release does not name. A run is refused if
 * its session was created by another user than the one whose session the write asks for.
 */
export function creators(schema: string): string {
  const foreign = `
  IF w -> 'session' ? 'onlyOf' THEN
    PERFORM 1 FROM ${schema}.sessions s WHERE s.tenant = w ->> 'tenant'
      AND s.session_id = w -> 'session' ->> 'session_id' AND s.creator IS DISTINCT FROM w -> 'session' ->> 'onlyOf';
    IF FOUND THEN
      RETURN '{"conflict": "foreign"}';
    END IF;
  END IF;`;
  return `
ALTER TABLE ${schema}.runs ADD COLUMN IF NOT EXISTS creator text COLLATE "C";
CREATE INDEX IF NOT EXISTS runs_by_creator ON ${schema}.runs (tenant, creator, id) WHERE creator IS NOT NULL;
ALTER TABLE ${schema}.sessions ADD COLUMN creator text COLLATE "C";
${createFunction(schema, "CREATE OR REPLACE", [...insertedColumns, "creator"], foreign)}
${sessionFunction(schema, ["generation", "creator"])}`;
}

/** Changes a session, as the first one does. `marks`: the columns that the write fills that makes it. */
function sessionFunction(schema: string, marks: readonly string[]): string {
  return `CREATE OR REPLACE FUNCTION ${schema}.session_v1(its_tenant text, change jsonb) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  session ${schema}.sessions;
  is_made boolean := false;
BEGIN
  LOOP
    SELECT * INTO session FROM ${schema}.sessions s
    WHERE s.tenant = its_tenant AND s.session_id = change ->> 'session_id' FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    IF NOT (change ->> 'create')::boolean THEN
      RETURN NULL;
    END IF;
    INSERT INTO ${schema}.sessions (tenant, session_id, length, state, changed_at, ${marks.join(", ")})
    VALUES (its_tenant, change ->> 'session_id', 0, 'null', (change ->> 'at')::float8, ${marks.map((name) => `change ->> '${name}'`).join(", ")})
    ON CONFLICT DO NOTHING;
    is_made := FOUND;
  END LOOP;
  IF change ? 'isNew' AND NOT is_made THEN
    RETURN 'false';
  END IF;
  IF change ? 'isLazy' THEN
    RAISE EXCEPTION 'The session exists now.' USING ERRCODE = '40001';
  END IF;
  IF change ? 'isWhole' THEN
    DELETE FROM ${schema}.messages m WHERE m.session = session.id;
    session.length := 0;
    session.generation := change ->> 'generation';
  END IF;
  INSERT INTO ${schema}.messages (session, position, message)
  SELECT session.id, session.length + m.n - 1, m.message
  FROM jsonb_array_elements_text(change -> 'messages') WITH ORDINALITY m (message, n);
  UPDATE ${schema}.sessions s SET
    length = session.length + jsonb_array_length(change -> 'messages'),
    state = coalesce(change ->> 'state', s.state),
    changed_at = (change ->> 'at')::float8,
    generation = session.generation
  WHERE s.id = session.id;
  RETURN NULL;
END $function$;
`;
}

/** The columns that a write changes. */
const changing = [...headColumns, "wakes", "for_look", "position"];
