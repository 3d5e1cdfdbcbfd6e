import type { RunQuery } from "../../core/run-query.ts";
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

/**
 * The statement that selects the page of a query from the runs `r`, in its order. No list in it is empty. The
 * runs of a time are in the order of their times.
 */
export function selectPage(schema: string, query: RunQuery): Statement {
  const parameters = new Parameters();
  const runs = `${schema}.runs`;
  const isTimed = query.createdAfter !== undefined || query.createdBefore !== undefined;
  const conditions = conditionsOf(schema, query, parameters, isTimed);
  const order = isTimed ? "r.created_at DESC, r.id DESC" : "r.id DESC";
  const limit = parameters.count(query.limit);
  const offset = parameters.count(query.offset);
  const select = (more: readonly string[]): string =>
    `SELECT r.* FROM ${runs} r WHERE ${[...conditions, ...more].join(" AND ")}`;
  const parts = statusesOf(query, parameters);
  const [only = []] = parts;
  const all =
    parts.length <= 1
      ? select(only)
      : `SELECT r.* FROM (${parts.map((part) => `(${select(part)} ORDER BY ${order} LIMIT ${limit} + ${offset})`).join(" UNION ALL ")}) r`;
  return { sql: `${all} ORDER BY ${order} LIMIT ${limit} OFFSET ${offset}`, values: parameters.values };
}

/** The conditions on the status. Runs that have not ended are in two indexes, each of which is read on its own. */
function statusesOf({ statuses }: RunQuery, parameters: Parameters): readonly (readonly string[])[] {
  if (statuses === undefined) return [];
  const among = (some: readonly string[]): string =>
    `r.status IN (${some.map((status) => parameters.text(status)).join(", ")})`;
  const ended = new Set<string>(["completed", "failed", "cancelled"]);
  if (statuses.some((status) => ended.has(status))) return [[among(statuses)]];
  const executing = statuses.filter((status) => status !== "awaiting");
  const parts: string[][] = [];
  if (executing.length < statuses.length) parts.push(["r.finished_at IS NULL", "r.status = 'awaiting'"]);
  if (executing.length > 0) parts.push(["r.finished_at IS NULL", "r.status <> 'awaiting'", among(executing)]);
  return parts;
}

function conditionsOf(schema: string, query: RunQuery, parameters: Parameters, isTimed: boolean): readonly string[] {
  const { agent_name, session_id, creator, labels = {}, parents, roots, after, createdAfter, createdBefore } = query;
  const tenant = parameters.text(toText(query.tenant));
  const found = [`r.tenant = ${tenant}`];
  if (isTimed) found.push("r.created_at > '-Infinity'");
  // An index leaves out the tenant of applications that have none.
  if (query.tenant !== "") found.push("r.tenant <> ''");
  if (session_id !== undefined) {
    const session = parameters.text(toText(session_id));
    found.push(`r.id IN (
      SELECT s.id FROM ${schema}.runs s WHERE s.tenant = ${tenant} AND s.session_id = ${session} AND s.session_id <> s.run_id
      UNION ALL
      SELECT s.id FROM ${schema}.runs s WHERE s.tenant = ${tenant} AND s.run_id = ${session} AND s.session_id = s.run_id)`);
  }
  if (agent_name !== undefined) found.push(`r.agent_name = ${parameters.text(toText(agent_name))}`);
  if (creator !== undefined) found.push(`r.creator = ${parameters.text(toText(creator))}`);
  if (parents !== undefined) {
    const ids = parents.map((id) => parameters.text(toText(id))).join(", ");
    found.push(`r.id IN (SELECT c.id FROM ${schema}.runs c WHERE c.tenant = ${tenant} AND c.parent IN (${ids}))`);
  }
  if (roots === true) found.push("r.parent IS NULL");
  for (const [name, value] of Object.entries(labels)) {
    found.push(`r.id IN (SELECT l.run FROM ${schema}.labels l WHERE l.tenant = ${tenant}
      AND l.name = ${parameters.text(toText(name))} AND l.value = ${parameters.text(toText(value))})`);
  }
  if (createdAfter !== undefined) found.push(`r.created_at >= ${parameters.number(createdAfter)}`);
  if (createdBefore !== undefined) found.push(`r.created_at < ${parameters.number(createdBefore)}`);
  if (after !== undefined) {
    const columns = (table: string): string => (isTimed ? `${table}.created_at, ${table}.id` : `${table}.id`);
    const last = `SELECT ${columns("a")} FROM ${schema}.runs a WHERE a.tenant = ${tenant} AND a.run_id = ${parameters.text(toText(after))}`;
    found.push(isTimed ? `(${columns("r")}) < (${last})` : `${columns("r")} < (${last})`);
  }
  return found;
}
