import { CadenzaError } from "../core/errors.ts";
import type { FoundRun, RunKey, SessionKey, Store } from "../core/ports.ts";
import { RunMap } from "../core/run-map.ts";
import type { RunQuery } from "../core/run-query.ts";
import { notFound } from "./refusals.ts";

/** How many runs are read from the store at a time. */
const PAGE = 100;

/**
 * Deletes a run that has ended, and all runs below it. Throws `run_not_found`, and `run_not_ended` if one of them, or
 * the parent, has not ended. A run that has ended stays so, hence nothing changes between the look and the deletion.
 */
export async function deleteRun(store: Store, key: RunKey): Promise<void> {
  const found = await store.find(key);
  if (found === undefined) throw notFound(key.run_id);
  await store.delete(await treesOf(store, [found]));
}

/**
 * Deletes a session, its runs and all runs below them. Throws `session_not_found`, and `run_not_ended` as `deleteRun`
 * does. The session goes first: a repeated call finds the runs that are left if the process dies meanwhile.
 */
export async function deleteSession(store: Store, key: SessionKey): Promise<void> {
  const { tenant, session_id } = key;
  const runs = await listAll(store, { tenant, session_id });
  if (runs.length === 0 && (await store.sessionHead(key)) === undefined)
    throw new CadenzaError("session_not_found", `There is no session ${session_id}.`, { session_id });
  const doomed = await treesOf(store, runs);
  if (!(await store.deleteSession(key))) {
    const message = `Session ${session_id} cannot be deleted: a run has just joined it. Delete it after that run has ended.`;
    throw new CadenzaError("run_not_ended", message, { session_id });
  }
  await store.delete(doomed);
}

/**
 * The runs and all runs below them, the lowest first: what is left if the process dies meanwhile is found from the top
 * again. Throws `run_not_ended`.
 */
async function treesOf(store: Store, roots: readonly FoundRun[]): Promise<readonly RunKey[]> {
  for (const root of roots) await checkParent(store, root);
  const found = new RunMap<RunKey>();
  let level = roots;
  while (level.length > 0) {
    const below: FoundRun[] = [];
    for (const { key, head } of level) {
      if (head.finished_at === null)
        throw notEnded(key.run_id, "has not ended, and cannot be deleted. Cancel it first, or delete it later.");
      found.set(key, key);
      below.push(...(await listAll(store, { tenant: key.tenant, parent: key.run_id })));
    }
    level = below;
  }
  return [...found.values()].reverse();
}

/** A parent that has not ended may read its sub-runs again, and would start a missing one anew. */
async function checkParent(store: Store, { key, created }: FoundRun): Promise<void> {
  if (created?.parent === undefined) return;
  const { run_id } = created.parent;
  const parent = await store.find({ ...key, run_id });
  if (parent !== undefined && parent.head.finished_at === null)
    throw notEnded(run_id, `has not ended: run ${key.run_id}, which it has started, cannot be deleted before that.`);
}

async function listAll(store: Store, query: Omit<RunQuery, "limit" | "offset">): Promise<readonly FoundRun[]> {
  const found: FoundRun[] = [];
  for (;;) {
    const page = await store.list({ ...query, limit: PAGE, offset: found.length });
    found.push(...page);
    if (page.length < PAGE) return found;
  }
}

function notEnded(runId: string, why: string): CadenzaError {
  return new CadenzaError("run_not_ended", `Run ${runId} ${why}`, { run_id: runId });
}
