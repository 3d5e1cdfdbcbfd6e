import { ignore } from "../../core/promises.ts";
import type { LiveRun } from "./live-run.ts";

/**
 * Resolves when the entries of a run's ancestors are committed, or their writes have failed. Undefined: they are
 * committed.
 */
export function committedAbove({ parent, residence }: LiveRun): undefined | Promise<void> {
  return parent === undefined ? residence?.told() : committedUpwards(parent);
}

/** As {@link committedAbove}, with the entries of the run itself. */
export function committedUpwards(run: LiveRun): undefined | Promise<void> {
  // What the store does not take now is found in the log of the sub-run later.
  const committed = run.log.acknowledge()?.catch(ignore);
  return committed === undefined ? committedAbove(run) : committed.then(() => committedAbove(run));
}
