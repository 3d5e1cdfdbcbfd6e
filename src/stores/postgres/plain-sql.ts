import { headColumns } from "../stored-rows.ts";

/*
 * Most writes of a large batch need none of the rules of slots, lines, gates, inboxes and sessions. They are made together,
 * with a statement for all creations and one for all appends. What they do not make is made in turn, as any other write: so
 * each condition here may leave out a write, and must not let one in that a rule is for. Runs are made in their order: those
 * behind one that is not plain are made in turn.
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

/** What `write_v2` does before it makes the writes in turn. `made`: the numbers of those that need no turn, from 1 on. */
export function makePlainWrites(schema: string): string {
  return `
  IF jsonb_array_length(writes) >= ${MIN_BATCH} THEN
    made := ${schema}.create_plain_v1(writes) || ${schema}.append_plain_v1(writes);
    counted := ARRAY(SELECT x.w FROM jsonb_array_elements(writes) WITH ORDINALITY x (w, n)
      WHERE x.n = ANY (made) AND x.w ? 'counters' ORDER BY x.n);
  END IF;`;
}

/** The functions. Each answers the numbers of the writes that it has made. */
export function plainWrites(schema: string): string {
  const runs = `${schema}.runs`;
  const head = headColumns.map((name) => `'${name}'`).join(", ");
  return `
CREATE OR REPLACE FUNCTION ${schema}.create_plain_v1(writes jsonb) RETURNS bigint[] LANGUAGE plpgsql AS $function$
DECLARE
  made bigint[];
BEGIN
  WITH given AS MATERIALIZED (
    SELECT x.n, x.w ->> 'lines' AS lines, added.*,
      x.is_alone AND NOT x.w ?| ARRAY['session', 'wake', 'asks', 'labels', 'limits', 'priority', 'fair'] AND added.idempotency_key IS NULL
        AND added.slot = '' AND added.owner IS NOT NULL AND added.finished_at IS NULL AS is_plain
    FROM (${GIVEN}) x CROSS JOIN LATERAL jsonb_populate_record(NULL::${runs}, x.w || (x.w -> 'head')) added
    WHERE x.w ->> 'kind' = 'create'
  ), plain AS MATERIALIZED (
    SELECT * FROM given g WHERE g.n < coalesce((SELECT min(o.n) FROM given o WHERE NOT o.is_plain), 'Infinity'::float8)
  ), added AS (
    INSERT INTO ${runs} (tenant, run_id, agent_name, version, session_id, parent, slot, slot_max, ${headColumns.join(", ")}, position, created_at, creator, plain)
    SELECT p.tenant, p.run_id, p.agent_name, p.version, p.session_id, p.parent, p.slot, p.slot_max,
      ${headColumns.map((name) => `p.${name}`).join(", ")}, p.position, p.created_at, p.creator, p.plain
    FROM plain p ORDER BY p.n ON CONFLICT DO NOTHING RETURNING id, tenant, run_id
  ), logged AS (
    INSERT INTO ${schema}.entries (run, position, lines)
    SELECT a.id, 0, p.lines FROM added a JOIN plain p ON p.tenant = a.tenant AND p.run_id = a.run_id RETURNING run
  )
  SELECT array_agg(p.n) INTO made FROM plain p JOIN added a ON p.tenant = a.tenant AND p.run_id = a.run_id;
  RETURN coalesce(made, '{}');
END $function$;

CREATE OR REPLACE FUNCTION ${schema}.append_plain_v1(writes jsonb) RETURNS bigint[]
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $function$
DECLARE
  made bigint[];
BEGIN
  WITH plain AS MATERIALIZED (
    SELECT x.n, x.tenant, x.run_id, x.w ->> 'lines' AS lines, (x.w ->> 'count')::integer AS count,
      (x.w ->> 'epoch')::integer AS expected_epoch, (x.w ->> 'position')::integer AS position, x.w ->> 'owner' AS expected_owner, h.*
    FROM (${GIVEN}) x CROSS JOIN LATERAL jsonb_to_record(x.w -> 'head') AS h (
      status text, epoch integer, owner text, due_at float8, blocked text, holds_slot boolean, finished_at float8, takeovers integer)
    WHERE x.is_alone AND x.w ->> 'kind' = 'append' AND NOT x.w ?| ARRAY['wake', 'asks'] AND (x.w -> 'head') - ARRAY[${head}] = '{}'
      AND (NOT x.w ? 'session' OR x.w -> 'session' ? 'isLazy' AND NOT EXISTS (SELECT 1 FROM ${schema}.sessions s
        WHERE s.tenant = x.tenant AND s.session_id = x.w -> 'session' ->> 'session_id'))
  ), changed AS (
    UPDATE ${runs} r SET
      status = CASE WHEN r.status = 'cancelling' AND p.finished_at IS NULL THEN r.status ELSE p.status END,
      owner = p.owner, due_at = p.due_at, blocked = p.blocked, holds_slot = p.holds_slot, finished_at = p.finished_at,
      takeovers = p.takeovers, wakes = CASE WHEN p.owner IS NULL THEN 0 ELSE r.wakes END, for_look = r.for_look AND p.owner IS NULL,
      since = NULL, position = r.position + p.count
    FROM plain p
    WHERE r.tenant = p.tenant AND r.run_id = p.run_id AND r.epoch = p.expected_epoch AND r.epoch = p.epoch AND r.position = p.position
      AND r.owner || '' = p.expected_owner AND (p.owner = r.owner || '' OR p.owner IS NULL AND p.finished_at IS NOT NULL AND p.due_at IS NULL)
      AND r.finished_at + 0 IS NULL AND r.arrived = 0 AND r.slot || '' = '' AND r.limits IS NULL AND r.fair IS NULL AND r.line IS NULL AND r.rank IS NULL
      AND coalesce(r.priority, 0) = 0
    RETURNING p.n, r.id, p.position, p.lines
  ), logged AS (
    INSERT INTO ${schema}.entries (run, position, lines) SELECT c.id, c.position, c.lines FROM changed c WHERE c.lines <> '' RETURNING run
  )
  SELECT array_agg(c.n) INTO made FROM changed c;
  RETURN coalesce(made, '{}');
END $function$;`;
}
