import type { RunQuery } from "../../core/run-query.ts";
import { isFinal } from "../../core/state.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { attemptsOf, hasTime, tooManyExamined } from "../examined.ts";
import { countable, toText } from "../stored-rows.ts";
import type { Connection, SqliteValue } from "./database.ts";

/*
 * Which runs a list shows. An index gives runs, and the other conditions are checked for each of these.
 */

/** A piece of a statement, with the values of its placeholders in their order. */
export interface Clause {
  readonly sql: string;
  readonly values: readonly SqliteValue[];
}

/** An index that may answer a query. */
interface Source {
  /** The runs that it selects, at most so many, in an order of its own. */
  readonly select: (most: number) => Clause;
  /** Whether its order is that of the page: then it is read no further than to the end of the page. */
  readonly isOrdered: boolean;
  /** Whether it has runs of other tenants too. */
  readonly isMixed?: true;
  /** The label that all of its runs have. */
  readonly label?: StoredLabel;
}

/** Up to which number the runs with a label are counted, in search of the label that the fewest runs have. */
const MAX_COUNTED = 1_000;

/** The ids of the page of a query, in its order. No list in the query is empty. Throws `limit_reached`. */
export function pageOf(connection: Connection, query: RunQuery): readonly number[] {
  const order = hasTime(query) ? "created_at DESC, id DESC" : "id DESC";
  const count = query.limit + query.offset;
  for (const { source, most } of attemptsOf(sourcesOf(query), query)) {
    const where = whereOf(conditionsOf(query, source));
    const isBeyond = (): boolean => {
      if (!Number.isFinite(most)) return false;
      const { sql, values } = source.select(most + 1);
      return Number(connection.get(`SELECT count(*) AS runs FROM (${sql})`, ...values)?.["runs"]) > most;
    };
    if (!source.isOrdered && isBeyond()) continue;
    const seen = source.select(most);
    const rows = connection.all(
      `SELECT id FROM (${seen.sql})${where.sql} ${source.isOrdered ? "" : `ORDER BY ${order}`} LIMIT ? + 0`,
      ...seen.values,
      ...where.values,
      countable(count),
    );
    if (rows.length === count || !source.isOrdered || !isBeyond())
      return rows.slice(query.offset).map(({ id }) => Number(id));
  }
  throw tooManyExamined(query);
}

/**
 * The indexes that may answer a query, the one that selects the fewest runs most likely first. A session and a parent have
 * few runs: these are all read.
 */
function sourcesOf(query: RunQuery): readonly Source[] {
  const { session_id, creator, parents, statuses } = query;
  const tenant = toText(query.tenant);
  const isTimed = hasTime(query);
  /** The runs with these conditions, those that were created last first. */
  const newest = (from: string, ...conditions: readonly Clause[]): Source => ({
    select: (most) => select(query, from, [...conditions, ...beforeLast(query, "id")], "id DESC", most),
    isOrdered: !isTimed,
  });
  if (session_id !== undefined)
    return [newest("cadenza_runs r", ...inSession(tenant, toText(session_id)), ...below(parents))];
  if (parents !== undefined)
    return [
      newest("cadenza_runs r INDEXED BY cadenza_runs_by_parent", clause("tenant = ?", tenant), ...below(parents)),
    ];
  const sources = labelsOf(query).map((label) => withLabel(query, label));
  if (creator !== undefined)
    sources.push(
      newest(
        "cadenza_runs r INDEXED BY cadenza_runs_by_creator",
        clause("tenant = ? AND created_by = ?", tenant, toText(creator)),
      ),
    );
  if (statuses !== undefined && !statuses.includes("completed")) sources.push(withStatus(query, statuses));
  if (isTimed) return [...sources, byTime(query)];
  if (sources.length > 0) return sources;
  if (tenant !== "")
    return [newest("cadenza_runs r INDEXED BY cadenza_runs_by_tenant", clause("tenant = ? AND tenant <> ''", tenant))];
  // The tenant '' has all runs of an application without tenants: they are read from the table. In another application
  // it has few of them, which no index has in the order of their ids.
  return [{ ...newest("cadenza_runs r"), isMixed: true }, byTime(query)];
}

/** The runs with a label. */
function withLabel(query: RunQuery, label: StoredLabel): Source {
  const found = [clause("l.tenant = ? AND name = ? AND value = ? AND id = run", toText(query.tenant), ...label)];
  const { sql, values } = joined([...found, ...beforeLast(query, "run")], " AND ");
  return {
    select: (most) => ({
      sql: `SELECT ${columnsOf(query)} FROM cadenza_labels l CROSS JOIN cadenza_runs r WHERE ${sql} ORDER BY run DESC LIMIT ${limitOf(most)}`,
      values,
    }),
    isOrdered: !hasTime(query),
    label,
  };
}

/** The runs that wait are found by their status. Those that processes execute are few, and all of them are read. */
function withStatus(query: RunQuery, statuses: readonly RunStatus[]): Source {
  const tenant = clause("tenant = ?", toText(query.tenant));
  const before = beforeLast(query, "id");
  const indexes = [...new Set(statuses)].map((status): readonly [string, readonly Clause[]] => {
    if (isFinal(status)) {
      const isFailed = clause("status IN ('failed', 'cancelled') AND status = ?", status);
      return ["cadenza_runs_failed", [isFailed, tenant]];
    }
    const isWaiting = clause("finished_at IS NULL AND owner IS NULL AND status = ?", status);
    return ["cadenza_runs_by_status", [isWaiting, tenant]];
  });
  if (statuses.some((status) => !isFinal(status))) {
    const isExecuted = clause("finished_at IS NULL AND owner IS NOT NULL");
    indexes.push(["cadenza_runs_by_owner", [isExecuted, hasStatus(statuses), tenant]]);
  }
  return {
    select: (most) => {
      const parts = indexes.map(([index, conditions]) => {
        const from = `cadenza_runs r INDEXED BY ${index}`;
        const { sql, values } = select(query, from, [...conditions, ...before], "id DESC", most);
        return { sql: `SELECT * FROM (${sql})`, values };
      });
      const { sql, values } = joined(parts, " UNION ALL ");
      return { sql: `${sql} ORDER BY id DESC LIMIT ${limitOf(most)}`, values };
    },
    isOrdered: !hasTime(query),
  };
}

/** The runs of a time. Without one it selects all runs of the tenant. */
function byTime(query: RunQuery): Source {
  const from = "cadenza_runs r INDEXED BY cadenza_runs_by_time";
  const found = [clause("tenant = ?", toText(query.tenant)), ...timesOf(query), ...beforeLast(query, "id")];
  return { select: (most) => select(query, from, found, "created_at DESC, id DESC", most), isOrdered: hasTime(query) };
}

function timesOf({ createdAfter, createdBefore }: RunQuery): readonly Clause[] {
  const found: Clause[] = [];
  if (createdAfter !== undefined) found.push(clause("created_at >= ?", createdAfter));
  if (createdBefore !== undefined) found.push(clause("created_at < ?", createdBefore));
  return found;
}

/** That a run is behind the last one of the page before. */
function beforeLast(query: RunQuery, column: string): readonly Clause[] {
  const { tenant, after } = query;
  if (after === undefined) return [];
  const last = (what: string): string => `(SELECT ${what} FROM cadenza_runs WHERE tenant = ? AND run_id = ?)`;
  const values = [toText(tenant), toText(after)];
  if (hasTime(query)) return [clause(`(created_at, ${column}) < ${last("created_at, id")}`, ...values)];
  return [clause(`${column} < ${last("id")}`, ...values)];
}

/** The columns that `conditionsOf` looks at: an index that has all of them alone answers the query. */
function columnsOf(query: RunQuery): string {
  const { tenant, agent_name, creator, roots, statuses } = query;
  const found = ["r.id"];
  if (tenant === "") found.push("r.tenant");
  if (agent_name !== undefined) found.push("r.agent_name");
  if (creator !== undefined) found.push("r.created_by");
  if (roots === true) found.push("r.parent");
  if (statuses !== undefined) found.push("r.status");
  if (hasTime(query)) found.push("r.created_at");
  return found.join(", ");
}

/** What is checked for each run that an index selects. */
function conditionsOf(query: RunQuery, source: Source): readonly Clause[] {
  const { tenant, agent_name, creator, roots, statuses } = query;
  const found: Clause[] = source.isMixed ? [clause("tenant = ?", toText(tenant))] : [];
  if (agent_name !== undefined) found.push(clause("agent_name = ?", toText(agent_name)));
  if (creator !== undefined) found.push(clause("created_by = ?", toText(creator)));
  if (statuses !== undefined) found.push(hasStatus(statuses));
  if (roots === true) found.push(clause("parent IS NULL"));
  return [
    ...found,
    ...timesOf(query),
    ...labelsOf(query)
      .filter(([name]) => name !== source.label?.[0])
      .map(hasLabel),
  ];
}

export function hasStatus(statuses: readonly RunStatus[]): Clause {
  return clause(`status IN (${statuses.map(() => "?").join(", ")})`, ...statuses);
}

/** `+` keeps SQLite from using an index on the column: a session has few runs. */
function inSession(tenant: string, session: string): readonly Clause[] {
  const runs = `id IN (
    SELECT id FROM cadenza_runs WHERE tenant = ? AND session_id = ? AND session_id <> run_id
    UNION ALL SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ? AND session_id = run_id)`;
  return [clause("+tenant = ?", tenant), clause(runs, tenant, session, tenant, session)];
}

function below(parents: RunQuery["parents"]): readonly Clause[] {
  if (parents === undefined) return [];
  return [clause(`parent IN (${parents.map(() => "?").join(", ")})`, ...parents.map(toText))];
}

type StoredLabel = readonly [name: string, value: string];

export function labelsOf({ labels = {} }: Pick<RunQuery, "labels">): readonly StoredLabel[] {
  return Object.entries(labels).map(([name, value]) => [toText(name), toText(value)]);
}

export function hasLabel(label: StoredLabel): Clause {
  return clause("EXISTS (SELECT 1 FROM cadenza_labels WHERE run = id AND name = ? AND value = ?)", ...label);
}

/** The label that the fewest runs of the tenant have; undefined without labels. */
export function rarestOf(
  connection: Connection,
  tenant: string,
  labels: readonly StoredLabel[],
): StoredLabel | undefined {
  const [first, ...others] = labels;
  if (first === undefined || others.length === 0) return first;
  const select = `SELECT count(*) AS count FROM (
    SELECT 1 FROM cadenza_labels WHERE tenant = ? AND name = ? AND value = ? LIMIT ${MAX_COUNTED})`;
  const count = (label: StoredLabel): number => Number(connection.get(select, tenant, ...label)?.["count"]);
  let rarest = first;
  let fewest = count(first);
  for (const label of others) {
    const found = count(label);
    if (found >= fewest) continue;
    rarest = label;
    fewest = found;
  }
  return rarest;
}

function select(query: RunQuery, from: string, conditions: readonly Clause[], order: string, most: number): Clause {
  const { sql, values } = whereOf(conditions);
  return {
    sql: `SELECT ${columnsOf(query)} FROM ${from}${sql} ORDER BY ${order} LIMIT ${limitOf(most)}`,
    values,
  };
}

function whereOf(conditions: readonly Clause[]): Clause {
  const { sql, values } = joined(conditions, " AND ");
  return { sql: sql === "" ? "" : ` WHERE ${sql}`, values };
}

/** As many as there are: -1. */
function limitOf(most: number): number {
  return Number.isFinite(most) ? most : -1;
}

export function clause(sql: string, ...values: readonly SqliteValue[]): Clause {
  return { sql, values };
}

export function joined(clauses: readonly Clause[], by: string): Clause {
  return { sql: clauses.map(({ sql }) => sql).join(by), values: clauses.flatMap(({ values }) => values) };
}
