import { inBackground } from "../../core/background.ts";
import type { Entry } from "../../core/log.ts";
import type { Committed } from "../log/operations.ts";
import type { RunLog } from "../log/run-log.ts";

/** Calls back when all that has been decided is committed: at once, if it is. Does not call back for a lost run. */
export function onceCommitted(log: RunLog, callback: () => void): void {
  const committed = log.commit();
  // Awaiting a commit that is done would let a later entry be handed over before this one.
  if (committed === undefined) callback();
  else inBackground(log.logger, committed.then(callback));
}

/**
 * Calls back when a decided entry is committed, with the entry as the log holds it: after a conflict it was decided
 * again. With undefined: the log does not have it, because another process had written something first that excludes it.
 * Does not call back for a lost run.
 */
export function onceInLog(log: RunLog, entry: Entry, callback: (committed: Committed | undefined) => void): void {
  onceCommitted(log, () => callback(log.standingOf(entry) as Committed | undefined));
}

/** The result of an operation that the log of a plain run does not hold. */
export function notLogged(entry: Entry): Committed {
  return entry as Committed;
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
