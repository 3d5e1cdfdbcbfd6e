import type { NewPause, Pause } from "../../core/pauses.ts";
import { ASIDE_MS, pauseKey } from "../../core/pauses.ts";
import { toJson, toText } from "../stored-rows.ts";
import { BAND_END, BY_INDEX, bandOf, duePlace, isDue, priorityOf } from "./line-sql.ts";
import { markedText } from "./writes.ts";

/** The runs that a pause of their tenant has set aside. They are the last in their index of due runs. */
const isAside = `r.finished_at IS NULL AND r.owner IS NULL AND r.due_at >= ${ASIDE_MS}`;
/** The same of a run that is found by its id: written so that no index of runs without an owner has the condition. */
const isStillAside = `r.finished_at IS NULL AND coalesce(r.owner, '') = '' AND r.due_at >= ${ASIDE_MS}`;

/** How many due runs of each agent are looked at in one call, to be set aside. */
const MAX_ASIDE = 1_000;

/** Whether a due run may be set aside. A process that takes one with a slot or a priority sets it aside. */
export function mayWait(run: string): string {
  return `${run}.slot = '' AND ${priorityOf(run)} = 0 AND ${run}.status || '' <> 'cancelling'
    AND (${run}.plain IS NULL OR ${run}.status = 'created' AND ${run}.takeovers = 0)`;
}

/** The tenants of which pauses cover the runs of an agent, as an array. */
export function tenantsPaused(schema: string, agentName: string, version: string): string {
  return `ARRAY(SELECT p.tenant FROM ${schema}.pauses p WHERE p.tenant IS NOT NULL
            AND coalesce(p.agent_name, ${agentName}) = ${agentName} AND coalesce(p.version, ${version}) = ${version})`;
}

export function pauses(schema: string): string {
  return `
CREATE TABLE ${schema}.pauses (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key text COLLATE "C" NOT NULL UNIQUE,
  runs text NOT NULL,
  agent_name text COLLATE "C",
  version text COLLATE "C",
  tenant text COLLATE "C",
  at float8 NOT NULL,
  by text NOT NULL
);
CREATE INDEX runs_aside ON ${schema}.runs (tenant, agent_name, version, due_at, id)
  WHERE finished_at IS NULL AND owner IS NULL AND due_at >= ${ASIDE_MS};
`;
}

/**
 * The way back for runs that a pause has set aside. A run that comes back stands in the index of due runs by the
 * time at which it came there, and by its place among those that come back with it.
 */
export function comeBack(schema: string): string {
  const group = (more: string): string => `SELECT r.tenant, r.agent_name, r.version FROM ${schema}.runs r
        WHERE ${isAside} ${more} ORDER BY r.tenant, r.agent_name, r.version LIMIT 1`;
  return `
CREATE OR REPLACE FUNCTION ${schema}.come_back_v1(most integer, given_time float8) RETURNS integer LANGUAGE plpgsql
${BY_INDEX} AS $function$
DECLARE
  clock float8 := coalesce(given_time, floor(extract(epoch FROM now()) * 1000));
  found_runs bigint[];
  back integer;
  run ${schema}.runs;
BEGIN
  found_runs := ARRAY(
    WITH RECURSIVE groups (tenant, agent_name, version) AS (
      (${group("")})
      UNION ALL
      SELECT n.tenant, n.agent_name, n.version FROM groups g CROSS JOIN LATERAL (
        ${group("AND (r.tenant, r.agent_name, r.version) > (g.tenant, g.agent_name, g.version)")}
      ) n
    )
    SELECT y.id FROM (SELECT x.id, x.due_at FROM groups g CROSS JOIN LATERAL (
      SELECT r.id, r.due_at FROM ${schema}.runs r
      WHERE ${isAside} AND r.tenant = g.tenant AND r.agent_name = g.agent_name AND r.version = g.version
      ORDER BY r.due_at, r.id LIMIT most
    ) x
    WHERE NOT EXISTS (
      SELECT 1 FROM ${schema}.pauses p WHERE p.tenant = g.tenant
        AND (p.agent_name IS NULL OR p.agent_name = g.agent_name) AND (p.version IS NULL OR p.version = g.version))
    LIMIT most) y ORDER BY y.due_at, y.id);
  WITH locked AS (
    SELECT r.id FROM ${schema}.runs r WHERE r.id = ANY (found_runs) AND ${isStillAside} FOR NO KEY UPDATE SKIP LOCKED
  )
  UPDATE ${schema}.runs r SET
    due_at = least(r.due_at - ${ASIDE_MS}, clock),
    since = clock - ${bandOf("r")}
      - (cardinality(found_runs) - array_position(found_runs, r.id)) / CASE WHEN r.priority <> 0 THEN 64.0 ELSE 1024.0 END
  FROM locked l WHERE r.id = l.id AND r.fair IS NULL;
  GET DIAGNOSTICS back = ROW_COUNT;
  FOR run IN
    SELECT r.* FROM ${schema}.runs r WHERE r.id = ANY (found_runs) AND ${isStillAside} ORDER BY array_position(found_runs, r.id)
    FOR NO KEY UPDATE SKIP LOCKED
  LOOP
    run.due_at := least(run.due_at - ${ASIDE_MS}, clock);
    run.since := clock - ${bandOf("run")} - (cardinality(found_runs) - array_position(found_runs, run.id)) / 64.0;
    IF NOT run.for_look AND (run.slot = '' OR NOT run.holds_slot) AND run.status <> 'cancelling' AND run.blocked IS NULL THEN
      run := ${schema}.behind_v1(run, clock);
    END IF;
    UPDATE ${schema}.runs r SET due_at = run.due_at, since = run.since, line = run.line, rank = run.rank WHERE r.id = run.id;
    back := back + 1;
  END LOOP;
  RETURN back;
END $function$;
`;
}

/**
 * Sets the first due runs of agents aside that pauses of their tenants cover, each with its own time: a part of them in each
 * call, and `take` leaves the others out.
 */
export function setAside(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.set_aside_v1(agents jsonb, clock float8) RETURNS void LANGUAGE plpgsql
${BY_INDEX} AS $function$
BEGIN
  UPDATE ${schema}.runs r SET due_at = r.due_at + ${ASIDE_MS}, since = NULL WHERE r.id = ANY (ARRAY(
    SELECT l.id FROM ${schema}.runs l WHERE l.id = ANY (ARRAY(
      SELECT x.id FROM (
        SELECT a ->> 0 AS agent_name, a ->> 1 AS version, ${tenantsPaused(schema, "a ->> 0", "a ->> 1")} AS paused
        FROM jsonb_array_elements(agents) a
      ) w CROSS JOIN LATERAL (
        SELECT r.id, r.tenant FROM ${schema}.runs r WHERE ${isDue} AND r.agent_name = w.agent_name AND r.version = w.version
          AND ${duePlace} BETWEEN -${BAND_END} AND clock ORDER BY ${duePlace}, r.id LIMIT ${MAX_ASIDE}
      ) x WHERE x.tenant = ANY (w.paused)
    )) AND l.finished_at IS NULL AND coalesce(l.owner, '') = '' AND l.line IS NULL AND l.due_at <= clock AND ${mayWait("l")}
    FOR NO KEY UPDATE SKIP LOCKED));
END $function$;
`;
}

/** The columns of a pause. */
export function pauseValues(pause: NewPause): readonly (string | null)[] {
  const { agent_name, version, tenant } = pause;
  return [
    pauseKey(pause),
    toJson(pause),
    agent_name === undefined ? null : toText(agent_name),
    version === undefined ? null : markedText(version),
    tenant === undefined ? null : toText(tenant),
  ];
}

/** All pauses as one text: the JSON of a list of triples, the oldest first. */
export function selectPauses(schema: string): string {
  return `SELECT coalesce(jsonb_agg(jsonb_build_array(p.runs, p.at, p.by) ORDER BY p.id), '[]')::text FROM ${schema}.pauses p`;
}

/** The pauses in such a text. */
export function pausesIn(text: unknown): readonly Pause[] {
  const found = JSON.parse(String(text)) as readonly (readonly [pause: string, at: number, by: string])[];
  return found.map(([pause, at, by]) => {
    return { ...(JSON.parse(pause) as NewPause), at, by: JSON.parse(by) as Pause["by"] };
  });
}
