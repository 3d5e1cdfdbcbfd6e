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
  const due = `SELECT r.queue FROM ${schema}.runs r
            WHERE r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL`;
  return `
  -- Gives runs that need work to an owner, in order. The candidates are read in pages, each four times as long as the
  -- one before: place is the number of a candidate among those of its kind, and behind the last one of a full page the
  -- order is unknown.
  CREATE FUNCTION ${schema}.take_v1(
    taker text, agents jsonb, most integer, suspect_from double precision, most_suspects double precision,
    cancelled_for double precision, given_time double precision
  ) RETURNS TABLE (
    tenant text, run_id text, "position" integer, status text, epoch integer, owner text, due_at double precision,
    blocked text, holds_slot boolean, finished_at double precision, takeovers integer, created text
  ) LANGUAGE plpgsql AS $function$
  #variable_conflict use_column
  DECLARE
    clock double precision := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
    page integer := least(most, 1000) + 8;
    suspects_left double precision := most_suspects;
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
            (${due} AND r.agent_name = w.agent_name AND r.version = w.version ORDER BY r.queue LIMIT 1)
          FROM wanted w
          UNION ALL
          SELECT q.agent_name, q.version, (${due} AND r.agent_name = q.agent_name AND r.version = q.version
            AND r.queue > q.queue ORDER BY r.queue LIMIT 1)
          FROM queues q WHERE q.queue IS NOT NULL
        ),
        ${deadOwners(schema, "clock").trim()}
        SELECT c.id, c.owner, c.queue, c.slot_max, c.place FROM (
          SELECT d.id, d.due_at, NULL AS owner, q.queue, d.slot_max, d.place FROM queues q CROSS JOIN LATERAL (
            SELECT r.id, r.due_at, r.slot_max, row_number() OVER (ORDER BY r.due_at, r.id) AS place FROM ${schema}.runs r
            WHERE r.finished_at IS NULL AND r.owner IS NULL AND r.due_at IS NOT NULL
              AND r.agent_name = q.agent_name AND r.version = q.version AND r.queue = q.queue AND r.due_at <= clock
              AND (r.takeovers < suspect_from OR suspects_left > 0)
            ORDER BY r.due_at, r.id LIMIT page
          ) d WHERE q.queue <> ALL (full_queues)
          UNION ALL
          SELECT x.id, x.due_at, o.owner, x.queue, x.slot_max, x.place FROM dead o CROSS JOIN LATERAL (
            SELECT r.id, r.due_at, r.queue, r.slot_max, row_number() OVER (ORDER BY r.due_at NULLS FIRST, r.id) AS place
            FROM ${schema}.runs r JOIN wanted w ON r.agent_name = w.agent_name AND r.version = w.version
            WHERE r.finished_at IS NULL AND r.owner IS NOT NULL AND r.owner = o.owner AND r.id <> ALL (taken)
              AND r.queue <> ALL (full_queues) AND (r.takeovers < suspect_from OR suspects_left > 0)
            ORDER BY r.due_at NULLS FIRST, r.id LIMIT page
          ) x
          UNION ALL
          SELECT r.id, r.due_at, r.owner, r.queue, r.slot_max, 0 FROM ${schema}.runs r LEFT JOIN dead o ON o.owner = r.owner
          WHERE cancelled_for IS NOT NULL AND r.finished_at IS NULL AND r.status = 'cancelling' AND r.id <> ALL (taken)
            AND (o.until <= clock - cancelled_for OR r.owner IS NULL AND r.due_at <= clock - cancelled_for)
            AND NOT EXISTS (SELECT 1 FROM wanted w WHERE w.agent_name = r.agent_name AND w.version = r.version)
        ) c ORDER BY c.due_at NULLS FIRST, c.id
      LOOP
        IF candidate.queue = ANY (full_queues) THEN
          -- While the first of a slot has to wait, so do the others.
        ELSIF candidate.queue <> '' AND ${schema}.is_closed_v1(candidate.queue, candidate.slot_max) THEN
          full_queues := array_append(full_queues, candidate.queue);
        ELSE
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
    SELECT r.tenant::text, r.run_id::text, r.position, r.status::text, r.epoch, r.owner::text, r.due_at, r.blocked,
      r.holds_slot, r.finished_at, r.takeovers, split_part(e.lines, E'\\n', 1)
    FROM unnest(taken) WITH ORDINALITY t (id, n) JOIN ${schema}.runs r ON r.id = t.id
    LEFT JOIN ${schema}.entries e ON e.run = r.id AND e.position = 0 ORDER BY t.n;
  END $function$;

  -- Whether a permit of a slot is out of reach: none is free, or another process is giving permits of it just now.
  CREATE FUNCTION ${schema}.is_closed_v1(key text, most double precision) RETURNS boolean LANGUAGE plpgsql AS $function$
  BEGIN
    RETURN NOT pg_try_advisory_xact_lock(${schema}.slot_lock_v1(key)) OR ${schema}.is_full_v1(key, most);
  END $function$;
`;
}
