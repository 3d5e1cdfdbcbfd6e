import type { RunLog } from "./run-log.ts";

/** Calls back when all that has been decided is committed: at once, if it is. Does not call back for a lost run. */
export function onceCommitted(log: RunLog, callback: () => void): void {
  const committed = log.commit();
  // Awaiting a commit that is done would let a later entry be handed over before this one.
  if (committed === undefined) callback();
  else void committed.then(callback);
}
