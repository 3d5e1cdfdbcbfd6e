import type { StoredRun } from "../../core/ports.ts";
import type { SurveyPage, SurveyQuery } from "../../core/survey.ts";
import type { MemoryRun, Tenant } from "./tenant.ts";
import { matches } from "./tenant.ts";

/** A page of the runs of all tenants. Each tenant is read from its newest run on, while the page may get one of its runs. */
export function surveyRuns(tenants: Iterable<Tenant>, query: SurveyQuery): SurveyPage<StoredRun> {
  const { after = Number.POSITIVE_INFINITY, limit } = query;
  /** The newest runs that were found, and one more. */
  const found: MemoryRun[] = [];
  for (const tenant of tenants) {
    if (query.tenant !== undefined && tenant.name !== query.tenant) continue;
    // A whole id selects one run.
    const named = tenant.runs.get(query.idPrefix ?? "");
    for (const run of named ? [named] : tenant.newestFirst(undefined)) {
      const last = found[limit];
      if (last !== undefined && run.order < last.order) break;
      if (run.order >= after || !isWanted(run, query)) continue;
      found.push(run);
      found.sort((one, other) => other.order - one.order);
      if (found.length > limit + 1) found.pop();
    }
  }
  const next = found.length > limit ? (found[limit - 1]?.order ?? null) : null;
  return { runs: found.slice(0, limit).map((run) => run.stored()), next };
}

function isWanted(run: MemoryRun, { after: _, ...query }: SurveyQuery): boolean {
  const { version, idPrefix = "" } = query;
  if (version !== undefined && (run.created.version ?? null) !== version) return false;
  return run.key.run_id.startsWith(idPrefix) && matches(run, query);
}
