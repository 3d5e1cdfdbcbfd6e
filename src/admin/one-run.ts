import { CadenzaError } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import type { FoundRun, RunKey, Store, StoredRun } from "../core/ports.ts";
import { behind } from "../core/positions.ts";
import type { Usage } from "../protocol/extensions.ts";
import { runIdSchema } from "../protocol/identifier.ts";
import { badArgument, checkCount, checkKeys, checkObject, read } from "../runtime/agent/check.ts";
import { cursorOf, readLimit, readPlace } from "../runtime/api/cursors.ts";
import { eachInTurns, readLog } from "../runtime/log/fold-log.ts";
import type { AdminPage, AdminRun, AdminTree } from "./records.ts";
import { adminRun } from "./records.ts";
import type { TimelineItem } from "./timeline.ts";
import { TimelineFold } from "./timeline-fold.ts";

/** A run: any record that names it, or the id of a run of the tenant "". */
export type RunRef = string | { readonly tenant?: string | undefined; readonly run_id: string };

/** Which page to read. */
export interface PageQuery {
  /** The `next` of the page before. Default: from the beginning on. */
  readonly cursor?: string | undefined;
  /** How many items at most, from 1 to 500. Default: 50. */
  readonly limit?: number | undefined;
}

/** Which items of a timeline to read. */
export interface TimelineQuery extends PageQuery {
  /** The `position` of an earlier answer: only items that have begun or changed since then. Default: 0, which gives all. */
  readonly since?: number | undefined;
}

/** A page of the timeline of a run. */
export interface AdminTimeline extends AdminPage<TimelineItem> {
  readonly run: AdminRun;
  /** How many entries of the log it tells. */
  readonly position: number;
  /** What the run and its ended sub-runs have reported; null for nothing. */
  readonly usage: Usage | null;
}

/** How many runs of a tree are read. */
const MAX_TREE = 1_000;
/** How many runs are read from the store at a time. */
const PAGE = 100;

/** The key of a run. Throws `invalid_argument`. */
export function readRef(run: RunRef): RunKey {
  if (typeof run === "string") return { tenant: "", run_id: read("run", runIdSchema, run) };
  checkObject("run", run);
  const { tenant = "", run_id } = run;
  if (typeof tenant !== "string") throw badArgument("run.tenant", "a string", tenant);
  return { tenant, run_id: read("run.run_id", runIdSchema, run_id) };
}

/** Which page is wanted. Throws `invalid_argument`. */
export function readPage(query: PageQuery): PageQuery {
  checkObject("query", query);
  return query;
}

export async function logOf(
  store: Store,
  key: RunKey,
  query: PageQuery,
): Promise<AdminPage<Entry & { readonly position: number }>> {
  const { cursor, limit } = readPage(query);
  const from = readPlace(cursor) ?? 0;
  const most = readLimit(limit);
  const { position } = await found(store, key);
  const entries = (await store.read(key, from, most)) ?? [];
  let end = from;
  const items = entries.map((entry) => {
    end = behind(end, entry);
    return { ...entry, position: end - 1 };
  });
  return { items, next: end < position ? cursorOf(end) : null };
}

export async function timelineOf<Item extends TimelineItem = TimelineItem>(
  store: Store,
  key: RunKey,
  query: TimelineQuery,
  isWanted: (item: TimelineItem) => item is Item = (_item): _item is Item => true,
): Promise<AdminTimeline & { readonly items: readonly Item[] }> {
  checkObject("query", query);
  checkKeys("query", query, ["cursor", "limit", "since"]);
  const { cursor, limit, since = 0 } = query;
  checkCount("query.since", since);
  const most = readLimit(limit);
  const from = readPlace(cursor) ?? 0;
  const run = await found(store, key);
  const log = await readLog(store, key, run.position);
  if (log === undefined) throw notFound(key);
  const fold = new TimelineFold();
  await eachInTurns(store, log, (entry) => fold.add(entry));
  const items: Item[] = [];
  let next: string | null = null;
  for (const item of fold.items) {
    if (item.position < from || item.last_position < since || !isWanted(item)) continue;
    if (items.length < most) items.push(item);
    else {
      next = cursorOf(item.position);
      break;
    }
  }
  return {
    ...{ items, next },
    ...{ run: adminRun(run), position: fold.position, usage: fold.usage },
  };
}

export async function treeOf(store: Store, key: RunKey): Promise<AdminTree> {
  const root: Growing = { ...adminRun(await found(store, key)), children: [] };
  const open = [root];
  let count = 1;
  for (let node = open.shift(); node !== undefined && count < MAX_TREE; node = open.shift()) {
    const below = await childrenOf(store, node, MAX_TREE - count);
    count += below.length;
    node.children = below.map((run): Growing => ({ ...adminRun(run), children: [] }));
    open.push(...node.children);
  }
  return root;
}

interface Growing extends AdminRun {
  children: Growing[];
}

/** The direct sub-runs, in the order in which they were created. */
async function childrenOf(store: Store, { tenant, run_id }: AdminRun, most: number): Promise<readonly FoundRun[]> {
  const all: FoundRun[] = [];
  while (all.length < most) {
    const limit = Math.min(PAGE, most - all.length);
    const page = await store.list({ tenant, parents: [run_id], limit, offset: 0, after: all.at(-1)?.key.run_id });
    all.push(...page);
    if (page.length < limit) break;
  }
  return all.reverse();
}

async function found(store: Store, key: RunKey): Promise<StoredRun> {
  const run = await store.find(key);
  if (run === undefined) throw notFound(key);
  return run;
}

function notFound({ tenant, run_id }: RunKey): CadenzaError {
  const where = tenant === "" ? "without a tenant" : `of the tenant ${JSON.stringify(tenant)}`;
  return new CadenzaError("run_not_found", `There is no run ${run_id} ${where}.`, { run_id });
}
