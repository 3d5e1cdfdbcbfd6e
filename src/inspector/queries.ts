import type { AdminFiguresQuery } from "../admin/figures.ts";
import type { AdminRunQuery } from "../admin/several-runs.ts";
import type { RunKey } from "../core/ports.ts";
import { unfitAt } from "../http/errors.ts";
import { queryFlag, queryNumber } from "../http/service.ts";
import { runIdSchema } from "../protocol/identifier.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Access } from "./access.ts";
import { noSuchRun } from "./inspected.ts";

/** The most runs of a list, and how many it has if the page does not say it. */
const MAX_ITEMS = 2_000;
const DEFAULT_ITEMS = 100;
/** How many runs a feed of several follows at most. */
const MAX_RUNS = 50;
/** The most entries of a page of a log. */
const MAX_ENTRIES = 500;

/** The parameters by which a list of runs is filtered. */
const filterNames = ["tenant", "agent", "version", "status", "label", "id", "roots", "after", "before"];

/**
 * The filters of a list, as a text. Throws for a text without any: the tenant of a user would be a condition, and all of its
 * runs are not what a list without filters means. Also for one that no list has: without it, more runs would be meant.
 */
export function readFilters(filters: unknown): URLSearchParams {
  if (typeof filters !== "string") throw unfitAt(["filters"], "expected the parameters of a list, as a text");
  const search = new URLSearchParams(filters);
  const unknown = [...search.keys()].find((name) => !filterNames.includes(name));
  if (unknown !== undefined) throw unfitAt(["filters"], `expected some of ${filterNames.join(", ")}, not ${unknown}`);
  if (![...search].some(([name, value]) => name !== "roots" && value !== ""))
    throw unfitAt(["filters"], "expected at least one filter");
  return search;
}

/** What a list shows: the runs that the page asks for, of those that exist for the user. */
export function readListQuery(search: URLSearchParams, access: Access): AdminRunQuery {
  const status = search.get("status");
  const query = {
    tenant: access.tenant ?? search.get("tenant") ?? undefined,
    agent_name: search.get("agent") ?? undefined,
    version: readVersion(search.get("version")),
    status: status === null ? undefined : (status.split(",") as RunStatus[]),
    labels: readLabels(search.getAll("label")),
    id: search.get("id") ?? undefined,
    roots: queryFlag(search, "roots"),
    createdAfter: search.get("after") ?? undefined,
    createdBefore: search.get("before") ?? undefined,
  };
  return isForeign(search.get("tenant"), access) ? { ...query, status: [] } : query;
}

/** Which figures over time the page asks for. */
export function readFigures(search: URLSearchParams, access: Access): AdminFiguresQuery {
  const { tenant, agent_name, version } = readListQuery(search, access);
  return {
    over: (search.get("over") ?? undefined) as AdminFiguresQuery["over"],
    by: (search.get("by") ?? undefined) as AdminFiguresQuery["by"],
    ...{ agent_name, version, tenant },
  };
}

export function readLimit(search: URLSearchParams): number {
  return queryNumber(search, "limit", 1, MAX_ITEMS) ?? DEFAULT_ITEMS;
}

/** Which page of a log to read. */
export function readPage(search: URLSearchParams): { readonly cursor: string | undefined; readonly limit: number } {
  const limit = queryNumber(search, "limit", 1, MAX_ENTRIES) ?? DEFAULT_ITEMS;
  return { cursor: search.get("cursor") ?? undefined, limit };
}

/** The run that a query names. For a user of one tenant the runs of others do not exist. */
export function readRunQuery(search: URLSearchParams, access: Access): RunKey {
  return runKeyOf(search.get("tenant"), search.get("run_id"), access);
}

/** The runs of a tenant that a query names. */
export function readRunsQuery(search: URLSearchParams, access: Access): readonly RunKey[] {
  const ids = (search.get("run_ids") ?? "").split(",");
  if (ids.length > MAX_RUNS) throw unfitAt(["run_ids"], `expected at most ${MAX_RUNS} ids`);
  return ids.map((run_id) => runKeyOf(search.get("tenant"), run_id, access));
}

/** The run that a tenant and an id name. */
export function runKeyOf(tenant: unknown, run_id: unknown, access: Access): RunKey {
  const read = runIdSchema.safeParse(run_id);
  if (!read.success) throw unfitAt(["run_id"], "expected the id of a run");
  const key = { tenant: readTenant(tenant, access), run_id: read.data };
  if (isForeign(key.tenant, access)) throw noSuchRun(key);
  return key;
}

/** The tenant that a request names; left out: the user's own, or the empty one. */
export function readTenant(tenant: unknown, access: Access): string {
  if (tenant === undefined || tenant === null) return access.tenant ?? "";
  if (typeof tenant === "string") return tenant;
  throw unfitAt(["tenant"], "expected a text");
}

/** Whether it is a tenant that does not exist for the user. */
export function isForeign(tenant: string | null, access: Access): boolean {
  return tenant !== null && access.tenant !== null && tenant !== access.tenant;
}

/** An empty text is no version. */
function readVersion(version: string | null): string | null | undefined {
  return version === null ? undefined : version === "" ? null : version;
}

function readLabels(texts: readonly string[]): Record<string, string> | undefined {
  if (texts.length === 0) return undefined;
  const pairs = texts.map((text) => {
    const colon = text.indexOf(":");
    if (colon === -1) throw unfitAt(["label"], "expected a name and a value, such as order:O-17");
    return [text.slice(0, colon), text.slice(colon + 1)] as const;
  });
  return Object.fromEntries(pairs);
}
