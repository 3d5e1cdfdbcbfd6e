import { onceAborted } from "../core/background.ts";
import { CadenzaError, notFound } from "../core/errors.ts";
import type { Entry } from "../core/log.ts";
import type { RunKey, Store, StoredRun } from "../core/ports.ts";
import { isOwn, OPERATORS } from "../core/tenants.ts";
import { isoTime, timeOrNull } from "../core/time.ts";
import type { ProtocolError } from "../protocol/error.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import type { RunStatus } from "../protocol/run.ts";
import type { Agent } from "../runtime/agent/agent.ts";
import type { DurableContext } from "../runtime/agent/agent-context.ts";
import type { StepScope } from "../runtime/agent/agent-steps.ts";
import { badArgument, checkKeys, checkObject, checkSignal } from "../runtime/agent/check.ts";
import type { Inside as InsideOf } from "../runtime/api/inside.ts";
import { isPassing, outlasting, ownAgent, unlessGone } from "../runtime/api/inside.ts";
import type { Scope } from "../runtime/api/scope.ts";
import { silentLogger } from "../runtime/log/system.ts";
import type { AdminRunQuery } from "./several-runs.ts";
import { readQuery } from "./several-runs.ts";

/** Which runs an operator acts on: a query of {@link Admin.runs}, but for its pages. */
export type ManyQuery = Omit<AdminRunQuery, "cursor" | "limit" | "among">;

/** What an operator does to all runs that meet a query, and how far it is. Its `run_id` names it. */
export interface AdminAct {
  /** The tenant of the act's own run. `cancel`, `delete`, `log` and `timeline` of an {@link Admin} take the act as a run. */
  readonly tenant: string;
  readonly run_id: string;
  readonly act: "cancel" | "retry" | "move";
  /** Of a `move`: the version to which it moves runs; null for the agent without one. */
  readonly version?: string | null;
  /** The query, as JSON. */
  readonly query: JsonObject;
  /** The principal of the operator; null for none. */
  readonly by: JsonValue;
  /** `completed`: each run that met the query is in one of the groups below. */
  readonly status: RunStatus;
  /** Why it has failed; null unless it has. */
  readonly error: ProtocolError | null;
  readonly created_at: string;
  readonly finished_at: string | null;
  /** How many runs it has found, all of them before it acts on the first. The three below are how far it is with these. */
  readonly matched: number;
  /** How many it has cancelled, tries again, or has moved. */
  readonly done: number;
  /**
   * How many it has left alone: they ended, changed or were deleted after they were found, or were tried again before. Of two
   * acts at the same time each may count a run as done.
   */
  readonly left: number;
  /** How many have refused. Of a `move`: their code does not match, or a process has kept them. */
  readonly refused: number;
  /** The first 100 of these, with the error of each. Of a `move` the first 10,000. */
  readonly errors: readonly RefusedRun[];
}

interface RefusedRun {
  readonly tenant: string;
  readonly run_id: string;
  readonly code: string;
  readonly message: string;
}

type Inside = InsideOf<Scope>;

/** The runs of a page are found and recorded together, and acted on together. */
const PAGE = 200;
/** How many of them at a time. After each the event loop has a turn. */
const AT_ONCE = 8;
/** Of a move: most of its time is spent on runs whose code takes long. */
const MOVES_AT_ONCE = 50;
/** How often the store is asked for a page in one step, where few of the runs match. */
const MAX_SURVEYS = 20;
/** How often a page is tried with a store that fails. After that, the runs whose calls still fail have refused. */
const PATIENCE = 5;
const MAX_ERRORS = 100;
/** Of a move: each run is moved, or named with what keeps it. */
const MAX_KEPT = 10_000;
/** How many entries of an act's log are read at a time. */
const CHUNK = 20;

/** The statuses of the runs on which something can be done. */
const statusesOf: Readonly<Record<AdminAct["act"], readonly RunStatus[]>> = {
  cancel: ["created", "in-progress", "awaiting"],
  retry: ["failed"],
  move: ["created", "in-progress", "awaiting"],
};

/** The metadata of an act's run. */
interface Recorded {
  readonly act: AdminAct["act"];
  readonly query: ManyQuery & JsonObject;
  /** Of a `move`. */
  readonly version?: string | null;
}

interface Figures {
  /** How many runs there are. */
  readonly matched: number;
  readonly done: number;
  readonly left: number;
  readonly refused: number;
}

/** The result of a step `find`: a page of runs, how many there are so far, and where the next page begins. */
interface Found {
  readonly runs: readonly (readonly [tenant: string, run_id: string])[];
  readonly matched: number;
  readonly next: number | null;
}

/** The result of a step `act`: the figures so far, and the runs of its page that have refused, as far as they are kept. */
interface Acted extends Figures {
  readonly errors: readonly RefusedRun[];
}

type Outcome = "done" | "left" | RefusedRun;

/** Begins acts on many runs, and tells how far they are. */
export class Acts {
  readonly #store: Store;

  /** `inside`: of the runtime that may execute them. Undefined: there is only a store. */
  constructor(store: Store, inside: (() => Inside) | undefined) {
    this.#store = store;
    inside?.().register(actAgent(inside));
  }

  /** Resolves when the store has the act. Throws `invalid_argument`. */
  async begin(
    inside: Inside,
    act: AdminAct["act"],
    query: ManyQuery,
    by: JsonValue,
    to: Pick<Recorded, "version"> = {},
  ): Promise<AdminAct> {
    const metadata = { act, query: readMany(act, query), ...to };
    const agent = inside.register(actAgent(() => inside));
    const { run_id } = await inside.begin(agent, { principal: by, options: { metadata } });
    return this.read(run_id);
  }

  /** How far an act is, by its id. Throws `run_not_found`. */
  async read(run_id: string): Promise<AdminAct> {
    const key = { tenant: OPERATORS, run_id };
    const stored = await this.#store.find(key);
    if (stored === undefined) throw notFound(run_id);
    const { created, head } = stored;
    const { act, query, version } = created.metadata as unknown as Recorded;
    const { found, acted, error } = await this.#last(stored);
    const { matched, done, left, refused } = acted ?? { ...nothing, matched: found?.matched ?? 0 };
    return {
      ...key,
      ...{ act, ...(version !== undefined && { version }) },
      ...{ query, by: created.principal ?? null, status: head.status, error },
      ...{ created_at: isoTime(created.at), finished_at: timeOrNull(head.finished_at) },
      ...{ matched, done, left, refused },
      errors: refused === 0 ? [] : await this.#errorsOf(stored, Math.min(refused, mostErrors(act))),
    };
  }

  /** Waits for the end of an act, and tells what it has done. */
  async end(inside: Inside, run_id: string, signal: AbortSignal | undefined): Promise<AdminAct> {
    signal?.throwIfAborted();
    const events = inside.scope(OPERATORS, null).events(run_id, { until: "end" });
    const unfollow = signal && onceAborted(silentLogger, signal, () => events.return?.());
    try {
      for await (const _ of events) {
        // The loop ends with the act, or with the wait.
      }
    } finally {
      unfollow?.();
    }
    signal?.throwIfAborted();
    return this.read(run_id);
  }

  /** How the act ended, and the last result of a step: all runs are found before one is acted on. The log is read backwards. */
  async #last({ key, position }: StoredRun) {
    let found: Found | undefined;
    let acted: Acted | undefined;
    let error: ProtocolError | null = null;
    for (let end = position; end > 0 && found === undefined && acted === undefined; end -= CHUNK) {
      const from = Math.max(0, end - CHUNK);
      const entries = (await this.#store.read(key, from, end - from)) ?? [];
      for (const entry of entries.toReversed()) {
        if (entry.type === "ended") error = entry.error ?? null;
        acted ??= actedBy(entry);
        found ??= acted === undefined ? resultOf<Found>(entry, "find#") : undefined;
      }
    }
    return { found, acted, error };
  }

  async #errorsOf({ key, position }: StoredRun, most: number): Promise<readonly RefusedRun[]> {
    const errors: RefusedRun[] = [];
    for (let from = 0; from < position && errors.length < most; from += CHUNK) {
      const entries = (await this.#store.read(key, from, Math.min(CHUNK, position - from))) ?? [];
      for (const entry of entries) errors.push(...(actedBy(entry)?.errors ?? []));
    }
    return errors.slice(0, most);
  }
}

function mostErrors(act: AdminAct["act"]): number {
  return act === "move" ? MAX_KEPT : MAX_ERRORS;
}

const nothing: Figures = { matched: 0, done: 0, left: 0, refused: 0 };

/** What an act had done by an entry of its log: the end of a page, or where it was stopped. */
function actedBy(entry: Entry): Acted | undefined {
  const isTold = entry.type === "emitted" && entry.kind === "generic";
  return isTold ? (entry.generic as unknown as Acted) : resultOf<Acted>(entry, "act#");
}

function resultOf<Result>(entry: Entry, key: string): Result | undefined {
  const isResult = entry.type === "step" && entry.key.startsWith(key) && entry.error === null;
  return isResult ? (entry.result as Result) : undefined;
}

const conditions: readonly (keyof ManyQuery)[] = [
  ...(["tenant", "agent_name", "version", "status", "labels", "id", "roots"] as const),
  ...(["createdAfter", "createdBefore"] as const),
];

/** The query as JSON. Throws `invalid_argument` if it has no condition, or one that no run can meet. */
function readMany(act: AdminAct["act"], query: ManyQuery): JsonObject {
  checkObject("query", query);
  checkKeys("query", query, conditions);
  const { statuses, labels, createdAfter, createdBefore, ...wanted } = readQuery(query);
  const { tenant, agent_name, version, idPrefix: id, roots } = wanted;
  const may = statusesOf[act];
  if (statuses?.length === 0 || statuses?.some((status) => !may.includes(status)))
    throw badArgument("query.status", `one of ${may.join(", ")}, on which a ${act} can act`, query.status);
  if (tenant !== undefined && isOwn(tenant)) throw badArgument("query.tenant", "a tenant of the application", tenant);
  if (createdAfter !== undefined && createdBefore !== undefined && createdAfter >= createdBefore)
    throw badArgument("query.createdBefore", "a time after query.createdAfter", query.createdBefore);
  const given = {
    ...{ tenant, agent_name, version, id, roots: roots === true ? roots : undefined },
    status: statuses && [...new Set(statuses)],
    labels: labels !== undefined && Object.keys(labels).length > 0 ? labels : undefined,
    createdAfter: createdAfter === undefined ? undefined : isoTime(createdAfter),
    createdBefore: createdBefore === undefined ? undefined : isoTime(createdBefore),
  };
  const known = Object.entries(given).filter(([, value]) => value !== undefined);
  if (known.length === 0) throw badArgument("query", "at least one condition, so that not all runs are meant", query);
  return Object.fromEntries(known) as JsonObject;
}

/**
 * The agent that acts on many runs: step by step it finds a page of runs, and then acts on page after page. What was found
 * is in its log, so that a process which takes the act over after a crash acts on the same runs.
 */
function actAgent(inside: () => Inside): Agent {
  const fn = async (
    _input: unknown,
    { step, emit, signal, metadata, principal, now, run_id }: DurableContext,
  ): Promise<void> => {
    const { act, query, version } = metadata as unknown as Recorded;
    const beganAt = now();
    let figures: Figures = nothing;
    let atWork: Promise<Acted> | undefined;
    try {
      const pages: Found["runs"][] = [];
      let matched = 0;
      for (let after: number | null | undefined; after !== null; ) {
        const from = after;
        const before = matched;
        const find = () => findPage(inside(), act, query, { after: from, beganAt, matched: before });
        const found = await step("find", find, { retry });
        if (found.runs.length > 0) pages.push(found.runs);
        ({ next: after, matched } = found);
      }
      for (const runs of pages) {
        const page: Page = { run_id, act, query, version, principal, beganAt, runs, figures: { ...figures, matched } };
        const actOnPage = (scope: StepScope): Promise<Acted> => {
          atWork = actOn(inside(), page, scope);
          return atWork;
        };
        figures = await step("act", actOnPage, { retry });
        atWork = undefined;
      }
    } finally {
      // A step that was stopped has no result in the log.
      const acted = signal.aborted ? await atWork?.catch(actedUntil) : undefined;
      if (acted !== undefined) await emit(acted);
      if (signal.aborted && act === "move") await (await import("./moving.ts")).endPausesOf(inside(), run_id);
    }
  };
  return ownAgent("act", fn);
}

/** An act outlasts a store that fails, and waits in a process that is closed or full. */
const retry = { ...outlasting, when: mayPass };
const fullness: ReadonlySet<string | undefined> = new Set([
  ...["maxLiveRuns", "maxQueuedRuns", "perTenant.liveRuns", "perTenant.queuedRuns"],
]);

function mayPass(error: unknown): boolean {
  return isPassing(error) || (CadenzaError.is(error) && fullness.has(error.limit));
}

/** Runs that were created later than the act are not found: neither are the forks that it makes. */
async function findPage(
  { store, clock }: Inside,
  act: AdminAct["act"],
  query: ManyQuery,
  {
    after,
    beganAt,
    matched,
  }: { readonly after: number | undefined; readonly beganAt: number; readonly matched: number },
): Promise<Found> {
  const { createdBefore = Number.POSITIVE_INFINITY, statuses = statusesOf[act], ...wanted } = readQuery(query);
  // A sub-run is tried again by the run above it.
  const roots = act === "retry" ? true : wanted.roots;
  let next: number | null | undefined = after;
  for (let asked = 0; asked < MAX_SURVEYS && next !== null; asked++) {
    // Page is found after page.
    await clock.turn();
    const before = Math.min(createdBefore, beganAt + 1);
    const page = await store.survey({ ...wanted, statuses, roots, createdBefore: before, after: next, limit: PAGE });
    next = page.next;
    const runs = page.runs.flatMap(({ key }) => (isOwn(key.tenant) ? [] : [[key.tenant, key.run_id] as const]));
    if (runs.length > 0) return { runs, matched: matched + runs.length, next };
  }
  return { runs: [], matched, next: next ?? null };
}

/** An act is stopped at a page, or leaves its process: then another one does the page again. */
class Stopped extends Error {
  /** What had been done until then, with the pages before. */
  readonly acted: Acted;

  constructor(acted: Acted) {
    super("The act was stopped.");
    this.acted = acted;
  }
}

function actedUntil(error: unknown): Acted | undefined {
  return error instanceof Stopped ? error.acted : undefined;
}

/** A page of runs, and what is to be done to them. */
interface Page extends Omit<Recorded, "version"> {
  /** Of the act. */
  readonly run_id: string;
  readonly version: string | null | undefined;
  readonly principal: JsonValue;
  readonly beganAt: number;
  readonly runs: Found["runs"];
  /** What was done to the runs of the pages before. */
  readonly figures: Figures;
}

async function actOn(inside: Inside, page: Page, { attempt, signal }: StepScope): Promise<Acted> {
  const { act, runs, figures } = page;
  const moving = act === "move" ? await beginMove(inside, page, attempt) : undefined;
  const actOnOne = moving?.moveOne ?? (act === "cancel" ? cancelOne : retryOne);
  const outcomes: Outcome[] = [];
  const atOnce = moving === undefined ? AT_ONCE : MOVES_AT_ONCE;
  try {
    for (let from = 0; from < runs.length; from += atOnce) {
      if (signal.aborted) throw new Stopped(actedWith(figures, outcomes, mostErrors(act)));
      const some = runs.slice(from, from + atOnce);
      const tried = await Promise.allSettled(
        some.map(([tenant, run_id]) => actOnOne(inside, { tenant, run_id }, page, attempt)),
      );
      for (const [index, one] of tried.entries()) {
        if (one.status === "fulfilled") outcomes.push(one.value);
        else outcomes.push(await refusalOf(some[index] ?? ["", ""], one.reason, attempt, inside.store));
      }
      await inside.clock.turn();
    }
  } finally {
    await moving?.end();
  }
  return actedWith(figures, outcomes, mostErrors(act));
}

/** What replays runs is loaded with the first move: the other acts do without it. */
async function beginMove(inside: Inside, page: Page, attempt: number) {
  const { Moving } = await import("./moving.ts");
  return new Moving(inside, page, attempt);
}

/** The figures after a page, or after a part of it. */
function actedWith(figures: Figures, outcomes: readonly Outcome[], most: number): Acted {
  const errors = outcomes.filter((one) => typeof one === "object");
  return {
    matched: figures.matched,
    done: figures.done + outcomes.filter((one) => one === "done").length,
    left: figures.left + outcomes.filter((one) => one === "left").length,
    refused: figures.refused + errors.length,
    errors: errors.slice(0, Math.max(0, most - figures.refused)).map((error) => ({ ...error })),
  };
}

/** Throws what may pass, unless the store fails this run alone. */
async function refusalOf(
  [tenant, run_id]: Found["runs"][number],
  error: unknown,
  attempt: number,
  store: Store,
): Promise<RefusedRun> {
  const passes = mayPass(error);
  const isOfStore = CadenzaError.is(error) && error.code !== "runtime_closed" && error.code !== "limit_reached";
  if (passes && !(isOfStore && attempt >= PATIENCE)) throw error;
  // It throws while the store fails all runs.
  if (passes) await store.living();
  if (!CadenzaError.is(error)) throw error;
  return { tenant, run_id, code: error.code, message: error.message };
}

/** An earlier attempt may have cancelled the run. */
async function cancelOne(inside: Inside, key: RunKey, page: Page, attempt: number): Promise<Outcome> {
  const stored = await inside.store.find(key);
  if (stored === undefined) return "left";
  const { status } = stored.head;
  if (status === "cancelling" || status === "cancelled") return attempt > 1 ? "done" : "left";
  const { statuses = statusesOf.cancel } = readQuery(page.query);
  if (!statuses.includes(status)) return "left";
  const cancel = () => inside.scope(key.tenant, page.principal).cancel(key.run_id);
  return (await unlessGone(cancel)) ? "done" : "left";
}

/**
 * A run is tried again once, whatever act does it: the key is made of the run alone. An earlier attempt may have
 * made the fork.
 */
async function retryOne(inside: Inside, key: RunKey, page: Page, attempt: number): Promise<Outcome> {
  const { store } = inside;
  const stored = await store.find(key);
  if (stored === undefined || stored.head.status !== "failed") return "left";
  const idempotencyKey = `cadenza:retry:${key.run_id}`;
  const made = await store.findByIdempotencyKey(key.tenant, idempotencyKey);
  if (made?.created.origin?.run_id === key.run_id)
    return attempt > 1 && made.created.at >= page.beganAt ? "done" : "left";
  const fork = () => inside.scope(key.tenant, page.principal).fork(key.run_id, { idempotencyKey, mode: "async" });
  return (await unlessGone(fork)) ? "done" : "left";
}

/** Reads how to tell of an act. Throws `invalid_argument`. */
export function readActOptions(options: { readonly wait?: boolean; readonly signal?: AbortSignal | undefined }) {
  checkObject("options", options);
  checkKeys("options", options, ["wait", "signal"]);
  const { wait = false, signal } = options;
  if (typeof wait !== "boolean") throw badArgument("options.wait", "true or false", wait);
  checkSignal("options.signal", signal);
  return { wait, signal };
}
