import { CadenzaError, noSession, notFound } from "../../core/errors.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { FoundRun, RunKey, SessionKey, Store } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import { allRuns } from "./all-runs.ts";

/** How many runs are named in one question for the runs below them. */
const CHUNK = 100;

/** What is kept of a run that is to be deleted. */
interface Doomed {
  readonly key: RunKey;
  readonly hasEnded: boolean;
  readonly parent: string | undefined;
}

/**
 * Deletes a run that has ended, and all runs below it. Resolves with its first entry; null: the store could not read it. Throws `run_not_found`, and `run_not_ended` if one of them, or
 * the parent, has not ended. A run that has ended stays so, hence nothing changes between the look and the deletion.
 */
export async function deleteRun(store: Store, key: RunKey): Promise<CreatedEntry | null> {
  const found = await store.find(key);
  if (found === undefined) throw notFound(key.run_id);
  await store.delete(await treesOf(store, key.tenant, [doomed(found)]));
  return found.created;
}

/**
 * Deletes a session, its runs and all runs below them. Throws `session_not_found`, and `run_not_ended` as `deleteRun`
 * does. The session goes first: a repeated call finds the runs that are left if the process dies meanwhile.
 */
export async function deleteSession(store: Store, key: SessionKey): Promise<void> {
  const { tenant, session_id } = key;
  const runs = await allRuns(store, { tenant, session_id }, doomed);
  if (runs.length === 0 && (await store.sessionHead(key)) === undefined) throw noSession(session_id);
  const trees = await treesOf(store, tenant, runs);
  if (!(await store.deleteSession(key))) {
    const message = `Session ${session_id} cannot be deleted: a run has just joined it. Delete it after that run has ended.`;
    throw new CadenzaError("run_not_ended", message, { session_id });
  }
  await store.delete(trees);
}

/**
 * The runs and all runs below them, the lowest first: what is left if the process dies meanwhile is found from the top
 * again. Throws `run_not_ended`.
 */
async function treesOf(store: Store, tenant: string, roots: readonly Doomed[]): Promise<readonly RunKey[]> {
  await checkParents(store, tenant, roots);
  const found = new RunMap<RunKey>();
  for (let level = roots; level.length > 0; ) {
    for (const { key, hasEnded } of level) {
      if (!hasEnded)
        throw notEnded(key.run_id, "has not ended, and cannot be deleted. Cancel it first, or delete it later.");
      // A run that is a root and below another one goes with the lower ones.
      found.delete(key);
      found.set(key, key);
    }
    const below: Doomed[] = [];
    for (let from = 0; from < level.length; from += CHUNK) {
      const parents = level.slice(from, from + CHUNK).map(({ key }) => key.run_id);
      below.push(...(await allRuns(store, { tenant, parents }, doomed)));
    }
    level = below;
  }
  return [...found.values()].reverse();
}

/** A parent that has not ended may read its sub-runs again, and would start a missing one anew. */
async function checkParents(store: Store, tenant: string, roots: readonly Doomed[]): Promise<void> {
  const checked = new RunMap<true>();
  for (const { key } of roots) checked.set(key, true);
  for (const { key, parent: run_id } of roots) {
    if (run_id === undefined || checked.has({ tenant, run_id })) continue;
    checked.set({ tenant, run_id }, true);
    const parent = await store.find({ tenant, run_id });
    if (parent !== undefined && parent.head.finished_at === null)
      throw notEnded(run_id, `has not ended: run ${key.run_id}, which it has started, cannot be deleted before that.`);
  }
}

function doomed({ key, head, created }: FoundRun): Doomed {
  return { key, hasEnded: head.finished_at !== null, parent: created?.parent?.run_id };
}

function notEnded(runId: string, why: string): CadenzaError {
  return new CadenzaError("run_not_ended", `Run ${runId} ${why}`, { run_id: runId });
}
