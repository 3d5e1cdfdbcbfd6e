import { leaving } from "./gate-sql.ts";
import { lockedRuns } from "./write-sql.ts";

/*
 * Writing without waiting for locks. A batch has writes of many runs: none of them waits because a row of another one is
 * locked. What could not be locked is answered as busy, and has not been made.
 */

/** How long a batch waits for what cannot be tried: a key that an open transaction has inserted. In milliseconds. */
const UNEXPECTED_MS = 250;

/**
 * Locks what the writes of a batch need, and answers which of them lack a lock. The first one has the number 1. Later writes to
 * a run or a session of such a one are left out too: they come after it. With `gates` a post may go through the gate of its run.
 */
function busyFunction(schema: string, gates?: "gates"): string {
  const name = schema.replaceAll("'", "''");
  // Scalar subqueries, which use the indexes also if they were planned when the tables were empty.
  const itsRun = (columns: string): string =>
    `SELECT ${columns} FROM ${schema}.runs r WHERE r.tenant = k.tenant AND r.run_id = k.run_id`;
  const itsSession = `SELECT s.id FROM ${schema}.sessions s WHERE s.tenant = w.tenant AND s.session_id = w.session_id`;
  const gate = gates === undefined ? noGates : gatesOf(schema);
  return `
${gate.create} FUNCTION ${schema}.busy_v1(writes jsonb) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off AS $function$
DECLARE
  busy bigint[];
  has_slots boolean;${gate.variables}
  held text[] := '{}';
  write record;
BEGIN
  WITH w AS MATERIALIZED (
    SELECT x.n, x.w ->> 'kind' AS kind, x.w ->> 'tenant' AS tenant, x.w ->> 'run_id' AS run_id,
      x.w -> 'wake' ->> 'tenant' AS wake_tenant, x.w -> 'wake' ->> 'run_id' AS wake_id,
      x.w -> 'session' ->> 'session_id' AS session_id, (x.w -> 'session' ->> 'create')::boolean AS is_made,
      x.w ->> 'idempotency_key' AS idempotency_key, x.w ->> 'slot' <> '' AS has_slot${gate.ofWrite}
    FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
  ), runs AS MATERIALIZED (
    SELECT k.n, l.slot, l.id IS NULL AND (${itsRun("r.id")}) IS NOT NULL AS is_busy FROM (
      SELECT w.n, w.tenant, w.run_id FROM w WHERE w.kind NOT IN ('create', 'lease', 'session')${gate.isOutside}
      UNION ALL SELECT w.n, w.wake_tenant, w.wake_id FROM w WHERE w.wake_id IS NOT NULL
    ) k LEFT JOIN LATERAL (${itsRun("r.id, r.slot")} FOR NO KEY UPDATE SKIP LOCKED) l ON true
  ), locks AS MATERIALIZED (
    SELECT w.n, ${schema}.session_lock_v1(w.tenant, w.session_id) AS lock FROM w
    WHERE w.is_made AND (${itsSession}) IS NULL
    UNION ALL SELECT w.n, hashtextextended('${name} key ' || w.tenant || ' ' || w.idempotency_key, 0) FROM w
    WHERE w.kind = 'create' AND w.idempotency_key IS NOT NULL
  ), tried AS MATERIALIZED (
    SELECT l.n FROM locks l WHERE l.lock IS NOT NULL AND NOT pg_try_advisory_xact_lock(l.lock)
  ), sessions AS MATERIALIZED (
    SELECT w.n FROM w LEFT JOIN LATERAL (${itsSession} FOR NO KEY UPDATE SKIP LOCKED) l ON true
    WHERE w.session_id IS NOT NULL AND l.id IS NULL AND (${itsSession}) IS NOT NULL
  )
  SELECT coalesce(array_agg(b.n), '{}'), EXISTS (SELECT 1 FROM runs r WHERE r.slot <> '') OR EXISTS (SELECT 1 FROM w WHERE w.has_slot)
  INTO busy, has_slots FROM (
    SELECT r.n FROM runs r WHERE r.is_busy UNION SELECT t.n FROM tried t UNION SELECT s.n FROM sessions s
  ) b;${gate.shut}
  IF has_slots THEN
    busy := busy || ARRAY(SELECT s.n FROM ${schema}.slot_locks_v1(writes) s
      WHERE s.n <> ALL (busy) AND NOT pg_try_advisory_xact_lock(s.lock));
  END IF;
  IF busy = '{}' THEN
    RETURN '{}';
  END IF;
  FOR write IN
    SELECT x.n, 'run ' || (x.w ->> 'tenant') || ' ' || (x.w ->> 'run_id') AS run,
      'session ' || (x.w ->> 'tenant') || ' ' || (x.w -> 'session' ->> 'session_id') AS session
    FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n) ORDER BY x.n
  LOOP
    IF write.n = ANY (busy) OR ARRAY[write.run, write.session] && held THEN
      busy := busy || write.n;
      held := held || array_remove(ARRAY[write.run, write.session], NULL);
    END IF;
  END LOOP;
  RETURN busy;
END $function$;`;
}

/** How a batch deals with gates. */
const noGates = {
  create: "CREATE",
  variables: "",
  ofWrite: "",
  isOutside: "",
  shut: "",
};

function gatesOf(schema: string): typeof noGates {
  return {
    create: "CREATE OR REPLACE",
    variables: `
  leaving record;`,
    ofWrite: `, CASE WHEN x.w ->> 'kind' = 'post' THEN ${schema}.enter_v1(x.w) END AS entered`,
    isOutside: " AND w.entered IS NULL",
    shut: `
  FOR leaving IN ${leaving(schema)} LOOP
    IF leaving.n <> ALL (busy) AND NOT ${schema}.shut_v1(leaving.run, false) THEN
      busy := busy || leaving.n;
    END IF;
  END LOOP;`,
  };
}

export function tryWriteFunctions(schema: string): string {
  return [busyFunction(schema), tryWriteFunction(schema, "CREATE")].join("\n");
}

/** Posts that all go through gates need nothing else. One that waits for a lock holds no gate meanwhile. */
export function tryWritesWithGates(schema: string): string {
  return [busyFunction(schema, "gates"), tryWriteFunction(schema, "CREATE OR REPLACE", tryPosts(schema))].join("\n");
}

/**
 * What several batches may lock is locked in one order. The priorities that an agent has not had are inserted before the batch
 * has any lock: a batch waits for another one that inserts the same priority. A batch that waits for locks then locks the rows of all
 * its runs. A post that could go through a gate is among them: the gate may be shut while the batch waits for something else.
 */
export function tryWritesInOrder(schema: string): string {
  const locks = `
  IF jsonb_path_exists(writes, '$[*].priority') THEN
    INSERT INTO ${schema}.priorities (agent_name, version, priority)
    SELECT DISTINCT w ->> 'agent_name', w ->> 'version', (w ->> 'priority')::smallint FROM jsonb_array_elements(writes) w
    WHERE w ? 'priority' AND NOT EXISTS (SELECT 1 FROM ${schema}.priorities p WHERE p.agent_name = w ->> 'agent_name'
      AND p.version = w ->> 'version' AND p.priority = (w ->> 'priority')::smallint)
    ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING;
  END IF;
  IF its_wait_ms IS NOT NULL THEN
    PERFORM ${schema}.lock_runs_v1(writes);
  END IF;`;
  return [lockRuns(schema), tryWriteFunction(schema, "CREATE OR REPLACE", locks + tryPosts(schema), "write_v2")].join(
    "\n",
  );
}

function lockRuns(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.lock_runs_v1(writes jsonb) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $function$
BEGIN
  PERFORM 1 FROM ${lockedRuns(schema)};
END $function$;`;
}

function tryPosts(schema: string): string {
  return `
  ids := ARRAY(SELECT ${schema}.enter_v1(w) FROM jsonb_array_elements(writes) w
    WHERE its_wait_ms IS NULL AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements(writes) o WHERE o ->> 'kind' <> 'post'));
  IF cardinality(ids) > 0 AND array_position(ids, NULL) IS NULL THEN
    INSERT INTO ${schema}.inbox (run, count, lines, is_cancel, feed)
    SELECT ids[x.n], (x.w ->> 'count')::integer, x.w ->> 'lines', false, x.w -> 'feed'
    FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n) ORDER BY x.n;
    RETURN (SELECT jsonb_agg(CASE WHEN w ? 'tells' THEN '{"inbox": null}'::jsonb END) FROM jsonb_array_elements(writes) w);
  END IF;`;
}

/**
 * Makes the writes of a batch. With its_wait_ms it waits so long for each lock; without, writes that lack a lock are answered
 * "busy". Else the answer is that of `write`, which makes them. `posts`: what is tried first.
 */
function tryWriteFunction(
  schema: string,
  create: "CREATE" | "CREATE OR REPLACE",
  posts = "",
  write = "write_v1",
): string {
  const variables =
    posts === ""
      ? ""
      : `
  ids bigint[];`;
  return `
${create} FUNCTION ${schema}.try_write_v1(
  writes jsonb, given_time float8, its_shard integer, is_fed boolean, its_wait_ms integer
) RETURNS jsonb LANGUAGE plpgsql AS $function$
DECLARE
  busy bigint[] := '{}';${variables}
  places bigint[];
  rest jsonb := writes;
  answers jsonb := '[]';
BEGIN
  PERFORM set_config('lock_timeout', coalesce(its_wait_ms, ${UNEXPECTED_MS})::text, true);${posts}
  IF its_wait_ms IS NULL THEN
    busy := ${schema}.busy_v1(writes);
  END IF;
  IF busy <> '{}' THEN
    SELECT jsonb_agg(x.w ORDER BY x.n), array_agg(x.n ORDER BY x.n) INTO rest, places
    FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n) WHERE x.n <> ALL (busy);
  END IF;
  IF rest IS NOT NULL THEN
    IF is_fed THEN
      answers := ${schema}.write_fed_v1(rest, given_time, its_shard);
    ELSE
      answers := ${schema}.${write}(rest, given_time, its_shard);
    END IF;
  END IF;
  IF busy = '{}' THEN
    RETURN answers;
  END IF;
  IF jsonb_typeof(answers) = 'object' THEN
    RETURN jsonb_build_object('wanted', (
      SELECT jsonb_agg(places[n::integer + 1] - 1) FROM jsonb_array_elements_text(answers -> 'wanted') n));
  END IF;
  RETURN (
    SELECT jsonb_agg(coalesce(answers -> (array_position(places, n) - 1), '"busy"') ORDER BY n)
    FROM generate_series(1, jsonb_array_length(writes)) n);
END $function$;`;
}
