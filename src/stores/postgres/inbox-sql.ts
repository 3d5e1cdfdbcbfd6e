import { MOST_ARRIVED } from "../../core/ports.ts";
import { feedWrites } from "./feed.ts";
import { boundOf, gateOf } from "./gate-sql.ts";
import type { Arrivals } from "./line-sql.ts";
import { changeFunction } from "./line-sql.ts";

/*
 * What has arrived for runs with owners. A row is a post; ids are never used again. A post goes either into the inbox of an
 * owner, or into the log: it goes through a gate of the run (`gate-sql.ts`), or locks the row. `arrived` is 1 once something has
 * come under an owner, until the run has none any more, else 0: an owner reads the inbox with each write.
 *
 * While an old transaction is open, the server keeps what was taken and each former state of the row of a run, and would walk
 * all of it at each statement. So no row of the inbox up to `taken_to` is left, and none is looked for there; and only the
 * first post that comes under an owner changes the row of its run.
 *
 * An owner of an earlier release knows no inbox. Its next write finds in the log what has arrived, and is refused as changed,
 * as it was before: then it reads the log, and decides again.
 */

/** After how many more ids the owner makes another gate: it has taken at most so many meanwhile. */
const GATE_IDS = 64;

/** The inbox of a row of `runs` as JSON; null for an empty one. `limit`: at most so many posts. */
export function inboxOf(schema: string, run: string, limit: number | "ALL"): string {
  return `(SELECT jsonb_agg(jsonb_build_array(i.id, i.count, i.lines) ORDER BY i.id) FROM (
      SELECT i.id, i.count, i.lines FROM ${schema}.inbox i WHERE ${isLeftOf(run)} ORDER BY i.id LIMIT ${limit}) i)`;
}

/** Which rows `i` are the inbox of a row of `runs`. */
function isLeftOf(run: string): string {
  return `i.run = ${run}.id AND i.id > ${boundOf(run)}`;
}

/** The first part of an inbox. */
export function firstOf(schema: string, run: string): string {
  return inboxOf(schema, run, MOST_ARRIVED);
}

export function inbox(schema: string): string {
  return [
    `
ALTER TABLE ${schema}.runs ADD COLUMN arrived integer NOT NULL DEFAULT 0, ADD COLUMN taken_to bigint, ADD COLUMN gate bigint;
CREATE TABLE ${schema}.inbox (
  run bigint NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  count integer NOT NULL,
  lines text NOT NULL,
  is_cancel boolean NOT NULL,
  feed jsonb,
  PRIMARY KEY (run, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE OR REPLACE FUNCTION ${schema}.remove_runs_v1(ids bigint[]) RETURNS void LANGUAGE sql AS $function$
  DELETE FROM ${schema}.entries WHERE run = ANY (ids);
  DELETE FROM ${schema}.labels WHERE run = ANY (ids);
  DELETE FROM ${schema}.inbox WHERE run = ANY (ids);
  DELETE FROM ${schema}.runs WHERE id = ANY (ids);
$function$;`,
    // Writes what has arrived for a run to the end of its log: the owner for whom it was leaves it, or is gone. More may come
    // meanwhile if the run has another owner.
    `
CREATE FUNCTION ${schema}.leave_inbox_v1(its_id bigint, clock float8) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
  run ${schema}.runs;
  post record;
  last bigint;
BEGIN
  SELECT * INTO run FROM ${schema}.runs r WHERE r.id = its_id;
  FOR post IN
    WITH taken AS (DELETE FROM ${schema}.inbox i WHERE ${isLeftOf("run")} RETURNING i.*) SELECT * FROM taken t ORDER BY t.id
  LOOP
    INSERT INTO ${schema}.entries (run, position, lines) VALUES (its_id, run.position, post.lines);
    run.position := run.position + post.count;
    IF post.feed IS NOT NULL THEN
      PERFORM ${schema}.tell_feed_v1(run, post.feed, clock);
    END IF;
    last := post.id;
  END LOOP;
  IF last IS NULL AND run.owner IS NOT NULL THEN
    RETURN;
  ELSIF run.owner IS NULL THEN
    run.arrived := 0;
    run.gate := greatest(run.gate, last);
    run.taken_to := run.gate;
  END IF;
  UPDATE ${schema}.runs r SET position = run.position, arrived = run.arrived, taken_to = run.taken_to, gate = run.gate
  WHERE r.id = its_id;
END $function$;`,
    feedWrites(schema),
  ].join("\n");
}

/** A change of a run, whatever it has to do with its inbox. */
export function changes(schema: string): string {
  return changeFunction(schema, arrivals(schema));
}

function arrivals(schema: string): Arrivals {
  const arrive = `INSERT INTO ${schema}.inbox (run, count, lines, is_cancel, feed)
    VALUES (run.id, (w ->> 'count')::integer, w ->> 'lines', coalesce(w ->> 'status', '') = 'cancelling', w -> 'feed');`;
  const arrived = `RETURN CASE WHEN w ? 'tells' THEN '{"inbox": null}'::jsonb END;`;
  return {
    variables: `
  takes bigint[];
  takes_all boolean;
  last_taken bigint;`,
    unlocked: `
  IF kind = 'post' THEN
    run.id := ${schema}.enter_v1(w);
    IF run.id IS NOT NULL THEN
      ${arrive}
      ${arrived}
    END IF;
  END IF;`,
    first: `
  IF w ? 'unless_cancelling' AND run.status = 'cancelling' AND run.finished_at IS NULL THEN
    RETURN '{"conflict": "cancelling"}';
  END IF;
  IF kind = 'post' AND run.owner IS NOT NULL AND run.finished_at IS NULL THEN
    ${arrive}
    next.status := CASE run.status WHEN 'cancelling' THEN run.status ELSE coalesce(w ->> 'status', run.status) END;
    IF run.arrived = 0 OR run.status <> next.status THEN
      UPDATE ${schema}.runs r SET arrived = 1, status = next.status WHERE r.id = run.id;
    END IF;
    ${arrived}
  END IF;
  IF kind = 'append' AND run.arrived > 0 AND NOT w ? 'takes' AND run.finished_at IS NULL THEN
    PERFORM ${schema}.leave_inbox_v1(run.id, clock);
    SELECT * INTO run FROM ${schema}.runs r WHERE r.id = run.id;
  END IF;`,
    checks: `
  takes_all := kind = 'claim' OR coalesce(w -> 'takes' = '"all"', false);
  IF run.arrived > 0 AND kind = 'append' AND NOT takes_all THEN
    takes := ARRAY(SELECT t::bigint FROM jsonb_array_elements_text(w -> 'takes') t);
    IF next.finished_at IS NULL AND next.owner IS NULL AND run.owner IS NOT NULL
      OR next.finished_at IS NOT NULL AND run.status = 'cancelling'
    THEN
      PERFORM 1 FROM ${schema}.inbox i WHERE ${isLeftOf("run")} AND i.id <> ALL (takes)
        AND (next.finished_at IS NULL OR i.is_cancel) LIMIT 1;
      IF FOUND THEN
        RETURN '{"conflict": "arrived"}';
      END IF;
    END IF;
  END IF;
  IF kind <> 'post' AND run.status = 'cancelling' AND next.finished_at IS NULL THEN
    next.status := 'cancelling';
  END IF;`,
    last: `
  IF run.arrived > 0 AND takes_all THEN
    PERFORM ${schema}.leave_inbox_v1(run.id, clock);
  ELSIF run.arrived > 0 THEN
    IF cardinality(takes) > 0 THEN
      WITH taken AS (DELETE FROM ${schema}.inbox i WHERE i.run = run.id AND i.id = ANY (takes) RETURNING i.id)
      SELECT max(t.id) INTO last_taken FROM taken t;
    END IF;
    IF next.owner IS NULL AND next.finished_at IS NULL THEN
      next.gate := greatest(run.gate, last_taken);
      UPDATE ${schema}.runs r SET arrived = 0, taken_to = next.gate, gate = next.gate WHERE r.id = run.id;
    ELSIF last_taken >= ${gateOf("run")} + ${GATE_IDS} AND (
      ${boundOf("run")} = ${gateOf("run")} OR pg_try_advisory_xact_lock(${schema}.gate_lock_v1(run.id, ${boundOf("run")})))
    THEN
      UPDATE ${schema}.runs r SET taken_to = ${gateOf("run")}, gate = last_taken WHERE r.id = run.id
        AND NOT EXISTS (SELECT 1 FROM ${schema}.inbox i WHERE ${isLeftOf("run")} AND i.id <= ${gateOf("run")});
    END IF;
  END IF;`,
    answer: `
  IF kind = 'append' AND w ? 'takes' AND next.arrived > 0 AND next.owner IS NOT NULL THEN
    RETURN jsonb_build_object('inbox', ${firstOf(schema, "next")});
  END IF;`,
  };
}
