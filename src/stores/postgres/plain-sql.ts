import { headColumns, insertedColumns } from "../stored-rows.ts";
import { STALE_MS } from "./line-sql.ts";

/*
 * Most writes of a large batch need none of the rules of slots, lines, gates, inboxes and sessions. They are made together,
 * with a statement for all creations, one for all appends, and one for all posts. What they do not make is made in turn, as
 * any other write: so each condition here may leave out a write, and must not let one in that a rule is for. Runs are made in
 * their order: those behind one that is not plain are made in turn.
 */

/** From how many writes on the plain ones of a batch are made together. */
const MIN_BATCH = 4;

/** The writes of a batch. `is_alone`: no other write of it changes or wakes the run. */
const GIVEN = `SELECT k.n, k.w, k.tenant, k.run_id, k.writes = 1 AS is_alone FROM (
      SELECT i.n, i.w, i.tenant, i.run_id, count(*) OVER (PARTITION BY i.run_id, i.tenant) AS writes FROM (
        SELECT o.n, o.w, o.w ->> 'tenant' AS tenant, o.w ->> 'run_id' AS run_id FROM jsonb_array_elements(writes) WITH ORDINALITY o (w, n)
        UNION ALL SELECT NULL, NULL, o.w -> 'wake' ->> 'tenant', o.w -> 'wake' ->> 'run_id' FROM jsonb_array_elements(writes) o (w) WHERE o.w ? 'wake'
      ) i
    ) k WHERE k.n IS NOT NULL`;

/** The columns of a head. */
const HEAD = `h (status text, epoch integer, owner text, due_at float8, blocked text, holds_slot boolean, finished_at float8, takeovers integer)`;

/** Where a run without an owner stands from now on: see `sinceOf`. */
const SINCE = `CASE WHEN p.owner IS NULL AND p.due_at < clock - ${STALE_MS} THEN clock END`;

/** What `write_v2` does before it makes the writes in turn. `made`: the numbers of those that need no turn, from 1 on. */
export function makePlainWrites(schema: string): string {
  return `
  IF jsonb_array_length(writes) >= ${MIN_BATCH} THEN
    IF jsonb_path_exists(writes, '$[*] ? (@.kind == "create")') THEN
      made := ${schema}.create_plain_v2(writes, late);
    END IF;
    IF jsonb_path_exists(writes, '$[*] ? (@.kind == "append")') THEN
      made := made || ${schema}.append_plain_v2(writes, late);
    END IF;
    IF jsonb_path_exists(writes, '$[*] ? (@.kind == "post")') THEN
      made := made || ${schema}.post_plain_v2(writes, late);
    END IF;
    counted := ARRAY(SELECT x.w FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
      WHERE x.n = ANY (made) AND x.w ? 'counters' ORDER BY x.n);
  END IF;`;
}

/** Whether a write changes no session. A run's own session is made only when another run joins it: it has to be missing. */
function leavesSession(schema: string): string {
  return `(NOT x.w ? 'session' OR x.w -> 'session' ? 'isLazy' AND NOT x.w -> 'session' ? 'onlyOf' AND NOT EXISTS (
        SELECT 1 FROM ${schema}.sessions s WHERE s.tenant = x.tenant AND s.session_id = x.w -> 'session' ->> 'session_id'))`;
}

/**
 * The functions. Each answers the numbers of the writes that it has made. An append is plain if the run keeps its owner, gets
 * one, ends under it, or leaves it without having been woken. A post is plain if no process owns the run. Fields are read one by
 * one: to make a whole row of a write takes as long as to insert it. Rows are joined by hashes: the server takes their lists for
 * short.
 */
export function plainWrites(schema: string): string {
  const runs = `${schema}.runs`;
  const names = `ARRAY[${headColumns.map((name) => `'${name}'`).join(", ")}]`;
  const hasOnlyHead = `x.w -> 'head' ?& ${names} AND (x.w -> 'head') - ${names} = '{}'`;
  const ofRun = [...insertedColumns, "creator", "plain"];
  return `
CREATE OR REPLACE FUNCTION ${schema}.create_plain_v2(writes jsonb, clock float8) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_nestloop = off AS $function$
DECLARE
  made bigint[];
BEGIN
  WITH given AS MATERIALIZED (
    SELECT x.n, x.tenant, x.run_id, x.w ->> 'agent_name' AS agent_name, x.w ->> 'version' AS version,
      x.w ->> 'session_id' AS session_id, x.w ->> 'parent' AS parent, x.w ->> 'idempotency_key' AS idempotency_key, x.w ->> 'slot' AS slot, (x.w ->> 'slot_max')::float8 AS slot_max,
      (x.w ->> 'position')::integer AS position, (x.w ->> 'created_at')::float8 AS created_at, x.w ->> 'creator' AS creator,
      (x.w ->> 'plain')::boolean AS plain, x.w ->> 'lines' AS lines, h.*,
      x.is_alone AND NOT x.w ?| ARRAY['wake', 'asks', 'labels', 'limits', 'priority', 'fair'] AND x.w ->> 'idempotency_key' IS NULL
        AND x.w ->> 'slot' = '' AND ${hasOnlyHead} AND ${leavesSession(schema)} AS is_plain
    FROM (${GIVEN}) x CROSS JOIN LATERAL jsonb_to_record(x.w -> 'head') AS ${HEAD}
    WHERE x.w ->> 'kind' = 'create'
  ), plain AS MATERIALIZED (
    SELECT * FROM given g WHERE g.n < coalesce((SELECT min(o.n) FROM given o WHERE o.is_plain IS NOT TRUE), 'Infinity'::float8)
  ), added AS (
    INSERT INTO ${runs} (${ofRun.join(", ")}, since)
    SELECT ${ofRun.map((name) => `p.${name}`).join(", ")}, ${SINCE}
    FROM plain p ORDER BY p.n ON CONFLICT DO NOTHING RETURNING id, tenant, run_id
  ), logged AS (
    INSERT INTO ${schema}.entries (run, position, lines)
    SELECT a.id, 0, p.lines FROM added a JOIN plain p ON p.tenant = a.tenant AND p.run_id = a.run_id RETURNING run
  )
  SELECT array_agg(p.n) INTO made FROM plain p JOIN added a ON p.tenant = a.tenant AND p.run_id = a.run_id;
  RETURN coalesce(made, '{}');
END $function$;

${plainChanges(
  schema,
  "append_plain_v2",
  `SELECT x.n, x.tenant, x.run_id, x.w ->> 'lines' AS lines, (x.w ->> 'count')::integer AS count,
      (x.w ->> 'epoch')::integer AS expected_epoch, (x.w ->> 'position')::integer AS position, x.w ->> 'owner' AS expected_owner,
      (x.w ->> 'wakes')::integer AS expected_wakes, h.*
    FROM (${GIVEN}) x CROSS JOIN LATERAL jsonb_to_record(x.w -> 'head') AS ${HEAD}
    WHERE x.is_alone AND x.w ->> 'kind' = 'append' AND x.w ? 'owner' AND NOT x.w ?| ARRAY['wake', 'asks']
      AND ${hasOnlyHead} AND ${leavesSession(schema)}`,
  `status = CASE WHEN r.status = 'cancelling' AND p.finished_at IS NULL THEN r.status ELSE p.status END,
      epoch = p.epoch, owner = p.owner, due_at = p.due_at, blocked = p.blocked, holds_slot = p.holds_slot, finished_at = p.finished_at,
      takeovers = p.takeovers, wakes = CASE WHEN p.owner = r.owner THEN r.wakes ELSE 0 END, for_look = r.for_look AND p.owner IS NULL,
      since = ${SINCE}`,
  `r.epoch = p.expected_epoch AND r.position = p.position
      AND r.owner || '' IS NOT DISTINCT FROM p.expected_owner AND CASE
        WHEN p.owner IS NOT NULL THEN p.finished_at IS NULL
        ELSE p.expected_owner IS NOT NULL AND (p.finished_at IS NOT NULL OR r.wakes = p.expected_wakes) END`,
)}
${plainChanges(
  schema,
  "post_plain_v2",
  `SELECT x.n, x.tenant, x.run_id, x.w ->> 'lines' AS lines, (x.w ->> 'count')::integer AS count, x.w ->> 'due' AS due,
      x.w ? 'unless_cancelling' AS unless_cancelling
    FROM (${GIVEN}) x WHERE x.is_alone AND x.w ->> 'kind' = 'post' AND NOT x.w ?| ARRAY['status', 'unblocks']`,
  `due_at = CASE WHEN p.due IS NULL OR r.blocked IS NOT NULL THEN r.due_at ELSE least(r.due_at, clock) END,
      since = CASE WHEN p.due IS NULL OR r.blocked IS NOT NULL OR r.due_at <= clock THEN r.since END,
      for_look = r.for_look OR coalesce(p.due = 'look', false) AND r.blocked IS NULL`,
  `r.owner || '' IS NULL AND NOT (p.unless_cancelling AND r.status = 'cancelling')`,
)}`;
}

/**
 * A function that makes writes to runs which exist. `plain`: what it knows of each of them. `set` and `where`: how it changes
 * a run `r` by a write `p`, and for which runs.
 */
function plainChanges(schema: string, name: string, plain: string, set: string, where: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.${name}(writes jsonb, clock float8) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $function$
DECLARE
  made bigint[];
BEGIN
  WITH plain AS MATERIALIZED (
    ${plain}
  ), changed AS (
    UPDATE ${schema}.runs r SET ${set}, position = r.position + p.count
    FROM plain p
    WHERE r.tenant = p.tenant AND r.run_id = p.run_id AND ${where}
      AND r.finished_at + 0 IS NULL AND r.arrived = 0 AND r.slot || '' = '' AND r.limits IS NULL AND r.fair IS NULL AND r.line IS NULL AND r.rank IS NULL
      AND coalesce(r.priority, 0) = 0
    RETURNING p.n, r.id, r.position - p.count AS position, p.lines
  ), logged AS (
    INSERT INTO ${schema}.entries (run, position, lines) SELECT c.id, c.position, c.lines FROM changed c WHERE c.lines <> '' RETURNING run
  )
  SELECT array_agg(c.n) INTO made FROM changed c;
  RETURN coalesce(made, '{}');
END $function$;`;
}
