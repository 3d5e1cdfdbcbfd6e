import { CadenzaError } from "../core/errors.ts";
import type { RunQuery } from "../core/run-query.ts";

/**
 * Up to how many runs each index is read first. An index that selects few is found so before much of another one is read,
 * and a planner that expects more runs to be read may sort all of an index.
 */
const FEW = 1_000;

/** Whether a query names a time of creation: then a page has the order of these times. */
export function hasTime({ createdAfter, createdBefore }: RunQuery): boolean {
  return createdAfter !== undefined || createdBefore !== undefined;
}

/** A reading of an index: of at most so many runs, or of all. */
export interface Attempt<Source> {
  readonly source: Source;
  readonly most: number;
}

/**
 * In which order the indexes are read that may answer a query, until one answers it. The last reading has no bound if the
 * query has none, and is then of an index with the order of the page.
 */
export function attemptsOf<Source extends { readonly isOrdered: boolean }>(
  sources: readonly Source[],
  query: RunQuery,
): readonly Attempt<Source>[] {
  const isFamily = query.session_id !== undefined || query.parents !== undefined;
  if (isFamily) return sources.map((source) => ({ source, most: Number.POSITIVE_INFINITY }));
  const { most = Number.POSITIVE_INFINITY } = query;
  const few = Math.max(FEW, query.limit + query.offset);
  const attempts = few < most ? sources.map((source) => ({ source, most: few })) : [];
  const inOrder = sources.filter(({ isOrdered }) => isOrdered);
  const rest = Number.isFinite(most) ? sources : inOrder.slice(-1);
  attempts.push(...rest.map((source) => ({ source, most })));
  return attempts;
}

/** The refusal of a list whose page has too few runs among those that may be looked at. */
export function tooManyExamined({ most = 0, limit }: RunQuery): CadenzaError {
  return new CadenzaError(
    "limit_reached",
    `The list would look at more than ${most} runs before it has the ${limit} of its page. Name labels, a session, a parent, statuses other than "completed" or a shorter time of creation, ask for fewer runs, or search page by page with the \`runs\` of an Admin.`,
    { limit: "maxExaminedRuns" },
  );
}
