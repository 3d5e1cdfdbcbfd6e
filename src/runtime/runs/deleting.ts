import { endOf } from "../../core/background.ts";
import { CadenzaError, noSession, notFound } from "../../core/errors.ts";
import type { CreatedEntry } from "../../core/log.ts";
import type { Clock, FoundRun, Logger, RunKey, SessionKey, Store } from "../../core/ports.ts";
import { isPromise } from "../../core/promises.ts";
import { RunMap } from "../../core/run-map.ts";
import type { RunQuery } from "../../core/run-query.ts";
import { systemChance } from "../log/system.ts";
import type { Settings } from "./options.ts";

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
      for (const run of await allRuns(store, { tenant, parents }, doomed)) below.push(run);
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

/** When a process prunes for the first time at the latest, in milliseconds after its start. */
const FIRST_PAUSE_MS = 1_000;
/** The longest and the shortest pause between two prunings, in milliseconds. */
const MAX_PAUSE_MS = 600_000;
const MIN_PAUSE_MS = 1_000;
/** A number of runs may be exceeded by one in so many. */
const EXCESS = 16;

/**
 * Has the store delete ended runs and unused sessions above the retention: soon after the process has started, at an
 * interval, and when many runs have ended. The store may hold runs of processes that did not live for an interval. A
 * store in memory is empty at first, and is pruned from the first run on.
 *
 * What is limited for each tenant is looked at for the tenants whose runs end. A look at one costs a persistent store as
 * much as the tenant keeps, and a process may not live to see many of its runs end: so it looks by chance, on average
 * once for each sixteenth of what the tenant may keep.
 */
export class Pruning {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #retention: Settings["retention"];
  /** How many ended runs, and sessions, of one tenant are kept. */
  readonly #perTenant: { readonly maxRuns: number; readonly maxSessions: number };
  /** How many runs may end before the next pruning. */
  readonly #maxEnded: number;
  /** The longest pause between two prunings, in milliseconds. Undefined: only a number of ended runs makes it prune. */
  readonly #pauseMs: number | undefined;
  /** How many runs have ended since the last pruning. */
  #ended = 0;
  /** The tenants to look at. */
  readonly #tenants = new Set<string>();
  /** The pruning under way. Runs that end meanwhile are left to the next one. */
  #pruning: Promise<void> | undefined;
  /** The next pruning: stops its timer. `never`: the runtime is closed. Undefined: none is due. */
  #next: (() => void) | "never" | undefined;
  readonly #pruneNow = (): void => this.#prune();

  constructor({ store, clock, logger, retention, perTenant }: Settings) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
    this.#retention = retention;
    this.#perTenant = { maxRuns: perTenant.storedRuns, maxSessions: perTenant.sessions };
    const numbers = [retention.maxRuns, ...retention.rules.map(({ maxRuns }) => maxRuns)];
    this.#maxEnded = Math.min(...numbers, ...(store.persistent ? [] : [this.#fewest])) / EXCESS;
    this.#pauseMs = timeBringsMore(retention, store, this.#fewest) ? pauseOf(retention) : undefined;
  }

  start(): void {
    if (this.#store.persistent) this.#pruneIn(FIRST_PAUSE_MS);
  }

  onEnded(tenant: string): void {
    if (this.#next === "never") return;
    this.#ended += 1;
    if (this.#isToLookAt) this.#lookAt(tenant);
    if (this.#ended > this.#maxEnded) this.#prune();
    else this.#pruneLater();
  }

  stop(): void {
    this.#stopTimer();
    this.#next = "never";
  }

  #stopTimer(): void {
    if (this.#next === "never") return;
    this.#next?.();
    this.#next = undefined;
  }

  /** The lower one of a tenant's two limits: of ended runs, and of sessions. */
  get #fewest(): number {
    return Math.min(this.#perTenant.maxRuns, this.#perTenant.maxSessions);
  }

  /** Whether the next pruning is to look at the tenant of a run that has ended. A store in memory looks at few things. */
  get #isToLookAt(): boolean {
    const fewest = this.#fewest;
    return fewest < Number.POSITIVE_INFINITY && (!this.#store.persistent || systemChance() * fewest < EXCESS);
  }

  #lookAt(tenant: string): void {
    const isFirst = this.#tenants.size === 0;
    this.#tenants.add(tenant);
    if (!isFirst || !this.#store.persistent) return;
    this.#stopTimer();
    this.#pruneIn(MIN_PAUSE_MS);
  }

  #pruneLater(): void {
    if (this.#pauseMs !== undefined) this.#pruneIn(this.#pauseMs);
  }

  /** Not all at once, where many processes have started together. */
  #pruneIn(atMostMs: number): void {
    if (this.#next !== undefined || this.#pauseMs === undefined) return;
    const pauseMs = atMostMs * (1 - systemChance() / 4);
    this.#next = this.#clock.setTimeout(this.#pruneNow, pauseMs);
  }

  #prune(): void {
    this.#stopTimer();
    if (this.#pruning !== undefined) return;
    this.#ended = 0;
    const { maxRuns, maxAgeMs, maxIdleSessionMs, rules } = this.#retention;
    const tenants = [...this.#tenants];
    this.#tenants.clear();
    const now = this.#clock.now();
    try {
      const pruned = this.#store.prune({
        maxRuns,
        endedBefore: now - maxAgeMs,
        sessionsBefore: now - maxIdleSessionMs,
        ...(tenants.length > 0 && { perTenant: { tenants, ...this.#perTenant } }),
        ...(rules.length > 0 && {
          rules: rules.map(({ maxAgeMs, ...rule }) => ({ ...rule, endedBefore: now - maxAgeMs })),
        }),
      });
      if (isPromise(pruned)) this.#pruneOn(pruned, tenants);
      else this.#pruneLater();
    } catch (error) {
      this.#pruneFailed(error, tenants);
      this.#pruneLater();
    }
  }

  #pruneOn(pruned: Promise<unknown>, tenants: readonly string[]): void {
    this.#pruning = endOf(this.#logger, this.#finish(pruned, tenants));
  }

  async #finish(pruned: Promise<unknown>, tenants: readonly string[]): Promise<void> {
    try {
      await pruned;
    } catch (error) {
      this.#pruneFailed(error, tenants);
    }
    this.#pruning = undefined;
    this.#pruneLater();
  }

  /** The tenants are looked at when the store is pruned again. */
  #pruneFailed(error: unknown, tenants: readonly string[]): void {
    for (const tenant of tenants) this.#tenants.add(tenant);
    this.#logger.error("The store failed to delete ended runs and unused sessions. It is tried again later.", {
      error,
    });
  }
}

/** The shortest of the times after which something is deleted. */
function shortestAge({ maxAgeMs, maxIdleSessionMs, rules }: Settings["retention"]): number {
  return Math.min(maxAgeMs, maxIdleSessionMs, ...rules.map((rule) => rule.maxAgeMs));
}

function pauseOf(retention: Settings["retention"]): number {
  return Math.max(MIN_PAUSE_MS, Math.min(MAX_PAUSE_MS, shortestAge(retention) / 10));
}

/**
 * Whether time alone may bring something to delete: a store in memory is within its numbers after each run, and deletes
 * the old events of its feed by itself. `fewest`: the lower limit of a tenant.
 */
function timeBringsMore(retention: Settings["retention"], { persistent, readFeed }: Store, fewest: number): boolean {
  if (shortestAge(retention) < Number.POSITIVE_INFINITY) return true;
  const numbers = [retention.maxRuns, fewest, ...retention.rules.map((rule) => rule.maxRuns)];
  return persistent && (readFeed !== undefined || numbers.some(Number.isFinite));
}
