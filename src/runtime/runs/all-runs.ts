import type { FoundRun, Store } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RunQuery } from "../../core/run-query.ts";

/** How many runs are read from the store at a time. */
const PAGE = 100;

/**
 * All runs of a query, each once, those that were created last first. No run is left out because another one is created
 * or deleted meanwhile. `pick` gives what is kept of each run.
 */
export async function allRuns<Value>(
  store: Store,
  query: Omit<RunQuery, "after" | "limit" | "offset">,
  pick: (run: FoundRun) => Value,
): Promise<readonly Value[]> {
  const found = new RunMap<Value>();
  for (let after: string | undefined; ; ) {
    // One run more than a page says whether another page follows.
    const page = await store.list({ ...query, after, limit: PAGE + 1, offset: 0 });
    for (const run of page) found.set(run.key, pick(run));
    if (page.length > PAGE) after = page.at(-2)?.key.run_id;
    // More runs followed the last page. Its last run has been deleted meanwhile, and a store lists nothing after that one.
    else if (page.length === 0 && after !== undefined) after = undefined;
    else return [...found.values()];
  }
}
