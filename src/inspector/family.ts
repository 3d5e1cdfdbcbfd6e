import type { AdminRun, AdminTree } from "../admin/records.ts";
import { adminRun } from "../admin/records.ts";
import type { RunKey } from "../core/ports.ts";
import type { FamilyEvent } from "./api.ts";
import type { Feed } from "./feed.ts";
import type { Inspected } from "./inspected.ts";
import { noSuchRun } from "./inspected.ts";

/** How often the runs are compared, in milliseconds, and how often forks are looked for, which change none of them. */
const LOOK_MS = 1_000;
const FORKS_MS = 10_000;
/** Of how many runs the questions are shown. */
const MOST_WAITING = 500;
/** How many runs are above a run at most. */
const MAX_ABOVE = 100;
/** Among how many runs the forks of a run are looked for: the newest of its session, in which its forks are too. */
const NEWEST = 500;

/** A run with all runs that belong to it, whenever they differ. */
export function familyFeed(inspected: Inspected, key: RunKey): Feed {
  return async function* (pause) {
    const { admin, clock } = inspected;
    let family = await familyOf(inspected, key);
    if (family === undefined) throw noSuchRun(key);
    let before = "";
    let readAt = clock.now();
    for (;;) {
      const text = JSON.stringify(family);
      if (text !== before) yield family satisfies FamilyEvent;
      before = text;
      // A run that begins another one has changed itself.
      let isSame = true;
      while (isSame) {
        if (!(await pause(LOOK_MS))) return;
        const changes = await admin.changes(nodesOf(family.tree));
        isSame = changes.length === 0 && clock.now() - readAt < FORKS_MS;
      }
      const now = await familyOf(inspected, key);
      if (now === undefined) return;
      family = now;
      readAt = clock.now();
    }
  };
}

async function familyOf(inspected: Inspected, key: RunKey): Promise<FamilyEvent | undefined> {
  const { admin, clock } = inspected;
  const run = await runOf(inspected, key);
  if (run === undefined) return undefined;
  const tree = await admin.tree(await topOf(inspected, run));
  await clock.turn();
  const origin = run.created?.origin ?? null;
  const waiting = nodesOf(tree).filter(({ status }) => status === "awaiting");
  const questions =
    waiting.length === 0 ? [] : (await admin.questions({ among: waiting.slice(0, MOST_WAITING) })).items;
  return {
    ...{ type: "family", tree, questions, ...(await forksOf(inspected, run)) },
    origin: (origin && (await runOf(inspected, { tenant: run.tenant, run_id: origin.run_id }))) ?? null,
  };
}

async function runOf({ store }: Inspected, key: RunKey): Promise<AdminRun | undefined> {
  const run = await store.find(key);
  return run && adminRun(run);
}

/** The highest run above a run that is still there. */
async function topOf(inspected: Inspected, run: AdminRun): Promise<AdminRun> {
  let top = run;
  for (let level = 0; level < MAX_ABOVE; level++) {
    const run_id = top.created?.parent_run_id ?? null;
    const parent = run_id === null ? undefined : await runOf(inspected, { tenant: run.tenant, run_id });
    if (parent === undefined) break;
    top = parent;
  }
  return top;
}

/** The forks of a run, the newest first. They are in its session, which an index finds. */
async function forksOf(
  { store }: Inspected,
  { tenant, run_id, created }: AdminRun,
): Promise<Pick<FamilyEvent, "forks" | "more_forks">> {
  if (created === null || !created.durable) return { forks: [], more_forks: false };
  const { session_id } = created;
  const found = await store.list({ tenant, session_id, roots: true, limit: NEWEST, offset: 0 });
  const forks = found.filter((run) => run.created?.origin?.run_id === run_id).map(adminRun);
  return { forks, more_forks: found.length === NEWEST };
}

function nodesOf(tree: AdminTree): readonly AdminTree[] {
  return [tree, ...tree.children.flatMap(nodesOf)];
}
