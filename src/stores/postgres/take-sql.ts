import {
  BAND_END,
  BAND_MS,
  BY_INDEX,
  bandOf,
  bandsOf,
  duePlace,
  isDue,
  keysOf,
  priorityOf,
  sinceOf,
} from "./line-sql.ts";
import { mayWait, tenantsPaused } from "./pauses.ts";

/*
 * Looking for work. Runs are found in indexes that hold nothing else: neither runs that wait for a later time or for a
 * permit nor runs of living owners are read. Rows and keys of slots that another process has locked are left out, so that
 * `take` never waits.
 */

/**
 * The owners of live runs of which the lease ended before `clock`. They are found by jumps in the index from one to the
 * next, between the living ones: what these have ended may still be there.
 */
export function deadOwners(schema: string, clock: string): string {
  const next = (after: string, before: string): string => `(SELECT r.owner FROM ${schema}.runs r
            WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner ${after} AND r.owner < ${before}
            ORDER BY r.owner LIMIT 1)`;
  return `
        living (owner) AS MATERIALIZED (SELECT l.owner FROM ${schema}.leases l WHERE l.until > ${clock}),
        owners (owner, before) AS (
          SELECT ${next("> l.owner", "l.before")}, l.before FROM (
            SELECT l.owner, lead(l.owner, 1, ${LAST_OWNER}) OVER (ORDER BY l.owner) AS before
            FROM (SELECT '' COLLATE "C" AS owner UNION ALL SELECT l.owner FROM living l) l
          ) l
          UNION ALL
          SELECT ${next("> o.owner", "o.before")}, o.before FROM owners o WHERE o.owner IS NOT NULL
        ),
        dead (owner, until) AS (
          SELECT o.owner, coalesce(l.until, '-Infinity') FROM owners o
          LEFT JOIN ${schema}.leases l ON l.owner = o.owner WHERE o.owner IS NOT NULL
        )`;
}

/** Comes after each owner. */
const LAST_OWNER = "U&'\\+10FFFF' COLLATE \"C\"";

/** As the first versions of the functions have found them. */
function deadOwnersOfAll(schema: string, clock: string): string {
  const owners = `SELECT r.owner FROM ${schema}.runs r WHERE r.finished_at IS NULL AND r.owner IS NOT NULL`;
  return `
        owners (owner) AS (
          (${owners} ORDER BY r.owner LIMIT 1)
          UNION ALL
          SELECT (${owners} AND r.owner > o.owner ORDER BY r.owner LIMIT 1) FROM owners o WHERE o.owner IS NOT NULL
        ),
        dead (owner, until) AS (
          SELECT o.owner, coalesce(l.until, '-Infinity') FROM owners o
          LEFT JOIN ${schema}.leases l ON l.owner = o.owner
          WHERE o.owner IS NOT NULL AND coalesce(l.until, '-Infinity') <= ${clock}
        )`;
}

export function takeFunctions(schema: string): string {
  const isDue = "r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL";
  const queue = `SELECT r.queue FROM ${schema}.runs r WHERE ${isDue}`;
  const order = "r.due_at NULLS FIRST, r.id";
  const candidates = (which: string): string => `SELECT r.id, r.due_at, r.owner, r.queue, r.slot_max,
          row_number() OVER (ORDER BY ${order}) AS place
        FROM ${schema}.runs r WHERE ${which} AND r.queue <> ALL (full_queues)
          AND (r.takeovers < suspect_from OR suspects_left > 0) ORDER BY ${order} LIMIT page`;
  return [
    // Gives runs that need work to an owner, and answers them in order, as JSON. The candidates are read in pages, each
    // four times as long as the one before. place is the number of a candidate among those of its kind: behind the last
    // one of a full page the order is unknown. While the first run of a slot has to wait, so do the others.
    `
CREATE FUNCTION ${schema}.take_v1(
  taker text, agents jsonb, most integer, suspect_from float8, most_suspects float8, cancelled_for float8,
  given_time float8
) RETURNS SETOF text LANGUAGE plpgsql AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  page integer := least(most, 1000) + 8;
  suspects_left float8 := most_suspects;
  taken bigint[] := '{}';
  full_queues text[] := '{}';
  is_over boolean := most <= 0;
  candidate record;
  run ${schema}.runs;
BEGIN
  PERFORM ${schema}.shorten_leases_v1(clock, NULL);
  WHILE NOT is_over LOOP
    is_over := true;
    FOR candidate IN
      WITH RECURSIVE wanted (agent_name, version) AS (
        SELECT DISTINCT a ->> 0, a ->> 1 FROM jsonb_array_elements(agents) a
      ),
      queues (agent_name, version, queue) AS (
        SELECT w.agent_name, w.version,
          (${queue} AND r.agent_name = w.agent_name AND r.version = w.version ORDER BY r.queue LIMIT 1)
        FROM wanted w
        UNION ALL
        SELECT q.agent_name, q.version, (${queue} AND r.agent_name = q.agent_name AND r.version = q.version
          AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
        FROM queues q WHERE q.queue IS NOT NULL
      ),${deadOwnersOfAll(schema, "clock")}
      SELECT c.* FROM queues q CROSS JOIN LATERAL (
        ${candidates(`${isDue} AND r.agent_name = q.agent_name AND r.version = q.version AND r.queue = q.queue
          AND r.due_at <= clock`)}
      ) c
      UNION ALL
      SELECT c.* FROM dead d CROSS JOIN LATERAL (
        ${candidates(`r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = d.owner AND r.id <> ALL (taken)
          AND (r.agent_name, r.version) IN (SELECT w.agent_name, w.version FROM wanted w)`)}
      ) c
      UNION ALL (
        ${candidates(`cancelled_for IS NOT NULL AND r.finished_at IS NULL AND r.status = 'cancelling'
          AND (r.owner IS NULL AND r.due_at <= clock - cancelled_for OR EXISTS (
            SELECT 1 FROM dead d WHERE d.owner = r.owner AND d.until <= clock - cancelled_for))
          AND r.id <> ALL (taken)
          AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.agent_name = r.agent_name AND w.version = r.version)`)}
      )
      ORDER BY due_at NULLS FIRST, id
    LOOP
      IF candidate.queue <> '' AND candidate.queue <> ALL (full_queues)
        AND ${schema}.is_closed_v1(candidate.queue, candidate.slot_max)
      THEN
        full_queues := array_append(full_queues, candidate.queue);
      END IF;
      IF candidate.queue <> ALL (full_queues) THEN
        SELECT r.* INTO run FROM ${schema}.runs r
        WHERE r.id = candidate.id AND r.finished_at IS NULL AND r.owner IS NOT DISTINCT FROM candidate.owner
          AND r.queue = candidate.queue AND (r.owner IS NOT NULL OR r.due_at <= clock) FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND AND (run.takeovers < suspect_from OR suspects_left > 0) THEN
          UPDATE ${schema}.runs r SET
            owner = taker,
            epoch = run.epoch + 1,
            due_at = clock,
            blocked = NULL,
            holds_slot = run.holds_slot OR (run.slot <> '' AND NOT run.for_look),
            takeovers = run.takeovers + (run.owner IS NOT NULL)::integer,
            wakes = 0,
            for_look = false
          WHERE r.id = run.id;
          taken := array_append(taken, run.id);
          suspects_left := suspects_left - (run.takeovers >= suspect_from)::integer;
        END IF;
      END IF;
      EXIT WHEN cardinality(taken) >= most;
      is_over := candidate.place < page;
      EXIT WHEN NOT is_over;
    END LOOP;
    page := page * 4;
  END LOOP;
  RETURN QUERY
  SELECT (to_jsonb(r) || jsonb_build_object('created', split_part(e.lines, E'\\n', 1)))::text
  FROM unnest(taken) WITH ORDINALITY t (id, n) JOIN ${schema}.runs r ON r.id = t.id
  LEFT JOIN ${schema}.entries e ON e.run = r.id AND e.position = 0 ORDER BY t.n;
END $function$;`,
    // Whether a permit of a slot is out of reach: none is free, or another process is giving permits of it just now.
    `
CREATE FUNCTION ${schema}.is_closed_v1(key text, most float8) RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
  RETURN NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(key)) OR ${schema}.is_full_v1(key, most);
END $function$;`,
  ].join("\n");
}

/** What its caller has given up must change nothing. */
const REFUSE_LATE = `  IF clock > not_after THEN
    RAISE EXCEPTION 'The statement has arrived after its deadline.' USING ERRCODE = '57014';
  END IF;`;
/** How many keys of slots are looked at in one call whose next could not be locked. */
const MAX_LOOKED_AT = 64;
/** How many runs join one line in one call, beside the first of them. */
const MAX_JOINING = 256;
/** How many runs are passed over in one call. */
const MAX_PASSED = 1_000;
/** A scan of the due runs begins at least so long ago, also when the clock was set back. */
const SLACK_MS = 500;

/**
 * Takes from the due runs, which hold the permits that they need. Some that need one are met all the same: those whose time
 * has come, and those of dead owners. They join the line.
 *
 * The due runs are read in ranges: one for each agent, one for the cancelled runs of others, and one more of each for each
 * priority that there has been (`more`). Each is read from a place on, which the caller has from its last call: what an old transaction
 * keeps of former ones is not walked again. Behind the runs the function answers these places: of the agents, of the cancelled
 * runs (`cancelled_from`), and then for priorities, with the number of the agent (0: cancelled runs) and the priority.
 * Null: the range was not looked at. A run that was passed over keeps the place back: it was locked, or suspect.
 */
export function takeDue(schema: string): string {
  // A dead owner's run that stands in line stays there without it, unless it is only taken to end it.
  const needsPermit = (run: string): string => `${run}.slot <> '' AND NOT ${run}.holds_slot AND NOT ${run}.for_look`;
  const candidates = (n: string, place: string, which: string): string => `SELECT r.id, r.owner, r.slot,
          ${needsPermit("r")} AS needs, r.owner IS NOT NULL AND (r.plain IS NOT NULL OR r.status = 'cancelling') AS only_ends,
          r.takeovers >= suspect_from AS is_suspect, ${priorityOf("r")} = 0 AND r.limits IS NULL AS is_simple,
          ${n} AS n, ${place} AS place, row_number() OVER (ORDER BY ${place}, r.id) AS number
        FROM ${schema}.runs r WHERE ${which} ORDER BY ${place}, r.id LIMIT page`;
  const due = (which: string): string =>
    candidates("w.n", duePlace, `${isDue} AND ${which} AND ${duePlace} BETWEEN w.since AND w.until`);
  const owned = (which: string): string =>
    candidates(
      "NULL::bigint",
      // Written so that those without a time come first of their priority.
      `coalesce(r.due_at, -${BAND_END}) - ${bandOf("r")}`,
      `r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = d.owner AND r.id <> ALL (taken) AND ${which}`,
    );
  // Written so that only the index of these runs has the condition: in others what is over may be in the way.
  const isCancelling = "r.status || '' = 'cancelling'";
  const isWanted = "EXISTS (SELECT 1 FROM wanted w WHERE w.agent_name = r.agent_name AND w.version = r.version)";
  const isWantedOfDead = `(${isWanted} OR with_plain AND r.plain IS NOT NULL)`;
  return `
DROP FUNCTION IF EXISTS ${schema}.take_v2(text, jsonb, integer, float8, float8, float8, float8, float8, float8);
DROP FUNCTION IF EXISTS ${schema}.take_v2(text, jsonb, integer, float8, float8, float8, float8, float8, float8, boolean);
CREATE OR REPLACE FUNCTION ${schema}.take_v2(
  taker text, agents jsonb, most integer, suspect_from float8, most_suspects float8, cancelled_for float8,
  cancelled_from float8, not_after float8, given_time float8, with_plain boolean DEFAULT false, more jsonb DEFAULT NULL
) RETURNS SETOF text LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  page integer := least(most, 1000) + 8;
  suspects_left float8 := most_suspects;
  taken bigint[] := '{}';
  passed bigint[] := '{}';
  joining bigint[] := '{}';
  closed text[] := '{}';
  full_keys text[] := '{}';
  bands jsonb;
  range_agents integer[];
  froms float8[];
  untils float8[];
  bounds float8[];
  reached float8;
  is_over boolean := most <= 0;
  is_held boolean;
  key text;
  its_line text;
  its ${schema}.slots;
  ranks record;
  gates text[] := '{}';
  its_gate text := more ->> 'gate';
  agents_only jsonb := (SELECT jsonb_agg(a - 2) FROM jsonb_array_elements(agents) a);
  candidate record;
  run ${schema}.runs;
BEGIN
${REFUSE_LATE}
  PERFORM ${schema}.shorten_leases_v1(clock, NULL);
  IF is_over THEN
    RETURN;
  END IF;
  PERFORM 1 FROM ${schema}.pauses p WHERE p.tenant IS NOT NULL LIMIT 1;
  IF FOUND THEN
    PERFORM ${schema}.set_aside_v1(agents, clock);
  END IF;
  PERFORM 1 FROM ${schema}.pauses p WHERE p.tenant IS NULL LIMIT 1;
  IF FOUND THEN
    PERFORM ${schema}.free_paused_v1(given_time IS NOT NULL OR coalesce((more ->> 'sweeps')::boolean, false), clock);
  END IF;
  FOR key IN SELECT s.key FROM ${schema}.slots s WHERE s.look_at <= clock ORDER BY s.look_at LIMIT ${MAX_LOOKED_AT} LOOP
    IF pg_try_advisory_xact_lock(${schema}.slot_lock_v1(key)) THEN
      PERFORM ${schema}.grant_v1(key, 0, clock);
    END IF;
  END LOOP;
  PERFORM 1 FROM ${schema}.priorities p LIMIT 1;
  IF FOUND THEN
    bands := ${schema}.bands_v1(agents, cancelled_for IS NOT NULL, more -> 'places');
  END IF;
  SELECT array_agg(x.agent ORDER BY x.n), array_agg(x.until ORDER BY x.n),
    array_agg(greatest(-${BAND_END} - x.band, least(coalesce(x.since, '-Infinity'), x.until - ${SLACK_MS})) ORDER BY x.n)
  INTO range_agents, untils, froms FROM (
    SELECT y.n, y.agent, y.band, y.since, clock - y.band - CASE WHEN y.agent = 0 THEN cancelled_for ELSE 0 END AS until FROM (
      SELECT a.n, a.n AS agent, 0::float8 AS band, (a.a ->> 2)::float8 AS since
      FROM jsonb_array_elements(agents) WITH ORDINALITY a (a, n)
      UNION ALL SELECT jsonb_array_length(agents) + 1, 0, 0, cancelled_from
      UNION ALL SELECT jsonb_array_length(agents) + 1 + b.n, (b.b ->> 0)::bigint, (b.b ->> 1)::float8 * ${BAND_MS}, (b.b ->> 2)::float8
      FROM jsonb_array_elements(bands) WITH ORDINALITY b (b, n)
    ) y
  ) x;
  bounds := untils;
  WHILE NOT is_over LOOP
    is_over := true;
    reached := NULL;
    FOR candidate IN
      WITH RECURSIVE wanted (agent_name, version, n, since, until, paused) AS MATERIALIZED (
        SELECT agents -> (x.agent - 1) ->> 0, agents -> (x.agent - 1) ->> 1, x.n, x.since, x.until,
          ${tenantsPaused(schema, "agents -> (x.agent - 1) ->> 0", "agents -> (x.agent - 1) ->> 1")}
        FROM unnest(range_agents, froms, untils) WITH ORDINALITY x (agent, since, until, n) WHERE x.agent > 0
      ),
      cancelled (n, since, until) AS MATERIALIZED (
        SELECT x.n, x.since, x.until
        FROM unnest(range_agents, froms, untils) WITH ORDINALITY x (agent, since, until, n) WHERE x.agent = 0
      ),${deadOwners(schema, "clock")}
      SELECT c.* FROM wanted w CROSS JOIN LATERAL (
        ${due(`r.agent_name = w.agent_name AND r.version = w.version AND NOT (r.tenant = ANY (w.paused) AND ${mayWait("r")})`)}
      ) c
      UNION ALL
      SELECT c.* FROM dead d CROSS JOIN LATERAL (${owned(isWantedOfDead)}) c
      UNION ALL
      SELECT c.* FROM dead d CROSS JOIN LATERAL (
        ${owned(`d.until <= clock - cancelled_for AND r.status = 'cancelling' AND NOT ${isWantedOfDead}`)}
      ) c
      UNION ALL
      SELECT c.* FROM cancelled w CROSS JOIN LATERAL (
        ${due(`${isCancelling} AND NOT ${isWanted}`)}
      ) c
      ORDER BY place, id
    LOOP
      IF candidate.id <> ALL (passed) THEN
        is_held := candidate.is_suspect AND suspects_left <= 0 OR candidate.needs AND candidate.slot = ANY (closed);
        IF candidate.needs AND NOT is_held AND candidate.slot = ANY (full_keys) AND candidate.owner IS NULL
          AND candidate.is_simple
        THEN
          is_held := cardinality(joining) >= ${MAX_JOINING};
          IF NOT is_held THEN
            joining := array_append(joining, candidate.id);
            passed := array_append(passed, candidate.id);
          END IF;
        ELSIF NOT is_held THEN
          IF candidate.needs AND NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(candidate.slot)) THEN
            closed := array_append(closed, candidate.slot);
            run := NULL;
          ELSE
            SELECT r.* INTO run FROM ${schema}.runs r
            WHERE r.id = candidate.id AND r.finished_at IS NULL AND r.owner IS NOT DISTINCT FROM candidate.owner
              AND (r.line IS NULL OR r.owner IS NOT NULL) AND (${needsPermit("r")}) <= candidate.needs
              AND (r.owner IS NOT NULL OR r.due_at <= clock) AND (r.takeovers < suspect_from OR suspects_left > 0)
            FOR NO KEY UPDATE SKIP LOCKED;
            IF (candidate.needs OR run.line IS NOT NULL) AND run.arrived > 0 AND NOT ${schema}.shut_v1(run, false)
              OR candidate.needs AND run.limits IS NOT NULL AND NOT ${schema}.try_keys_v1(run)
            THEN
              run := NULL;
            END IF;
          END IF;
          is_held := run.id IS NULL;
          IF NOT is_held THEN
            run.takeovers := run.takeovers + (run.owner IS NOT NULL)::integer;
            its_line := NULL;
            IF candidate.only_ends THEN
              its_line := run.line;
              run.line := NULL;
              run.rank := NULL;
            ELSIF ${needsPermit("run")} AND run.line IS NULL THEN
              run := ${schema}.join_v1(run, clock);
            END IF;
            IF run.line IS NULL OR run.owner IS NOT NULL THEN
              run.epoch := run.epoch + 1;
              run.due_at := clock;
              run.blocked := NULL;
              run.wakes := 0;
            END IF;
            IF run.line IS NULL THEN
              run.owner := taker;
              taken := array_append(taken, run.id);
              gates := CASE WHEN run.fair IS NULL THEN gates ELSE array_append(gates, run.fair) END;
              suspects_left := suspects_left - candidate.is_suspect::integer;
            ELSE
              run.owner := NULL;
              full_keys := array_append(full_keys, run.slot);
              passed := array_append(passed, run.id);
            END IF;
            UPDATE ${schema}.runs r SET
              owner = run.owner, epoch = run.epoch, due_at = run.due_at, blocked = run.blocked, holds_slot = run.holds_slot,
              takeovers = run.takeovers, wakes = run.wakes, for_look = false, line = run.line, rank = run.rank,
              slot = run.slot, slot_max = run.slot_max, limits = run.limits,
              since = CASE WHEN run.owner IS NULL AND run.fair IS NOT NULL THEN clock - ${bandOf("run")} END
            WHERE r.id = run.id;
            IF its_line IS NOT NULL THEN
              PERFORM ${schema}.grant_v1(its_line, 0, clock);
            END IF;
            IF run.arrived > 0 THEN
              PERFORM ${schema}.leave_inbox_v1(run.id, clock);
            END IF;
          END IF;
        END IF;
        IF is_held THEN
          passed := array_append(passed, candidate.id);
          IF candidate.n IS NOT NULL THEN
            bounds[candidate.n] := least(bounds[candidate.n], candidate.place);
          END IF;
        END IF;
      END IF;
      reached := candidate.place;
      EXIT WHEN cardinality(taken) >= most;
      is_over := candidate.number < page;
      EXIT WHEN NOT is_over;
      reached := NULL;
    END LOOP;
    page := page * 4;
    is_over := is_over OR cardinality(passed) >= most + ${MAX_PASSED};
  END LOOP;
  FOR key IN SELECT DISTINCT f FROM unnest(full_keys) f WHERE cardinality(joining) > 0 LOOP
    its := ${schema}.slot_v1(key);
    WITH joined AS (
      UPDATE ${schema}.runs r SET line = key, since = CASE WHEN r.fair IS NOT NULL THEN r.since END,
        rank = coalesce(r.rank, greatest(clock, its.last + 1) + array_position(joining, r.id) - 1)
      WHERE r.id = ANY (ARRAY(
        SELECT j.id FROM ${schema}.runs j WHERE j.id = ANY (joining) AND ${isDue.replaceAll("r.", "j.")} AND j.slot = key
          AND NOT j.holds_slot AND NOT j.for_look AND j.due_at <= clock FOR NO KEY UPDATE SKIP LOCKED))
      RETURNING r.rank
    )
    SELECT min(j.rank) AS first, max(j.rank) AS last INTO ranks FROM joined j;
    its.first := least(its.first, ranks.first);
    its.last := greatest(its.last, ranks.last);
    PERFORM ${schema}.put_slot_v1(its);
    -- One that comes back may be the first now, and its own limit may allow what that of the former first did not.
    PERFORM ${schema}.grant_v1(key, 0, clock);
  END LOOP;

  FOR key IN SELECT DISTINCT g FROM unnest(gates) g LOOP
    PERFORM ${schema}.let_through_v1(key, NULL, clock);
  END LOOP;
  IF cardinality(taken) < most OR (more ->> 'sweeps')::boolean THEN
    its_gate := ${schema}.let_others_through_v1(coalesce(agents_only, '[]'), clock, its_gate);
  END IF;

  RETURN QUERY
  SELECT (to_jsonb(r) || jsonb_build_object('created', split_part(e.lines, E'\\n', 1)))::text
  FROM unnest(taken) WITH ORDINALITY t (id, n) JOIN ${schema}.runs r ON r.id = t.id
  LEFT JOIN ${schema}.entries e ON e.run = r.id AND e.position = 0 ORDER BY t.n;
  RETURN NEXT ((SELECT jsonb_agg(CASE WHEN x.n > jsonb_array_length(agents) + 1 THEN
      jsonb_build_array(b.band -> 0, b.band -> 1, x.bound) ELSE to_jsonb(x.bound) END ORDER BY x.n)
    FROM (
      SELECT n, CASE WHEN reached < since THEN NULL ELSE least(bound, reached) END AS bound
      FROM unnest(bounds, froms) WITH ORDINALITY y (bound, since, n)
    ) x CROSS JOIN LATERAL (SELECT bands -> (x.n - jsonb_array_length(agents) - 2)::integer AS band) b)
    || CASE WHEN its_gate IS NULL THEN '[]' ELSE to_jsonb(its_gate) END)::text;
END $function$;

CREATE OR REPLACE FUNCTION ${schema}.bands_v1(agents jsonb, with_cancelled boolean, places jsonb) RETURNS jsonb
LANGUAGE plpgsql ${BY_INDEX} AS $function$
BEGIN
  RETURN (
    SELECT jsonb_agg(jsonb_build_array(b.n, b.priority, (
      SELECT p -> 2 FROM jsonb_array_elements(places) p WHERE (p ->> 0)::bigint = b.n AND (p ->> 1)::integer = b.priority)))
    FROM (
      SELECT a.n, p.priority FROM jsonb_array_elements(agents) WITH ORDINALITY a (a, n) CROSS JOIN LATERAL (
        SELECT p.priority FROM ${schema}.priorities p WHERE p.agent_name = a.a ->> 0 AND p.version = a.a ->> 1
      ) p
      UNION ALL SELECT 0, p FROM generate_series(-10, 10) p
      WHERE with_cancelled AND EXISTS (SELECT 1 FROM ${schema}.priorities x WHERE x.priority = p)
    ) b);
END $function$;
`;
}

/** Of how many runs one call frees the permits, of one version or one dead owner. */
const MAX_FREED = 64;
/** How many runs one call takes out of a line, for each permit that it frees. */
const MAX_ASIDE = 1_000;

/** The runs without an owner that hold a permit. */
const isReserved =
  "r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL AND r.slot <> '' AND r.holds_slot";

export function reservedRuns(schema: string): string {
  return `
CREATE INDEX runs_reserved ON ${schema}.runs (agent_name, version, coalesce(since, due_at), id)
  WHERE finished_at IS NULL AND owner IS NULL AND due_at IS NOT NULL AND slot <> '' AND holds_slot;
`;
}

/** Where `take` begins among the runs of a paused agent that hold permits, before the time of the pause. In milliseconds. */
const BEFORE_PAUSE_MS = 10_000;

/**
 * Frees permits of runs that no process may execute, if others wait for them. The run gives all its permits back, and is due
 * without. The other runs of its version leave these lines first: they would only get the permits next. They are due as a run is whose
 * time has come. The next call does this for rows and keys that other transactions have locked.
 *
 * - `free_unused_v1`: of agents and versions that the caller does not have, if no process has executed the run for a time.
 * - `free_paused_v1`: of paused agents and versions. `sweeps`: also those that got their permits long before the pause.
 */
export function freePermits(schema: string): string {
  const newest = (key: string): string =>
    `(SELECT s.* FROM ${schema}.slots s WHERE s.key = ${key} ORDER BY s.gen DESC LIMIT 1) s CROSS JOIN LATERAL ${bandsOf("s")} b`;
  const hasLine = `EXISTS (SELECT 1 FROM unnest(${keysOf("r")}) k (key) CROSS JOIN LATERAL ${newest("k.key")} CROSS JOIN LATERAL (
          SELECT 1 FROM ${schema}.runs l WHERE l.line IS NOT NULL AND l.line = k.key AND l.rank >= b.first AND l.rank < b.until LIMIT 1
        ) l)`;
  /** The versions of `names` of which runs are reserved, by jumps in the index. */
  const version = (which: string): string => `(SELECT r.version FROM ${schema}.runs r
          WHERE ${isReserved} AND ${which} ORDER BY r.version LIMIT 1)`;
  const versions = `versions (agent_name, version) AS (
      SELECT n.agent_name, ${version("r.agent_name = n.agent_name")} FROM names n
      UNION ALL
      SELECT v.agent_name, ${version("r.agent_name = v.agent_name AND r.version > v.version")}
      FROM versions v WHERE v.version IS NOT NULL
    ),${deadOwners(schema, "clock")}`;
  const bands = `(
      SELECT 0::float8 AS band
      UNION ALL SELECT p.priority::float8 * ${BAND_MS} FROM ${schema}.priorities p
      WHERE p.agent_name = v.agent_name AND p.version = v.version
    ) p`;
  const reserved = (from: string, until: string): string => `(
      SELECT r.id, r.owner FROM ${schema}.runs r WHERE ${isReserved} AND r.agent_name = v.agent_name AND r.version = v.version
        AND ${duePlace} BETWEEN ${from} - p.band AND ${until} - p.band AND ${hasLine} ORDER BY ${duePlace}, r.id LIMIT ${MAX_FREED}
    ) c`;
  const left = (which: string): string => `(
      SELECT r.id, r.owner FROM ${schema}.runs r WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = d.owner
        AND r.plain IS NULL AND r.slot <> '' AND r.holds_slot AND ${which} AND ${hasLine} ORDER BY r.id LIMIT ${MAX_FREED}
    ) c`;
  const isWanted = (run: string): string =>
    `EXISTS (SELECT 1 FROM wanted w WHERE w.agent_name = ${run}.agent_name AND w.version = ${run}.version)`;
  const pausedOf = (run: string): string =>
    `FROM paused p WHERE p.agent_name = ${run}.agent_name AND coalesce(p.version, ${run}.version) = ${run}.version`;
  const name = (which: string): string =>
    `(SELECT r.agent_name FROM ${schema}.runs r WHERE ${isReserved}${which} ORDER BY r.agent_name LIMIT 1)`;
  return `
CREATE OR REPLACE FUNCTION ${schema}.free_unused_v1(agents jsonb, unused_for float8, not_after float8, given_time float8) RETURNS void
LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  candidate record;
BEGIN
${REFUSE_LATE}
  PERFORM ${schema}.shorten_leases_v1(clock, NULL);
  FOR candidate IN
    WITH RECURSIVE wanted (agent_name, version) AS MATERIALIZED (
      SELECT a ->> 0, a ->> 1 FROM jsonb_array_elements(agents) a
    ),
    names (agent_name) AS (
      SELECT ${name("")}
      UNION ALL
      SELECT ${name(" AND r.agent_name > n.agent_name")} FROM names n WHERE n.agent_name IS NOT NULL
    ),
    ${versions}
    SELECT c.* FROM versions v CROSS JOIN LATERAL ${bands}
    CROSS JOIN LATERAL ${reserved(`-${BAND_END}`, "clock - unused_for")} WHERE NOT ${isWanted("v")}
    UNION ALL
    SELECT c.* FROM dead d CROSS JOIN LATERAL ${left(`NOT ${isWanted("r")}`)} WHERE d.until <= clock - unused_for
    ORDER BY id
  LOOP
    PERFORM ${schema}.free_permits_v1(candidate.id, candidate.owner, clock);
  END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION ${schema}.free_paused_v1(sweeps boolean, clock float8) RETURNS void LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  candidate record;
BEGIN
  FOR candidate IN
    WITH RECURSIVE paused (agent_name, version, at) AS MATERIALIZED (
      SELECT p.agent_name, p.version, p.at FROM ${schema}.pauses p WHERE p.tenant IS NULL
    ),
    names (agent_name) AS MATERIALIZED (SELECT DISTINCT p.agent_name FROM paused p),
    ${versions}
    SELECT c.* FROM versions v CROSS JOIN LATERAL (SELECT min(p.at) AS at ${pausedOf("v")}) since CROSS JOIN LATERAL ${bands}
    CROSS JOIN LATERAL ${reserved(`CASE WHEN sweeps THEN -${BAND_END} ELSE since.at - ${BEFORE_PAUSE_MS} END`, "clock")} WHERE since.at IS NOT NULL
    UNION ALL
    SELECT c.* FROM dead d CROSS JOIN LATERAL ${left(`EXISTS (SELECT 1 ${pausedOf("r")})`)}
    ORDER BY id
  LOOP
    PERFORM ${schema}.free_permits_v1(candidate.id, candidate.owner, clock);
  END LOOP;
END $function$;

CREATE OR REPLACE FUNCTION ${schema}.free_permits_v1(its_id bigint, its_owner text, clock float8) RETURNS void LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  run ${schema}.runs;
BEGIN
  SELECT r.* INTO run FROM ${schema}.runs r
  WHERE r.id = its_id AND r.finished_at IS NULL AND r.holds_slot AND r.owner IS NOT DISTINCT FROM its_owner
    AND (r.owner IS NOT NULL OR r.due_at <= clock) FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND OR NOT ${schema}.try_keys_v1(run) THEN
    RETURN;
  END IF;
  UPDATE ${schema}.runs r SET line = NULL, since = ${sinceOf("r")} WHERE r.id = ANY (ARRAY(
    SELECT l.id FROM unnest(${keysOf("run")}) k (key) CROSS JOIN LATERAL ${newest("k.key")} CROSS JOIN LATERAL (
      SELECT l.id FROM ${schema}.runs l WHERE l.line IS NOT NULL AND l.line = k.key AND l.rank >= b.first
        AND l.rank < b.until AND l.agent_name = run.agent_name AND l.version = run.version AND l.owner IS NULL
      ORDER BY l.rank, l.id LIMIT ${MAX_ASIDE} FOR NO KEY UPDATE SKIP LOCKED
    ) l));
  PERFORM 1 FROM ${schema}.runs r WHERE r.id = run.id AND ${hasLine};
  IF NOT FOUND OR run.arrived > 0 AND NOT ${schema}.shut_v1(run, false) THEN
    RETURN;
  END IF;
  IF run.owner IS NOT NULL THEN
    run.owner := NULL;
    run.epoch := run.epoch + 1;
    run.takeovers := run.takeovers + 1;
    run.due_at := clock;
    run.blocked := NULL;
    run.wakes := 0;
  END IF;
  UPDATE ${schema}.runs r SET holds_slot = false, since = CASE WHEN r.owner IS NULL THEN r.since ELSE ${sinceOf("run")} END, owner = run.owner, epoch = run.epoch,
    takeovers = run.takeovers, due_at = run.due_at, blocked = run.blocked, wakes = run.wakes WHERE r.id = run.id;
  IF run.arrived > 0 THEN
    PERFORM ${schema}.leave_inbox_v1(run.id, clock);
  END IF;
  PERFORM ${schema}.give_back_v1(run, clock);
END $function$;
`;
}

/** A run that is not durable has `plain`: without its owner it can only be ended. Others have null. */
export function plainRuns(schema: string): string {
  return `
ALTER TABLE ${schema}.runs ADD COLUMN plain boolean;
UPDATE ${schema}.runs r SET plain = true WHERE r.finished_at IS NULL AND EXISTS (
  SELECT 1 FROM ${schema}.entries e
  WHERE e.run = r.id AND e.position = 0 AND strpos(split_part(e.lines, E'\\n', 1), '"durable":true') = 0);
`;
}
