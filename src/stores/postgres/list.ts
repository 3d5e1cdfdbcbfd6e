import type { RunQuery } from "../../core/run-query.ts";
import { isFinal } from "../../core/state.ts";
import type { RunStatus } from "../../protocol/run.ts";
import type { Attempt } from "../examined.ts";
import { hasTime } from "../examined.ts";
import { countable, toText } from "../stored-rows.ts";
import type { PostgresValue } from "./connection.ts";

/** A statement with the values of its parameters. */
export interface Statement {
  readonly sql: string;
  readonly values: readonly PostgresValue[];
}

/** The parameters of a statement that is being written. */
export class Parameters {
  readonly values: PostgresValue[] = [];

  /** Adds a text, and returns how the statement refers to it. */
  text(value: string): string {
    return `$${this.values.push(value)}::text`;
  }

  number(value: number): string {
    return `$${this.values.push(value)}::float8`;
  }

  count(value: number): string {
    return `$${this.values.push(countable(value))}::bigint`;
  }
}

/** An index that may answer a query. */
interface Source {
  /** The runs that it selects, at most so many, with their ids as `by_id`, in an order of its own. */
  readonly select: (parameters: Parameters, most: number) => string;
  /** Whether its order is that of the page: then it is read no further than to the end of the page. */
  readonly isOrdered: boolean;
  /** The name of the label that all of its runs have. */
  readonly label?: string;
}

/**
 * The indexes that may answer a query, the one that selects the fewest runs most likely first. A session and a parent have
 * few runs: these are all read.
 */
export function sourcesOf(schema: string, query: RunQuery): readonly Source[] {
  const { session_id, creator, parents, statuses, labels = {} } = query;
  const isTimed = hasTime(query);
  const tenant = toText(query.tenant);
  /** The runs with a condition, those that were created last first. */
  const newest = (where: (parameters: Parameters) => string): Source => ({
    select: (parameters, most) =>
      `SELECT r.*, r.id AS by_id FROM ${schema}.runs r WHERE ${where(parameters)}${beforeLast(schema, query, "r.id", parameters)}
       ORDER BY r.id DESC ${limitOf(most)}`,
    isOrdered: !isTimed,
  });
  if (session_id !== undefined || parents !== undefined)
    return [newest((parameters) => `${isOf(tenant, parameters)}${inFamily(schema, query, parameters)}`)];
  const sources: Source[] = Object.entries(labels).map((label) => withLabel(schema, query, label));
  if (creator !== undefined)
    sources.push(
      newest((parameters) => `${isOf(tenant, parameters)} AND r.creator = ${parameters.text(toText(creator))}`),
    );
  if (statuses !== undefined && !statuses.includes("completed")) {
    const parts = indexesOf(statuses).map((condition) =>
      newest((parameters) => `${condition} AND ${isOf(tenant, parameters)}`),
    );
    sources.push({
      select: (parameters, most) =>
        `SELECT r.* FROM (${parts.map(({ select }) => `(${select(parameters, most)})`).join(" UNION ALL ")}) r
         ORDER BY r.by_id DESC ${limitOf(most)}`,
      isOrdered: !isTimed,
    });
  }
  if (isTimed) return [...sources, byTime(schema, query)];
  if (sources.length > 0) return sources;
  if (tenant !== "") return [newest((parameters) => isOf(tenant, parameters))];
  // The tenant '' has all runs of an application without tenants: they are read from the table. In another application
  // it has few of them, which no index has in the order of their ids.
  return [newest(() => "true"), byTime(schema, query)];
}

/**
 * The statement that selects the page of a query, in its order, from at most so many runs of an index, with the `offset`
 * in front of the page. A row whose `beyond` is true is none of it: the page is not answered by so many runs.
 */
export function selectPage(schema: string, query: RunQuery, { source, most }: Attempt<Source>): Statement {
  const parameters = new Parameters();
  const isBounded = Number.isFinite(most);
  const isBeyond = isBounded ? `r.number > ${most}` : "false";
  const seen = source.select(parameters, most + 1);
  const conditions = conditionsOf(schema, query, source, parameters);
  const order = hasTime(query) ? "created_at DESC, id DESC" : "by_id DESC";
  // The order of the source is repeated, so that the planner knows that nothing is left to sort.
  const ofSource = source.isOrdered ? `ORDER BY ${order}` : "";
  const sql = `
    SELECT r.*, ${isBeyond} AS beyond
    FROM (SELECT s.*, row_number() OVER (${ofSource}) AS number FROM (${seen}) s ${ofSource}) r
    WHERE ${isBeyond} OR (${conditions.join(" AND ")})
    ORDER BY ${source.isOrdered || !isBounded ? order : `${isBeyond} DESC, ${order}`}
    LIMIT ${parameters.count(query.limit + query.offset)}`;
  return { sql, values: parameters.values };
}

function limitOf(most: number): string {
  return Number.isFinite(most) ? `LIMIT ${most}` : "";
}

/** An index leaves out the tenant of applications that have none. */
function isOf(tenant: string, parameters: Parameters): string {
  return `r.tenant = ${parameters.text(tenant)}${tenant === "" ? "" : " AND r.tenant <> ''"}`;
}

/** The runs with a label. The name of a run's place is that of the index, so that its order is known. */
function withLabel(schema: string, query: RunQuery, [name, value]: readonly [string, string]): Source {
  const select = (parameters: Parameters, most: number): string => `
    SELECT r.*, l.run AS by_id FROM (
      SELECT l.run FROM ${schema}.labels l WHERE l.tenant = ${parameters.text(toText(query.tenant))}
      AND l.name = ${parameters.text(toText(name))} AND l.value = ${parameters.text(toText(value))}${beforeLast(schema, query, "l.run", parameters)}
      ORDER BY l.run DESC ${limitOf(most)}
    ) l CROSS JOIN LATERAL (SELECT * FROM ${schema}.runs r WHERE r.id = l.run OFFSET 0) r`;
  return { select, isOrdered: !hasTime(query), label: name };
}

/** The runs of a time. Without one it selects all runs of the tenant. */
function byTime(schema: string, query: RunQuery): Source {
  const { createdAfter, createdBefore } = query;
  const isTimed = hasTime(query);
  const select = (parameters: Parameters, most: number): string => {
    const found = [`r.tenant = ${parameters.text(toText(query.tenant))}`, "r.created_at > '-Infinity'"];
    if (createdAfter !== undefined) found.push(`r.created_at >= ${parameters.number(createdAfter)}`);
    if (createdBefore !== undefined) found.push(`r.created_at < ${parameters.number(createdBefore)}`);
    const before = isTimed ? "" : beforeLast(schema, query, "r.id", parameters);
    return `SELECT r.*, r.id AS by_id FROM ${schema}.runs r WHERE ${found.join(" AND ")}${before}${behindLast(schema, query, parameters)}
      ORDER BY r.created_at DESC, r.id DESC ${limitOf(most)}`;
  };
  return { select, isOrdered: isTimed };
}

/** The conditions of the indexes of runs that have not completed. */
function indexesOf(statuses: readonly RunStatus[]): readonly string[] {
  const found = statuses.map((status) => {
    if (isFinal(status)) return `r.finished_at IS NOT NULL AND r.status <> 'completed' AND r.status = '${status}'`;
    return `r.finished_at IS NULL AND r.status ${status === "awaiting" ? "=" : "<>"} 'awaiting'`;
  });
  return [...new Set(found)];
}

/** That a run is in the session, and below one of the parents. */
function inFamily(schema: string, { tenant, session_id, parents }: RunQuery, parameters: Parameters): string {
  const of = parameters.text(toText(tenant));
  let found = "";
  if (session_id !== undefined) {
    const session = parameters.text(toText(session_id));
    found += ` AND r.id IN (
      SELECT s.id FROM ${schema}.runs s WHERE s.tenant = ${of} AND s.session_id = ${session} AND s.session_id <> s.run_id
      UNION ALL
      SELECT s.id FROM ${schema}.runs s WHERE s.tenant = ${of} AND s.run_id = ${session} AND s.session_id = s.run_id)`;
  }
  if (parents !== undefined) {
    const ids = parents.map((id) => parameters.text(toText(id))).join(", ");
    found += ` AND r.id IN (SELECT c.id FROM ${schema}.runs c WHERE c.tenant = ${of} AND c.parent IN (${ids}))`;
  }
  return found;
}

/** That a run was created before the last one of the page before. */
function beforeLast(schema: string, query: RunQuery, column: string, parameters: Parameters): string {
  if (query.after === undefined || hasTime(query)) return "";
  return ` AND ${column} < (${lastRun(schema, query, query.after, "a.id", parameters)})`;
}

/** The same in the order of times. */
function behindLast(schema: string, query: RunQuery, parameters: Parameters): string {
  if (query.after === undefined || !hasTime(query)) return "";
  return ` AND (r.created_at, r.id) < (${lastRun(schema, query, query.after, "a.created_at, a.id", parameters)})`;
}

function lastRun(schema: string, query: RunQuery, after: string, columns: string, parameters: Parameters): string {
  return `SELECT ${columns} FROM ${schema}.runs a
    WHERE a.tenant = ${parameters.text(toText(query.tenant))} AND a.run_id = ${parameters.text(toText(after))}`;
}

/** What is checked for each run that an index selects. */
function conditionsOf(schema: string, query: RunQuery, source: Source, parameters: Parameters): readonly string[] {
  const { agent_name, creator, statuses, labels = {}, roots, createdAfter, createdBefore } = query;
  const found = [`r.tenant = ${parameters.text(toText(query.tenant))}${behindLast(schema, query, parameters)}`];
  if (agent_name !== undefined) found.push(`r.agent_name = ${parameters.text(toText(agent_name))}`);
  if (creator !== undefined) found.push(`r.creator = ${parameters.text(toText(creator))}`);
  if (statuses !== undefined)
    found.push(`r.status IN (${statuses.map((status) => parameters.text(status)).join(", ")})`);
  if (roots === true) found.push("r.parent IS NULL");
  if (createdAfter !== undefined) found.push(`r.created_at >= ${parameters.number(createdAfter)}`);
  if (createdBefore !== undefined) found.push(`r.created_at < ${parameters.number(createdBefore)}`);
  for (const [name, value] of Object.entries(labels)) {
    if (name === source.label) continue;
    found.push(`EXISTS (SELECT 1 FROM ${schema}.labels l WHERE l.run = r.id
      AND l.name = ${parameters.text(toText(name))} AND l.value = ${parameters.text(toText(value))})`);
  }
  return found;
}
