import { CadenzaError } from "../core/errors.ts";
import { LOCAL } from "../core/head.ts";
import type { Entry } from "../core/log.ts";
import { matchingCode } from "../core/matching-code.ts";
import type { NewPause } from "../core/pauses.ts";
import { covers } from "../core/pauses.ts";
import type { AgentVersion, Clock, Mismatch, RunPosition, Store } from "../core/ports.ts";
import { isOwn, isOwnAgent } from "../core/tenants.ts";
import { timeOrNull } from "../core/time.ts";
import { waitingLine } from "../core/waiting-line.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Run } from "../protocol/run.ts";
import { badArgument, checkKey, checkKeys, checkObject, maxLengths } from "../runtime/agent/check.ts";
import type { RuntimeStats } from "../runtime/api/agent-runtime.ts";
import { cursorOf, readLimit, readPair, readText } from "../runtime/api/cursors.ts";
import type { ForkOptions } from "../runtime/api/forks.ts";
import type { Inside } from "../runtime/api/inside.ts";
import { insideKey } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import { guarded } from "../runtime/log/store-failures.ts";
import { machineClock, silentLogger } from "../runtime/log/system.ts";
import type { Watch, WatchedType, WatchOptions } from "../runtime/log/watch.ts";
import { Feed } from "../runtime/log/watch.ts";
import type { CancelOptions } from "../runtime/runs/requests.ts";
import type { AdminAct, ManyQuery } from "./acts.ts";
import { Acts, readActOptions } from "./acts.ts";
import type { AdminFigures, AdminFiguresQuery } from "./figures.ts";
import { RunsOverTime, readFiguresQuery } from "./figures.ts";
import type { AdminTimeline, PageQuery, RunRef, TimelineQuery } from "./one-run.ts";
import { logOf, readPage, readRef, timelineOf, treeOf } from "./one-run.ts";
import type { AdminPause, AdminPauseQuery } from "./pauses.ts";
import { adminPause, checkBy, pauseRuns, readPauseQuery, resumeRuns } from "./pauses.ts";
import type * as records from "./records.ts";
import { adminRun } from "./records.ts";
import type { AdminRunQuery } from "./several-runs.ts";
import { SeveralRuns } from "./several-runs.ts";
import type { StepItem } from "./timeline.ts";

/** The part of an `AgentRuntime` that its operators use. */
export interface OperatedRuntime {
  readonly [insideKey]: Inside<Scope>;
  scope(options: { readonly tenant: string; readonly principal: JsonValue }): Pick<Scope, "fork" | "cancel" | "delete">;
}

/** A store without a runtime, as one that was opened with `readOnly`. */
export interface OperatedStore {
  readonly store: Store;
}

const noMismatch: Mismatch = { position: 0, expected: "", asked: "" };

/** How many runs `changes` compares in one call at most. */
const MAX_COMPARED = 10_000;

/**
 * The operator's side of a runtime, in process and across tenants: what waits and for what, what failed and why, which
 * code is still needed. It reads the store, so it also sees the runs of other processes, and those from before a
 * restart. It has no rights of its own: give it only to code that may see every tenant.
 *
 * Lists come in pages, the newest runs first. Every call reads indexes and a bounded number of runs.
 */
export class Admin {
  /** Undefined: there is only a store. */
  readonly #runtime: OperatedRuntime | undefined;
  readonly #store: Store;
  readonly #feed: Feed;
  readonly #several: SeveralRuns;
  readonly #acts: Acts;
  readonly #overTime: RunsOverTime;
  readonly #clock: Pick<Clock, "now">;
  readonly #principal: JsonValue;

  /** For `createAdmin`. */
  constructor(operated: OperatedRuntime | OperatedStore, principal: JsonValue) {
    this.#principal = principal;
    this.#runtime = insideKey in operated ? operated : undefined;
    this.#store = insideKey in operated ? operated[insideKey].store : guarded(operated.store);
    this.#feed =
      insideKey in operated
        ? operated[insideKey].feed
        : new Feed(this.#store, machineClock(silentLogger), silentLogger);
    this.#several = new SeveralRuns(this.#store);
    this.#overTime = new RunsOverTime(this.#store);
    this.#clock = insideKey in operated ? operated[insideKey].clock : machineClock(silentLogger);
    this.#acts = new Acts(this.#store, insideKey in operated ? () => operated[insideKey] : undefined);
  }

  /**
   * A page of runs. Indexes find them by status, by the beginning of their id, and within a tenant by a label. Other
   * conditions are checked run by run, so that pages may be short. Rejects with `invalid_argument`.
   */
  async runs(query: AdminRunQuery = {}): Promise<records.AdminPage<records.AdminRun>> {
    return this.#several.runs(query);
  }

  /**
   * The open questions of a page of waiting runs: `limit` counts runs. A question is listed once, for the run that asks
   * it. Rejects with `invalid_argument`.
   */
  async questions(query: AdminRunQuery = {}): Promise<records.AdminPage<records.AdminQuestion>> {
    return this.#several.questions(query);
  }

  /** A page of failed runs, each with its error and the recorded cause. Rejects with `invalid_argument`. */
  async failures(query: AdminRunQuery = {}): Promise<records.AdminPage<records.AdminFailure>> {
    return this.#several.failures(query);
  }

  /** A page of blocked runs, the oldest first, with the code that each needs, but not the runtime's own. Rejects with `invalid_argument`. */
  async blocked(query: PageQuery = {}): Promise<records.AdminPage<records.AdminBlocked>> {
    const { cursor, limit } = readPage(query);
    const pair = readPair(cursor);
    const after = pair && { tenant: pair[0], run_id: pair[1] };
    const most = readLimit(limit);
    const found = await this.#store.blocked({ limit: most, after });
    const last = found.length < most ? undefined : found.at(-1)?.key;
    const items = found.flatMap((run) => {
      if (isOwn(run.key.tenant)) return [];
      const { agent_name = "", version = null } = run.created ?? {};
      const mismatch = run.head.blocked ?? noMismatch;
      const { position, expected, asked, newer = false } = mismatch;
      const needs = newer
        ? `A process with a newer version of cadenza, which can read the log: position ${position} holds ${expected}. Update the processes that execute ${named({ agent_name, version })}.`
        : `Code of ${named({ agent_name, version })} that matches the log at position ${position}: it holds ${expected}, the code did ${asked}. Register it, or cancel the run.`;
      return [{ ...adminRun(run), needs, help: matchingCode(mismatch) }];
    });
    return { items, next: last === undefined ? null : cursorOf([last.tenant, last.run_id]) };
  }

  /**
   * The agents and versions with runs that wait for a worker or an event, but whose code this process does not know. None
   * without a runtime: a store does not tell which processes have which code.
   */
  async unregistered(): Promise<readonly records.AdminUnregistered[]> {
    const missing = (await this.backlog()).filter((agent) => this.#codeOf(agent) === "unregistered");
    return missing.map((agent) => ({
      ...agent,
      needs: `A process that registers ${named(agent)}. It has ${agent.due + agent.waiting} runs, ${agent.due} of them due.`,
    }));
  }

  /**
   * What waits, by agent and version: `due` runs wait for a worker or a slot, `waiting` ones for a time or an event, and
   * `blocked` ones of these for other code. A count of 1,001 stands for more than 1,000. `paused`: a pause covers all of them.
   */
  async backlog(): Promise<readonly records.AdminBacklog[]> {
    const found = (await this.#store.backlog()).filter(({ agent_name }) => !isOwnAgent(agent_name));
    const pauses = found.length === 0 ? [] : await this.#store.pauses();
    const ofAll = pauses.filter(({ tenant }) => tenant === undefined);
    return found.map((agent) => ({
      ...agent,
      since: timeOrNull(agent.since),
      paused: ofAll.some((pause) => covers(pause, agent.agent_name, agent.version, "")),
    }));
  }

  /** All pauses, the oldest first. */
  async pauses(): Promise<readonly AdminPause[]> {
    return (await this.#store.pauses()).map(adminPause);
  }

  /**
   * Pauses an agent, a version of it (null: its runs without a version), a tenant, or a combination: no process begins or
   * takes such a run from a second after its next scan on, until it is resumed. New runs are accepted, and stay `created`.
   * A run at work continues to its next rest. `now`: a durable one begins nothing more. It is given back to the store as soon
   * as no body of a step is at work, and continues after the resume in any process. `changed` is false if the same is paused
   * already. Rejects with `invalid_argument`, also for a query that names neither an agent nor a tenant and without a
   * runtime, and with `limit_reached` beyond 1,000 pauses.
   */
  async pause(
    query: AdminPauseQuery,
    options: { readonly now?: boolean | undefined } = {},
  ): Promise<{ readonly changed: boolean }> {
    checkObject("options", options);
    checkKeys("options", options, ["now"]);
    const { now = false } = options;
    if (typeof now !== "boolean") throw badArgument("options.now", "true or false", now);
    return this.#changePauses("pause", query, now ? { now } : {});
  }

  /**
   * Ends the pause of the same query. Its runs go on in their order. `changed` is false if the same is not paused: another
   * pause may cover its runs. Rejects with `invalid_argument`, as `pause` does.
   */
  async resume(query: AdminPauseQuery): Promise<{ readonly changed: boolean }> {
    return this.#changePauses("resume", query);
  }

  async #changePauses(
    action: "pause" | "resume",
    query: AdminPauseQuery,
    how: Pick<NewPause, "now"> = {},
  ): Promise<{ readonly changed: boolean }> {
    const { runs, by = this.#principal } = readPauseQuery(query);
    // The scope checks that it is JSON.
    this.#operated.scope({ tenant: "", principal: by });
    checkBy(by);
    const { audit, pauses } = this.#inside;
    const told = { action, by, ...runs, ...how, tenant: runs.tenant ?? null };
    try {
      const store = this.#store;
      const changed = await (action === "pause"
        ? pauseRuns(store, { ...runs, ...how }, by)
        : resumeRuns(store, runs, pauses));
      audit?.tell({ ...told, outcome: "done", ...(!changed && { repeated: true }) });
      await pauses.read();
      return { changed };
    } catch (error) {
      const code = CadenzaError.is(error) ? error.code : "internal";
      audit?.tell({ ...told, outcome: code === "limit_reached" ? "refused" : "unknown", code });
      throw error;
    }
  }

  /**
   * A page of the slots that runs wait for, by agent: how many runs hold each and wait for it, since when, and which is
   * next. It has the slots that the store counts. Rejects with `invalid_argument`.
   */
  async lines(query: PageQuery = {}): Promise<records.AdminPage<RuntimeStats["lines"][number]>> {
    const { cursor, limit } = readPage(query);
    const most = readLimit(limit);
    const found = await this.#store.lines({ after: readText(cursor), limit: most });
    const last = found.length < most ? undefined : found.at(-1)?.key;
    return { items: found.map(waitingLine), next: last === undefined ? null : cursorOf(last) };
  }

  /**
   * The live runs by agent, version and status, and each version that this process executes. Code may go when its
   * `total` is 0. A count of 1,001 stands for more than 1,000. Ended runs need no code: `runtime.stats()` counts them by agent.
   */
  async versions(): Promise<readonly records.AdminVersion[]> {
    const counted = new Map<string, records.AdminVersion>();
    const add = ({ agent_name, version }: AgentVersion, status?: string, runs = 0): void => {
      const name = JSON.stringify([agent_name, version]);
      const before = counted.get(name)?.live ?? { created: 0, "in-progress": 0, awaiting: 0, cancelling: 0 };
      const live = status === undefined ? before : { ...before, [status]: runs };
      const total = Object.values(live).reduce((sum, one) => sum + one, 0);
      counted.set(name, { agent_name, version, code: this.#codeOf({ agent_name, version }), live, total });
    };
    for (const agent of this.#runtime?.[insideKey].registry.versions ?? []) add(agent);
    for (const { status, runs, ...agent } of await this.#store.census()) add(agent, status, runs);
    return [...counted.values()].filter(({ agent_name }) => !isOwnAgent(agent_name));
  }

  /**
   * The processes that execute runs, or have left some: who holds which lease, until when, with how many live runs. Runs
   * that end with this process have the worker `local`, which needs no lease. On a store that ends with its process no
   * worker needs one.
   */
  async workers(): Promise<readonly records.AdminWorker[]> {
    const found = await this.#store.workers();
    return found.map(({ owner, is_alive, until, runs }) => ({
      worker: owner,
      is_alive: is_alive || owner === LOCAL || !this.#store.persistent,
      until: timeOrNull(until),
      runs,
    }));
  }

  /**
   * Figures over the last hour, day or 30 days: runs that were started and that ended, open questions, tokens, and how long
   * agents were at work and questions open. They are computed from the logs of the runs that the store still has: of the newest
   * 10,000, whichever process executes them. The `Admin` keeps what it has read, so a later call reads what is new. Keep one
   * `Admin` for calls that are repeated. Rejects with `invalid_argument`.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   * import { createAdmin } from "cadenza/admin";
   *
   * const runtime = new AgentRuntime().register("summary", (_input, { usage }) => {
   *   usage.add({ inputTokens: 900, outputTokens: 100 });
   *   return "Short.";
   * });
   * for (const tenant of ["acme", "globex", "acme"])
   *   await runtime.scope({ tenant }).createRun({ agent_name: "summary", input: "" });
   * const { groups } = await createAdmin(runtime).figures({ over: "day", by: "tenant" });
   * for (const { of, total } of groups) console.log(of?.tenant, total.completed, total.total_tokens);
   * // → acme 2 2000
   * // → globex 1 1000
   * await runtime.close();
   * ```
   */
  async figures(query: AdminFiguresQuery = {}): Promise<AdminFigures> {
    return this.#overTime.figures(readFiguresQuery(query), this.#clock.now());
  }

  /** A page of a run's log: its entries as they are stored. Rejects with `run_not_found`. */
  async log(run: RunRef, query: PageQuery = {}): Promise<records.AdminPage<Entry & { readonly position: number }>> {
    return logOf(this.#store, readRef(run), query);
  }

  /**
   * A readable record of a run: its model and tool steps with all attempts, sleeps, messages, questions, sub-runs, output
   * and errors, in the order in which they began. Pass the `position` of an answer as `since` of the next call: it gives
   * the items that have begun or changed since then. Rejects with `run_not_found`.
   */
  async timeline(run: RunRef, query: TimelineQuery = {}): Promise<AdminTimeline> {
    return timelineOf(this.#store, readRef(run), query);
  }

  /** A page of the steps of a run: keys, attempts, times, what they wait for, errors. Rejects with `run_not_found`. */
  async steps(run: RunRef, query: PageQuery = {}): Promise<records.AdminPage<StepItem>> {
    return timelineOf(this.#store, readRef(run), query, (item) => item.type === "step");
  }

  /** A run with all runs below it, up to 1,000. Rejects with `run_not_found`. */
  async tree(run: RunRef): Promise<records.AdminTree> {
    return treeOf(this.#store, readRef(run));
  }

  /**
   * Those of the shown runs that have changed since they were read, at most 10,000 in a call: one query, which reads no
   * log. Pass the runs of lists as they are, or with the figures of an answer of this method.
   *
   * There is no feed of all changes, on purpose. It would need a number in the row of a run that grows with each write,
   * and an index on it: with PostgreSQL each append would then touch every index, and numbers become visible in
   * another order than they are drawn. A reader knows what it shows. What it does not show yet is on the first page.
   */
  async changes(shown: readonly records.AdminChange[]): Promise<readonly records.AdminChange[]> {
    if (!Array.isArray(shown) || shown.length > MAX_COMPARED)
      throw badArgument("shown", `a list of at most ${MAX_COMPARED} runs`, shown);
    const known = shown.map(({ tenant, run_id, epoch, position }): RunPosition => {
      return { key: { tenant, run_id }, epoch, position };
    });
    const moved = await this.#store.moved(known);
    return moved.map(({ key, epoch, position }) => ({ tenant: key.tenant, run_id: key.run_id, epoch, position }));
  }

  /** As {@link Scope.watch}, for the runs of all tenants, or of one. Made of a store alone, it ends with its `signal` only. */
  watch<const Type extends WatchedType = WatchedType>(
    options: WatchOptions<Type> & {
      /** Only events of this tenant. Default: of all. */
      readonly tenant?: string | undefined;
    } = {},
  ): Watch<Type> {
    // The feed refuses it.
    if (options === null) return this.#feed.watch(options, undefined);
    const { tenant, ...others } = options;
    return this.#feed.watch(others, tenant);
  }

  /** As `fork` of the run's tenant. Without a runtime it rejects with `invalid_argument`, as `cancel` and `delete` do. */
  async fork(run: RunRef, options: ForkOptions = {}): Promise<Run> {
    const { tenant, run_id } = readRef(run);
    return this.#scope(tenant).fork(run_id, options);
  }

  /** As `cancel` of the run's tenant. */
  async cancel(run: RunRef, options: CancelOptions = {}): Promise<Run> {
    const { tenant, run_id } = readRef(run);
    return this.#scope(tenant).cancel(run_id, options);
  }

  /**
   * Cancels all runs that meet a query, in the background: resolves when the store has recorded that. A run counts if it
   * existed when the act began, and meets the query when the act comes to it, the newest runs first. {@link act} tells how
   * far it is, and `cancel` of the act stops it. On a durable store another process with an `Admin` continues it when
   * this one is gone. Rejects with `invalid_argument` for a query without a condition, or with one that no such run meets.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   * import { createAdmin } from "cadenza/admin";
   *
   * const runtime = new AgentRuntime().register("refund", (_input, { ask }) => ask("Refund 40 €?"));
   * for (const input of ["A", "B", "C"]) await runtime.createRun({ agent_name: "refund", input });
   * const admin = createAdmin(runtime);
   * const begun = await admin.cancelMany({ agent_name: "refund", status: "awaiting" });
   * const { status, done, left, refused } = await admin.act(begun, { wait: true });
   * console.log(status, done, left, refused); // → completed 3 0 0
   * await runtime.close();
   * ```
   */
  async cancelMany(query: ManyQuery): Promise<AdminAct> {
    return this.#acts.begin(this.#inside, "cancel", query, this.#principal);
  }

  /**
   * Tries all failed runs again that meet a query and have no parent, as {@link cancelMany} cancels: forks each before the
   * operation that failed. A run that such a call has tried again before is left alone, as long as its fork is stored; a
   * fork that has failed is a failed run of its own. The process that does it knows the agents of the runs, whose forks
   * begin in any process that has room.
   */
  async retryMany(query: ManyQuery): Promise<AdminAct> {
    return this.#acts.begin(this.#inside, "retry", query, this.#principal);
  }

  /**
   * Moves all open runs that meet a query to another version of their agent, as {@link cancelMany} cancels: a run is replayed
   * on the code of that version, and moved if it matches its history. The others stay as they are, and refuse with
   * `run_blocked` and where they part. A run at work is moved when it comes to rest; for one that does not, its agent and version
   * are paused for some seconds, so that its process gives it back. The process that does it has the new version
   * registered or declared. Rejects with `invalid_argument`, also on a store that ends with its process.
   *
   * @example
   * ```ts
   * import { AgentRuntime } from "cadenza";
   * import { createAdmin } from "cadenza/admin";
   * import { SqliteStore } from "cadenza/sqlite";
   * import Database from "libsql";
   *
   * const store = new SqliteStore(new Database("orders.db"), { closeDatabase: true });
   * const runtime = new AgentRuntime({ store });
   * runtime.register("order", { durable: true, version: "1" }, (_input, { ask }) => ask("Order it?"));
   * const { run_id } = await runtime.createRun({ agent_name: "order", input: "" });
   * runtime.register("order", { durable: true, version: "2" }, async (_input, { ask, step }) => {
   *   await ask("Order it?");
   *   return step("order", () => "Ordered by version 2.");
   * });
   * const admin = createAdmin(runtime);
   * const { done } = await admin.act(await admin.moveToVersion({ agent_name: "order" }, "2"), { wait: true });
   * const run = await runtime.resume({ run_id, await_resume: { ok: true } });
   * console.log(done, run.output[0]?.parts[0]?.content); // → 1 Ordered by version 2.
   * await runtime.close();
   * ```
   */
  async moveToVersion(query: ManyQuery, version: string | null): Promise<AdminAct> {
    if (version !== null) checkKey("version", version, maxLengths.version);
    if (this.#store.changeVersion === undefined || !this.#store.persistent)
      throw new CadenzaError(
        "invalid_argument",
        "The runs of this store cannot be moved: it has no `changeVersion`, or ends with its process. Register the new code with { replace: true }.",
      );
    return this.#acts.begin(this.#inside, "move", query, this.#principal, { version });
  }

  /**
   * How far {@link cancelMany}, {@link retryMany} or {@link moveToVersion} is. With `wait: true` it resolves when the act has ended; a `signal`
   * ends that wait. Rejects with `run_not_found`.
   */
  async act(
    act: string | Pick<AdminAct, "run_id">,
    options: { readonly wait?: boolean; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<AdminAct> {
    const { run_id } = readRef(act);
    const { wait, signal } = readActOptions(options);
    return wait ? this.#acts.end(this.#inside, run_id, signal) : this.#acts.read(run_id);
  }

  /** As `delete` of the run's tenant. */
  async delete(run: RunRef): Promise<void> {
    const { tenant, run_id } = readRef(run);
    return this.#scope(tenant).delete(run_id);
  }

  #scope(tenant: string): ReturnType<OperatedRuntime["scope"]> {
    if (isOwn(tenant)) return this.#inside.scope(tenant, this.#principal);
    return this.#operated.scope({ tenant, principal: this.#principal });
  }

  get #inside(): Inside<Scope> {
    return this.#operated[insideKey];
  }

  get #operated(): OperatedRuntime {
    if (this.#runtime !== undefined) return this.#runtime;
    throw new CadenzaError(
      "invalid_argument",
      "This Admin was made of a store, which it only reads. To fork, cancel, delete and pause runs, make one of a runtime on that store: createAdmin(runtime).",
    );
  }

  #codeOf({ agent_name, version }: AgentVersion): records.AdminVersion["code"] {
    if (this.#runtime === undefined) return "unknown";
    const { registry } = this.#runtime[insideKey];
    const agent = registry.known(agent_name, version ?? undefined);
    if (agent === undefined) return "unregistered";
    return registry.executes(agent) ? "executed" : "declared";
  }
}

/**
 * Makes the operator's side of a runtime, or of a store alone: then it only reads, and knows no code. Throws
 * `invalid_argument` for anything else. An `Admin` costs little: make one for each operator, with the operator's `principal`.
 *
 * @example
 * ```ts
 * import { AgentRuntime } from "cadenza";
 * import { createAdmin } from "cadenza/admin";
 *
 * const runtime = new AgentRuntime().register("refund", (_input, { ask }) => ask("Refund 40 €?"));
 * const { run_id } = await runtime.scope({ tenant: "acme" }).createRun({ agent_name: "refund", input: "" });
 * const admin = createAdmin(runtime);
 * const { items } = await admin.questions();
 * console.log(items[0]?.tenant, items[0]?.parts[0]?.content); // → acme Refund 40 €?
 * await admin.cancel({ tenant: "acme", run_id }, { wait: true });
 * console.log((await admin.questions()).items.length); // → 0
 * await runtime.close();
 * ```
 */
export function createAdmin(
  operated: OperatedRuntime | OperatedStore,
  options: {
    /** In whose name forks, cancels, deletions and pauses are made: logs and `onAudit` have it as `by`. Default: null. */
    readonly principal?: JsonValue | undefined;
  } = {},
): Admin {
  checkObject("operated", operated);
  const isKnown = insideKey in operated || typeof operated.store?.find === "function";
  if (!isKnown) throw badArgument("operated", "a runtime, or an object with a `store`", operated);
  checkObject("options", options);
  checkKeys("options", options, ["principal"]);
  const { principal = null } = options;
  // The scope checks that it is JSON.
  if (insideKey in operated) operated.scope({ tenant: "", principal });
  return new Admin(operated, principal);
}

function named({ agent_name, version }: AgentVersion): string {
  return `agent ${JSON.stringify(agent_name)}${version === null ? " without a version" : `, version ${JSON.stringify(version)}`}`;
}
