/*
 * Looking for work. Runs are found in indexes that hold nothing else: neither runs that wait for a later time nor runs
 * of living owners are read. Rows and slots that another process has locked are left out, so that `take` never waits.
 */

/** The owners of live runs, found by jumps in the index from one to the next, of which the lease ended before `clock`. */
export function deadOwners(schema: string, clock: string): string {
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
      ),${deadOwners(schema, "clock")}
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
