import type { RunQuery } from "../../core/run-query.ts";
import { isFinal } from "../../core/state.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { countable, toText } from "../stored-rows.ts";
import type { Connection, SqliteValue } from "./database.ts";

/*
 * Which runs a list shows. Each statement reads the index that selects few runs: that of the session, of the parent, of
 * a label, of a live status or of the time. The other conditions are checked for each of these runs.
 */

/** A piece of a statement, with the values of its placeholders in their order. */
export interface Clause {
  readonly sql: string;
  readonly values: readonly SqliteValue[];
}

/** Up to which number the runs with a label are counted, in search of the label that the fewest runs have. */
const MAX_COUNTED = 1_000;

/** The statement that selects the ids of the page of a query. No list in it is empty. */
export function selectPage(connection: Connection, query: RunQuery): Clause {
  const byTime = selectByTime(query);
  const { sql, values } = byTime ?? selectIds(connection, query);
  const order = byTime === undefined ? "id DESC" : "created_at DESC, id DESC";
  const page = [countable(query.limit), countable(query.offset)];
  return { sql: `${sql} ORDER BY ${order} LIMIT ? + 0 OFFSET ? + 0`, values: [...values, ...page] };
}

/** Reads the runs of a time from the newest one on. Undefined: the time is not all, or the query selects fewer runs. */
function selectByTime(query: RunQuery): Clause | undefined {
  const { tenant, session_id, creator, parents, statuses, labels, createdAfter, createdBefore, after } = query;
  if (createdAfter === undefined && createdBefore === undefined) return undefined;
  const isRare =
    session_id !== undefined || creator !== undefined || parents !== undefined || Object.keys(labels ?? {}).length > 0;
  if (isRare || isLive(statuses)) return undefined;
  const found = [clause("tenant = ?", toText(tenant)), ...conditionsOf({ ...query, after: undefined })];
  if (after !== undefined) {
    const last = "(SELECT created_at, id FROM cadenza_runs WHERE tenant = ? AND run_id = ?)";
    found.push(clause(`(created_at, id) < ${last}`, toText(tenant), toText(after)));
  }
  if (statuses !== undefined) found.push(hasStatus(statuses));
  return select("cadenza_runs INDEXED BY cadenza_runs_by_time", found);
}

function isLive(statuses: RunQuery["statuses"]): boolean {
  return statuses?.every((status) => !isFinal(status)) === true;
}

/** The ids of all runs of a query, in no order yet. */
function selectIds(connection: Connection, query: RunQuery): Clause {
  const { session_id, creator, parents, statuses } = query;
  const tenant = toText(query.tenant);
  const labels = labelsOf(query);
  const others = conditionsOf(query);
  const status = statuses === undefined ? [] : [hasStatus(statuses)];
  if (session_id !== undefined)
    return select("cadenza_runs", [
      ...inSession(tenant, toText(session_id)),
      ...others,
      ...status,
      ...labels.map(hasLabel),
    ]);
  if (parents !== undefined)
    return select("cadenza_runs INDEXED BY cadenza_runs_by_parent", [
      clause("tenant = ?", tenant),
      ...others,
      ...status,
      ...labels.map(hasLabel),
    ]);
  const rarest = rarestOf(connection, tenant, labels);
  if (rarest !== undefined) {
    const further = labels.filter((label) => label !== rarest);
    return withLabel(tenant, rarest, [...others, ...status, ...further.map(hasLabel)]);
  }
  if (creator !== undefined)
    return select("cadenza_runs INDEXED BY cadenza_runs_by_creator", [
      clause("tenant = ?", tenant),
      ...others,
      ...status,
    ]);
  if (isLive(statuses)) return liveOnes(tenant, [...new Set(statuses)], others);
  // The tenant '' has all runs of an application without tenants. They are read from the table.
  const ofTenant = tenant === "" ? "+tenant = ?" : "tenant = ? AND tenant <> ''";
  return select("cadenza_runs", [clause(ofTenant, tenant), ...others, ...status]);
}

function conditionsOf(query: RunQuery): readonly Clause[] {
  const { tenant, agent_name, creator, parents, roots, after, createdAfter, createdBefore } = query;
  const found: Clause[] = [];
  if (after !== undefined)
    found.push(
      clause("id < (SELECT id FROM cadenza_runs WHERE tenant = ? AND run_id = ?)", toText(tenant), toText(after)),
    );
  if (agent_name !== undefined) found.push(clause("agent_name = ?", toText(agent_name)));
  if (creator !== undefined) found.push(clause("created_by = ?", toText(creator)));
  if (parents !== undefined)
    found.push(clause(`parent IN (${parents.map(() => "?").join(", ")})`, ...parents.map(toText)));
  if (roots === true) found.push(clause("parent IS NULL"));
  if (createdAfter !== undefined) found.push(clause("created_at >= ?", createdAfter));
  if (createdBefore !== undefined) found.push(clause("created_at < ?", createdBefore));
  return found;
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

/** The runs that wait are found by their status. Those that processes execute are few, and all of them are read. */
function liveOnes(tenant: string, statuses: readonly RunStatus[], others: readonly Clause[]): Clause {
  const live = [clause("finished_at IS NULL"), clause("tenant = ?", tenant), ...others];
  const waiting = statuses.map((status) =>
    select("cadenza_runs INDEXED BY cadenza_runs_by_status", [
      clause("owner IS NULL"),
      clause("status = ?", status),
      ...live,
    ]),
  );
  const executed = select("cadenza_runs INDEXED BY cadenza_runs_by_owner", [
    clause("owner IS NOT NULL"),
    hasStatus(statuses),
    ...live,
  ]);
  return joined([...waiting, executed], " UNION ALL ");
}

type StoredLabel = readonly [name: string, value: string];

export function labelsOf({ labels = {} }: Pick<RunQuery, "labels">): readonly StoredLabel[] {
  return Object.entries(labels).map(([name, value]) => [toText(name), toText(value)]);
}

export function hasLabel(label: StoredLabel): Clause {
  return clause("EXISTS (SELECT 1 FROM cadenza_labels WHERE run = id AND name = ? AND value = ?)", ...label);
}

/** Reads the runs with a label from the newest one on, up to the end of the page. */
function withLabel(tenant: string, label: StoredLabel, others: readonly Clause[]): Clause {
  const found = clause("l.tenant = ? AND name = ? AND value = ? AND id = run", tenant, ...label);
  const { sql, values } = joined([found, ...others], " AND ");
  return { sql: `SELECT run AS id FROM cadenza_labels l CROSS JOIN cadenza_runs WHERE ${sql}`, values };
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

function select(from: string, conditions: readonly Clause[]): Clause {
  const { sql, values } = joined(conditions, " AND ");
  return { sql: `SELECT id FROM ${from} WHERE ${sql}`, values };
}

export function clause(sql: string, ...values: readonly SqliteValue[]): Clause {
  return { sql, values };
}

export function joined(clauses: readonly Clause[], by: string): Clause {
  return { sql: clauses.map(({ sql }) => sql).join(by), values: clauses.flatMap(({ values }) => values) };
}
