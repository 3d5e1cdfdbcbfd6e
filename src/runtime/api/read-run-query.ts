import type { RunQuery } from "../../core/run-query.ts";
import type { RunStatus } from "../../protocol/run.ts";
import { runStatusSchema } from "../../protocol/run.ts";
import { badArgument, checkCount, checkKeys, checkObject, checkText, read, readId, readTime } from "../agent/check.ts";
import { readLabels } from "../agent/labels.ts";
import type { ListRunsQuery } from "../runs/requests.ts";

const known: readonly (keyof ListRunsQuery)[] = [
  "agent_name",
  "session_id",
  "status",
  "labels",
  "parent",
  "roots",
  "after",
  "createdAfter",
  "createdBefore",
  "output",
  "limit",
  "offset",
];

/** Reads which runs to list. Throws `invalid_argument`. */
export function readRunQuery(query: ListRunsQuery, tenant: string, creator: string | undefined): RunQuery {
  checkObject("query", query);
  checkKeys("query", query, known);
  const { agent_name, session_id, status, labels, parent, after, output, limit = 100, offset = 0 } = query;
  const { createdAfter, createdBefore } = query;
  const statuses = readStatuses(status);
  const isInbox = statuses !== undefined && statuses.length > 0 && statuses.every((one) => one === "awaiting");
  const { roots = isInbox && parent === undefined } = query;
  if (agent_name !== undefined) checkText("query.agent_name", agent_name);
  if (output !== undefined && typeof output !== "boolean") throw badArgument("query.output", "true or false", output);
  if (typeof roots !== "boolean") throw badArgument("query.roots", "true or false", roots);
  checkCount("query.limit", limit);
  checkCount("query.offset", offset);
  return {
    tenant,
    agent_name,
    session_id: session_id === undefined ? undefined : readId("query.session_id", session_id),
    creator,
    statuses,
    labels: readLabels("query.labels", labels),
    parents: parent === undefined ? undefined : [readId("query.parent", parent)],
    roots,
    after: after === undefined ? undefined : readId("query.after", after),
    createdAfter: createdAfter === undefined ? undefined : readTime("query.createdAfter", createdAfter),
    createdBefore: createdBefore === undefined ? undefined : readTime("query.createdBefore", createdBefore),
    limit,
    offset,
  };
}

function readStatuses(status: ListRunsQuery["status"]): readonly RunStatus[] | undefined {
  if (status === undefined) return undefined;
  if (!Array.isArray(status)) return [read("query.status", runStatusSchema, status)];
  return status.map((one, index) => read(`query.status.${index}`, runStatusSchema, one));
}
