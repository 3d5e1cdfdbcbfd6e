import { CadenzaError } from "../core/errors.ts";
import type { StepFailure } from "../core/failure.ts";
import type { AwaitedEntry, Entry, Labels } from "../core/log.ts";
import { questionId } from "../core/operation-keys.ts";
import type { FoundRun, RunKey, Store, StoredRun } from "../core/ports.ts";
import type { LogTail, SurveyQuery } from "../core/survey.ts";
import { isOwn } from "../core/tenants.ts";
import { isoTime } from "../core/time.ts";
import type { RunStatus } from "../protocol/run.ts";
import { runStatusSchema } from "../protocol/run.ts";
import { badArgument, checkKeys, checkObject, checkText, read, readTime } from "../runtime/agent/check.ts";
import { readLabels } from "../runtime/agent/labels.ts";
import { cursorOf, readLimit, readPlace } from "../runtime/api/cursors.ts";
import { readLog } from "../runtime/log/fold-log.ts";
import type { PageQuery, RunRef } from "./one-run.ts";
import { readRef } from "./one-run.ts";
import type { AdminFailure, AdminPage, AdminQuestion, AdminRun } from "./records.ts";
import { adminRun } from "./records.ts";
import { schemaIn } from "./timeline-fold.ts";

/** Which runs to list. All conditions must hold. */
export interface AdminRunQuery extends PageQuery {
  /** Only runs of this tenant. Default: of all, but not the runtime's own runs, which have the tenant `cadenza:operators`. */
  readonly tenant?: string | undefined;
  readonly agent_name?: string | undefined;
  /** Only runs of this version of their agent; null: of agents without one. Default: of any. */
  readonly version?: string | null | undefined;
  /** Only runs with this status, or with one of these. `questions` and `failures` have their own. Default: with any. */
  readonly status?: RunStatus | readonly RunStatus[] | undefined;
  /** Only runs with all of these labels, each with this value. Default: with any, and without. */
  readonly labels?: Labels | undefined;
  /** Only runs whose id begins with this text, of at least 4 characters. Default: with any. */
  readonly id?: string | undefined;
  /** Whether to leave out sub-runs. Default: false. */
  readonly roots?: boolean | undefined;
  /** Only runs that were created at this time or later: a `Date`, milliseconds since 1970, or ISO 8601. */
  readonly createdAfter?: Date | number | string | undefined;
  /** Only runs that were created before this time. */
  readonly createdBefore?: Date | number | string | undefined;
  /**
   * Only these runs, at most 500, in this order and on one page: those of them that exist and meet the other conditions.
   * For runs that have changed since they were shown. Not together with `cursor` and `id`. Default: all.
   */
  readonly among?: readonly RunRef[] | undefined;
}

/** Which runs a caller wants, as it was read. */
export interface Wanted extends SurveyQuery {
  readonly among?: readonly RunKey[] | undefined;
}

const known: readonly (keyof AdminRunQuery)[] = [
  "tenant",
  "agent_name",
  "version",
  "status",
  "labels",
  "id",
  "roots",
  "createdAfter",
  "createdBefore",
  "among",
  "cursor",
  "limit",
];
const MIN_ID = 4;
/** How many runs `among` may name. */
const MAX_AMONG = 500;
/** How often the store is asked for one page, where few runs are found. */
const MAX_SURVEYS = 4;
/** How many of its last entries are read of each run. Where they do not tell enough, the whole log is read. */
const TAIL = 100;
/** Of how many waiting runs with long logs the questions are kept. Their logs do not change while they wait. */
const MAX_KEPT = 1_000;

/** Lists of runs of all tenants. */
export class SeveralRuns {
  readonly #store: Store;
  /** The open questions of waiting runs with long logs, with the length of these logs. */
  readonly #kept = new Map<string, { readonly position: number; readonly open: readonly AwaitedEntry[] }>();

  constructor(store: Store) {
    this.#store = store;
  }

  async runs(query: AdminRunQuery): Promise<AdminPage<AdminRun>> {
    const { runs, next } = await this.#page(readQuery(query));
    return { items: runs.map(adminRun), next };
  }

  async questions(query: AdminRunQuery): Promise<AdminPage<AdminQuestion>> {
    const { runs, next } = await this.#page({ ...readQuery(query), statuses: ["awaiting"] });
    const readable = runs.filter(isReadable);
    const tails = await this.#tailsOf(readable);
    const items: AdminQuestion[] = [];
    for (const [index, run] of readable.entries()) {
      const open = await this.#openQuestions(run, tails[index]);
      if (open.length === 0) continue;
      const root = await this.#rootOf(run);
      for (const asked of open) items.push(questionOf(run, root, asked));
    }
    return { items, next };
  }

  async failures(query: AdminRunQuery): Promise<AdminPage<AdminFailure>> {
    const { runs, next } = await this.#page({ ...readQuery(query), statuses: ["failed"] });
    const tails = await this.#tailsOf(runs);
    const items = await Promise.all(runs.map((run, index) => this.#failureOf(run, tails[index])));
    return { items, next };
  }

  /** Asks again while a page is not full, but not without end. */
  async #page({
    among,
    ...query
  }: Wanted): Promise<{ readonly runs: readonly FoundRun[]; readonly next: string | null }> {
    if (among !== undefined) return { runs: await this.#among(among, query), next: null };
    const runs: FoundRun[] = [];
    let after = query.after;
    for (let asked = 0; asked < MAX_SURVEYS; asked++) {
      const page = await this.#store.survey({ ...query, after, limit: query.limit - runs.length });
      for (const run of page.runs) if (!isOwn(run.key.tenant) || query.tenant !== undefined) runs.push(run);
      if (page.next === null) return { runs, next: null };
      after = page.next;
      if (runs.length === query.limit) break;
    }
    return { runs, next: after === undefined ? null : cursorOf(after) };
  }

  /** An id with all its characters selects one run of a tenant by the index of ids. */
  async #among(keys: readonly RunKey[], query: SurveyQuery): Promise<readonly FoundRun[]> {
    const wanted = keys.filter(({ tenant }) => query.tenant === undefined || query.tenant === tenant);
    const pages = wanted.map(({ tenant, run_id }) =>
      this.#store.survey({ ...query, tenant, idPrefix: run_id, limit: 1 }),
    );
    return (await Promise.all(pages)).flatMap(({ runs }) => runs);
  }

  #tailsOf(runs: readonly FoundRun[]) {
    return runs.length === 0
      ? []
      : this.#store.tails(
          runs.map(({ key }) => key),
          TAIL,
        );
  }

  /** A run may have more entries by now than when it was listed. */
  async #openQuestions({ key, position }: StoredRun, tail: LogTail | undefined): Promise<readonly AwaitedEntry[]> {
    if (tail === undefined) return [];
    if (tail.from === 0) return openIn(tail.entries);
    const length = tail.from + tail.entries.length;
    const name = JSON.stringify([key.tenant, key.run_id]);
    const kept = this.#kept.get(name);
    if (kept !== undefined && kept.position === length) return kept.open;
    const open = openIn(await this.#logOf(key, Math.max(length, position)));
    this.#kept.delete(name);
    this.#kept.set(name, { position: length, open });
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= MAX_KEPT) break;
      this.#kept.delete(oldest);
    }
    return open;
  }

  /** The id of the run at the top. If a run above was deleted, its id counts. */
  async #rootOf({ key, created }: StoredRun): Promise<string> {
    let root = key.run_id;
    for (let above: StoredRun["created"] | undefined = created; above?.parent !== undefined; ) {
      root = above.parent.run_id;
      above = (await this.#store.find({ ...key, run_id: root }))?.created;
    }
    return root;
  }

  async #failureOf(run: FoundRun, tail: LogTail | undefined): Promise<AdminFailure> {
    const last = tail?.entries.at(-1);
    const { error = null, key = null, cause } = last?.type === "ended" ? last : {};
    const known = cause ?? (key === null ? null : await this.#causeOf(run, key, tail));
    return { ...adminRun(run), error, key, cause: known };
  }

  async #causeOf(
    { key: run, position }: FoundRun,
    key: string,
    tail: LogTail | undefined,
  ): Promise<StepFailure | null> {
    const near = failureIn(tail?.entries ?? [], key);
    if (near !== null || tail?.from === 0) return near;
    return failureIn(await this.#logOf(run, position), key);
  }

  /** A log that cannot be read hides no other run of the page. It counts as empty. */
  async #logOf(key: RunKey, length: number): Promise<readonly Entry[]> {
    try {
      return (await readLog(this.#store, key, length)) ?? [];
    } catch (error) {
      if (CadenzaError.is(error) && error.run_id !== undefined) return [];
      throw error;
    }
  }
}

function isReadable(run: FoundRun): run is StoredRun {
  return run.created !== null;
}

/** The questions of the run itself that are open after these entries, from the first one of the log on. */
function openIn(log: readonly Entry[]): readonly AwaitedEntry[] {
  const open = new Map<string, AwaitedEntry>();
  for (const entry of log) {
    const id = questionId(entry);
    if (entry.type === "awaited" && entry.of === undefined) open.set(entry.await_id, entry);
    else if (typeof id === "string" && entry.type !== "awaited") open.delete(id);
  }
  return [...open.values()];
}

function failureIn(entries: readonly Entry[], key: string): StepFailure | null {
  const ended = entries.findLast((entry) => entry.type === "step" && entry.key === key);
  return ended?.type === "step" ? ended.error : null;
}

function questionOf({ key, created }: StoredRun, root_run_id: string, asked: AwaitedEntry): AdminQuestion {
  const { agent_name, version = null, labels = {} } = created;
  const { await_id, name = null, kind = "input", parts, at, deadline } = asked;
  return {
    ...{ tenant: key.tenant, run_id: key.run_id, root_run_id, agent_name, version, labels },
    ...{ await_id, name, kind, parts, schema: schemaIn(parts), since: isoTime(at) },
    expires_at: deadline === undefined ? null : isoTime(deadline),
  };
}

/** Reads which runs to list. Throws `invalid_argument`. */
export function readQuery(query: AdminRunQuery): Wanted {
  checkObject("query", query);
  checkKeys("query", query, known);
  const { tenant, agent_name, version, status, labels, id, roots, createdAfter, createdBefore, among } = query;
  const { cursor, limit } = query;
  if (tenant !== undefined && typeof tenant !== "string") throw badArgument("query.tenant", "a string", tenant);
  if (agent_name !== undefined) checkText("query.agent_name", agent_name);
  if (version !== undefined && version !== null) checkText("query.version", version);
  if (roots !== undefined && typeof roots !== "boolean") throw badArgument("query.roots", "true or false", roots);
  if (id !== undefined && (typeof id !== "string" || id.length < MIN_ID))
    throw badArgument("query.id", `a text of at least ${MIN_ID} characters`, id);
  if (among !== undefined && (!Array.isArray(among) || among.length > MAX_AMONG))
    throw badArgument("query.among", `a list of at most ${MAX_AMONG} runs`, among);
  if (among !== undefined && (cursor !== undefined || id !== undefined))
    throw badArgument("query.among", "no cursor and no id beside it", among);
  const statuses = status === undefined || typeof status === "string" ? status && [status] : status;
  return {
    ...{ tenant, agent_name, version, roots, idPrefix: id?.toLowerCase() },
    statuses: statuses?.map((one, index) => read(`query.status.${index}`, runStatusSchema, one)),
    labels: readLabels("query.labels", labels),
    createdAfter: createdAfter === undefined ? undefined : readTime("query.createdAfter", createdAfter),
    createdBefore: createdBefore === undefined ? undefined : readTime("query.createdBefore", createdBefore),
    among: among?.map((run) => readRef(run)),
    after: readPlace(cursor),
    limit: readLimit(limit),
  };
}
