import { ignore } from "../core/promises.ts";
import type { RunLog } from "./run-log.ts";

/** Calls back when all that has been decided is committed: at once, if it is. Does not call back for a lost run. */
export function onceCommitted(log: RunLog, callback: () => void): void {
  const committed = log.commit();
  // Awaiting a commit that is done would let a later entry be handed over before this one.
  if (committed === undefined) callback();
  else void committed.then(callback);
}

/** A run whose ancestors are told what it does. */
export interface ToldAbove {
  readonly log: RunLog;
  /**
   * Resolves when the entries of the run's ancestors are committed, or their writes have failed. Undefined: they are
   * committed.
   */
  committedAbove(): undefined | Promise<void>;
}

/** As {@link ToldAbove.committedAbove}, with the entries of the run itself. */
export function committedUpwards(run: ToldAbove): undefined | Promise<void> {
  // What the store does not take now is found in the log of the sub-run later.
  const committed = run.log.acknowledge()?.catch(ignore);
  return committed === undefined ? run.committedAbove() : committed.then(() => run.committedAbove());
}
