import type { RunLog } from "./run-log.ts";

/** Calls back when all that has been decided is committed: at once, if it is. Does not call back for a lost run. */
export function onceCommitted(log: RunLog, callback: () => void): void {
  const committed = log.commit();
  // Awaiting a commit that is done would let a later entry be handed over before this one.
  if (committed === undefined) callback();
  else void committed.then(callback);
}

/**
 * Waits until the store has taken a new run. If it fails to say so, the caller gets an error and does not let the run
 * begin. The run then begins as soon as it is found to be there.
 */
export async function onceTaken(log: RunLog, begin: () => void): Promise<void> {
  try {
    await log.acknowledge();
  } catch (error) {
    onceCommitted(log, begin);
    throw error;
  }
}
