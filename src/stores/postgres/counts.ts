import { COUNTED } from "../../core/ports.ts";
import { BAND_END, BAND_MS, BY_INDEX, duePlace, isDue } from "./line-sql.ts";
import { deadOwners } from "./take-sql.ts";

/** Live runs without an owner. */
const isFree = "r.finished_at IS NULL AND r.owner IS NULL";
/** What they wait for: a permit, an event or a time. */
const IN_LINE = 1;
const FOR_EVENT = 2;
const kind = `(CASE WHEN r.line IS NOT NULL THEN ${IN_LINE} WHEN r.due_at IS NULL THEN ${FOR_EVENT} ELSE 3 END)`;

/** All that has a place by its time, beyond those of every priority. */
const LAST_PLACE = 10 * BAND_MS + BAND_END;

export function waitingRuns(schema: string): string {
  return `
CREATE INDEX IF NOT EXISTS runs_waiting ON ${schema}.runs (agent_name, version, (${kind.replaceAll("r.", "")}), status)
  WHERE finished_at IS NULL AND owner IS NULL;
`;
}

/**
 * The runs without a living owner. Agents and versions are found by jumps in an index from one to the
 * next, and of each at most `COUNTED` runs are read of a kind: so what a count costs does not depend on how many runs wait. The runs
 * of dead owners are all read. What has a place by its time is read by priority: of a priority other than 0 those places are
 * apart from others.
 */
export function backlog(schema: string): string {
  const runs = `${schema}.runs r WHERE`;
  const agent = (more = ""): string =>
    `SELECT r.agent_name, r.version FROM ${runs} ${isFree} ${more} ORDER BY r.agent_name, r.version LIMIT 1`;
  const counted = (from: string, what: string, which: string, order = ""): string => `
    SELECT a.agent_name, a.version, f.runs, f.since, '${what}' AS what FROM ${from} a CROSS JOIN clock c CROSS JOIN LATERAL (
      SELECT count(*) AS runs, min(x.since) FILTER (WHERE x.since > '-Infinity') AS since
      FROM (SELECT r.due_at AS since FROM ${runs} ${which} AND r.agent_name = a.agent_name AND r.version = a.version
        ${order} LIMIT ${COUNTED}) x
    ) f`;
  const placed = (what: string, which: string): string =>
    counted("bands", what, `${isDue} AND ${which}`, `ORDER BY ${duePlace}`);
  const sum = (name: string, what: string): string => `
    least(coalesce(sum(f.runs) FILTER (WHERE f.what = '${what}'), 0), ${COUNTED})::integer AS ${name}`;
  return `
CREATE OR REPLACE FUNCTION ${schema}.backlog_v1(given_time float8) RETURNS TABLE (
  agent_name text, version text, due integer, since float8, waiting integer, blocked integer
) LANGUAGE sql STABLE ${BY_INDEX} AS $function$
  WITH RECURSIVE clock (now) AS MATERIALIZED (
    SELECT coalesce(given_time, floor(extract(epoch FROM now()) * 1000)::float8)
  ),
  agents (agent_name, version) AS (
    (${agent()})
    UNION ALL
    SELECT n.agent_name, n.version FROM agents a CROSS JOIN LATERAL (
      ${agent("AND (r.agent_name, r.version) > (a.agent_name, a.version)")}
    ) n
  ),
  bands (agent_name, version, band) AS MATERIALIZED (
    SELECT a.agent_name, a.version, 0::float8 FROM agents a
    UNION ALL SELECT p.agent_name, p.version, p.priority::float8 * ${BAND_MS} FROM agents a
    JOIN ${schema}.priorities p ON p.agent_name = a.agent_name AND p.version = a.version
  ),${deadOwners(schema, "(SELECT now FROM clock)")},
  found (agent_name, version, runs, since, what) AS (${[
    placed("due", `${duePlace} BETWEEN -${BAND_END} - a.band AND c.now - a.band`),
    counted("agents", "due", `${isFree} AND ${kind} = ${IN_LINE}`),
    placed("waiting", `${duePlace} > c.now - a.band AND ${duePlace} <= ${BAND_END} - a.band`),
    counted("agents", "waiting", `${isDue} AND ${duePlace} > ${LAST_PLACE}`, `ORDER BY ${duePlace}`),
    counted("agents", "waiting", `${isFree} AND ${kind} = ${FOR_EVENT}`),
    counted(
      "agents",
      "blocked",
      `${isFree} AND r.line IS NULL AND r.blocked IS NOT NULL AND coalesce(r.due_at, 'Infinity') > c.now`,
    ),
    `
    SELECT r.agent_name, r.version, count(*), min(d.until) FILTER (WHERE d.until > '-Infinity'), 'due'
    FROM dead d JOIN ${schema}.runs r ON r.owner = d.owner WHERE r.finished_at IS NULL AND r.owner IS NOT NULL
    GROUP BY r.agent_name, r.version`,
  ].join(" UNION ALL ")}
  )
  SELECT f.agent_name, f.version,${sum("due", "due")}, min(f.since) FILTER (WHERE f.what = 'due'),${sum("waiting", "waiting")},
    ${sum("blocked", "blocked")}
  FROM found f WHERE f.runs > 0 GROUP BY f.agent_name, f.version;
$function$;
`;
}

/** How many live runs each agent and version has, by status: of each no more than `COUNTED`. */
export function census(schema: string): string {
  const runs = `${schema}.runs r WHERE`;
  const group = (more = ""): string => `SELECT r.agent_name, r.version, ${kind}, r.status FROM ${runs} ${isFree} ${more}
          ORDER BY r.agent_name, r.version, ${kind}, r.status LIMIT 1`;
  return `
CREATE FUNCTION ${schema}.census_v1() RETURNS TABLE (agent_name text, version text, status text, runs integer)
LANGUAGE sql STABLE ${BY_INDEX} AS $function$
  WITH RECURSIVE groups (agent_name, version, kind, status) AS (
    (${group()})
    UNION ALL
    SELECT n.* FROM groups g CROSS JOIN LATERAL (
      ${group(`AND (r.agent_name, r.version, ${kind}, r.status) > (g.agent_name, g.version, g.kind, g.status)`)}
    ) n
  )
  SELECT f.agent_name, f.version, f.status, least(sum(f.runs), ${COUNTED})::integer FROM (
    SELECT g.agent_name, g.version, g.status, (SELECT count(*) FROM (
      SELECT 1 FROM ${runs} ${isFree} AND r.agent_name = g.agent_name AND r.version = g.version AND ${kind} = g.kind
        AND r.status = g.status LIMIT ${COUNTED}) x) AS runs
    FROM groups g
    UNION ALL
    SELECT r.agent_name, r.version, r.status, count(*) FROM ${runs} r.finished_at IS NULL AND r.owner IS NOT NULL
    GROUP BY r.agent_name, r.version, r.status
  ) f GROUP BY f.agent_name, f.version, f.status;
$function$;
`;
}
