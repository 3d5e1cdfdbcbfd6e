import { CadenzaError } from "../core/errors.ts";
import type { FoundRun, RunKey, RunPosition, Store, StoredRun } from "../core/ports.ts";
import { RunMap } from "../core/run-map.ts";
import { isOwn, isOwnAgent } from "../core/tenants.ts";
import { isoTime } from "../core/time.ts";
import { badArgument, checkChoice, checkKeys, checkObject, checkText } from "../runtime/agent/check.ts";
import { turnOf } from "../runtime/log/fold-log.ts";
import type { RunFacts } from "./run-facts.ts";
import { RunFactsFold } from "./run-facts.ts";

/** Which figures over time. */
export interface AdminFiguresQuery {
  /** The last hour by minutes, the last day by half hours, or the last 30 days by days. Default: `day`. */
  readonly over?: "hour" | "day" | "month" | undefined;
  /** What each of the `groups` is. Default: `agent`. */
  readonly by?: "agent" | "version" | "tenant" | "model" | undefined;
  /** Only runs of this agent. Default: of all but the runtime's own. */
  readonly agent_name?: string | undefined;
  /** Only runs of this version of their agent; null: of agents without one. Default: of any. */
  readonly version?: string | null | undefined;
  /** Only runs of this tenant. Default: of all. */
  readonly tenant?: string | undefined;
}

/** Figures of one stretch of time. Sub-runs count as runs, and what they use counts for them alone. Durations are in milliseconds. */
export interface AdminFigure {
  /** Runs whose agent was called. */
  readonly started: number;
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
  /** Questions that are open at the end of the time. */
  readonly waiting: number;
  /** Calls of models by `aiSdk(context)`, and other steps that are recorded as such. */
  readonly calls: number;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
  /** How long the agents of the runs that completed or failed were at work. Null: no run did. */
  readonly active_p50_ms: number | null;
  readonly active_p99_ms: number | null;
  /** How long the questions were open that were answered, declined or given up. Null: no question was. */
  readonly waited_p50_ms: number | null;
  readonly waited_p99_ms: number | null;
}

/** What is counted together. */
export interface AdminFigureGroup {
  /** What its runs have in common, by the query's `by`. Null: the runs of all groups beyond the first eight. */
  readonly of: {
    readonly agent_name?: string;
    readonly version?: string | null;
    readonly tenant?: string;
    /** Null: tokens that were reported without a recorded call of a model. */
    readonly model?: string | null;
  } | null;
  readonly total: AdminFigure;
  /** One for each step of time, the first one first. */
  readonly steps: readonly AdminFigure[];
}

/** Figures over time. */
export interface AdminFigures {
  /** The begin of the first step. */
  readonly from: string;
  readonly step_ms: number;
  readonly all: AdminFigureGroup;
  /** Those that used the most tokens first; without tokens, those of which the most runs were started. */
  readonly groups: readonly AdminFigureGroup[];
  /** How many runs are counted. */
  readonly runs: number;
  /** Runs that were created before this time are not counted, unless they are live. */
  readonly since: string;
  /** Whether it counts all runs of the time. False: there are more than 10,000, and the newest of them are counted. */
  readonly complete: boolean;
}

const MINUTE_MS = 60_000;
const DAY_MS = 1_440 * MINUTE_MS;
/** How long a step is, and how many there are. */
const spans = {
  hour: { step_ms: MINUTE_MS, steps: 60 },
  day: { step_ms: 30 * MINUTE_MS, steps: 48 },
  month: { step_ms: DAY_MS, steps: 30 },
} as const;
/** How many groups are shown apart. */
const MAX_GROUPS = 8;
/** Of how many of the newest runs the facts are kept. */
const MAX_RUNS = 10_000;
/** How many of the live runs that were created before are looked at. */
const MAX_OLD = 1_000;
/** How many runs are found, compared or read at a time. */
const PAGE = 100;
const CHUNK = 500;
/** After how many logs that a store in this process gives at once the event loop has a turn. */
const TURN_RUNS = 10;
/** After how many runs that are counted the event loop has a turn. */
const TURN_FACTS = 1_000;

/** After how long it is looked whether ended runs were deleted, in milliseconds. */
const CHECK_MS = 60_000;

const live = ["created", "in-progress", "awaiting", "cancelling"] as const;

/** A query with its defaults. */
export interface FiguresWanted extends AdminFiguresQuery {
  readonly over: keyof typeof spans;
  readonly by: NonNullable<AdminFiguresQuery["by"]>;
}

/** Reads a query. Throws `invalid_argument`. */
export function readFiguresQuery(query: AdminFiguresQuery): FiguresWanted {
  checkObject("query", query);
  checkKeys("query", query, ["over", "by", "agent_name", "version", "tenant"]);
  const { over = "day", by = "agent", agent_name, version, tenant } = query;
  checkChoice("query.over", over, ["hour", "day", "month"]);
  checkChoice("query.by", by, ["agent", "version", "tenant", "model"]);
  if (agent_name !== undefined) checkText("query.agent_name", agent_name);
  if (tenant !== undefined) checkText("query.tenant", tenant);
  if (version !== undefined && version !== null && typeof version !== "string")
    throw badArgument("query.version", "a string or null", version);
  return { over, by, agent_name, version, tenant };
}

/** What is known of a run. */
interface Known {
  readonly key: RunKey;
  readonly createdAt: number;
  epoch: number;
  position: number;
  /** Undefined: its log cannot be read. */
  facts: RunFacts | undefined;
  /** Undefined: it has ended, and nothing of it changes but that it may be deleted. */
  fold: RunFactsFold | undefined;
}

/**
 * The facts of the newest runs of a store. Each log is read once, and of a live run what is new. Nothing is read while no
 * caller asks, and nothing is ever written.
 */
export class RunsOverTime {
  readonly #store: Store;
  readonly #known = new RunMap<Known>();
  /** All runs that were created since are known; `Infinity` before the first look. */
  #since = Number.POSITIVE_INFINITY;
  /** When it was last looked whether ended runs were deleted. */
  #checkedAt = Number.NEGATIVE_INFINITY;
  /** Looks come one after the other: a second one finds what the first one has read. */
  #looking: Promise<unknown> = Promise.resolve();

  constructor(store: Store) {
    this.#store = store;
  }

  /** The figures up to a time, in milliseconds since the epoch. */
  async figures(query: FiguresWanted, now: number): Promise<AdminFigures> {
    const { step_ms, steps } = spans[query.over];
    const to = (Math.floor(now / step_ms) + 1) * step_ms;
    const from = to - steps * step_ms;
    const wanted = 2 * from - to;
    const looking = this.#looking.then(() => this.#look(wanted, now));
    this.#looking = looking.catch(() => undefined);
    await looking;
    const since = Math.max(wanted, this.#since);
    const facts = [...this.#known.values()].flatMap((known) => known.facts ?? []);
    const span = { from, step_ms, steps, since, complete: since <= from };
    return figuresOf(facts, query, span, () => turnOf(this.#store));
  }

  /** Gets to know all runs that were created since a time, as far as it may. */
  async #look(wanted: number, now: number): Promise<void> {
    await this.#update(now);
    const isFirst = this.#since === Number.POSITIVE_INFINITY;
    const reached = await this.#find(wanted);
    if (isFirst || reached < this.#since) await this.#findOld(reached);
    this.#since = Math.min(this.#since, reached);
    this.#forget();
  }

  /** Reads the runs that were created since a time, the newest first. Resolves with the time up to which it has come. */
  async #find(wanted: number): Promise<number> {
    const isEnough = this.#since <= wanted || this.#known.size >= MAX_RUNS;
    let after: number | undefined;
    let last = Number.POSITIVE_INFINITY;
    for (let read = 0; read < MAX_RUNS; ) {
      const page = await this.#store.survey({ createdAfter: wanted, limit: PAGE, after });
      last = page.runs.findLast(isReadable)?.created.at ?? last;
      const fresh = this.#fresh(page.runs);
      await this.#read(fresh);
      read += fresh.length;
      if (page.next === null) return isEnough ? this.#since : wanted;
      // Times of creation may be a little out of order: a page on which all runs are known ends the search.
      if (isEnough && page.runs.length > 0 && fresh.length === 0) return this.#since;
      after = page.next;
      await turnOf(this.#store);
    }
    return last;
  }

  /** Reads the live runs that were created before a time. */
  async #findOld(before: number): Promise<void> {
    for (const status of live) {
      const { runs } = await this.#store.survey({ statuses: [status], createdBefore: before, limit: MAX_OLD });
      await this.#read(this.#fresh(runs));
    }
  }

  #fresh(runs: readonly FoundRun[]): readonly StoredRun[] {
    return runs.filter(isReadable).filter((run) => isCounted(run) && !this.#known.has(run.key));
  }

  /** Reads what is new in the logs of live runs, and forgets those that were deleted; of ended runs from time to time. */
  async #update(now: number): Promise<void> {
    const isDue = Math.abs(now - this.#checkedAt) >= CHECK_MS;
    if (isDue) this.#checkedAt = now;
    const open = [...this.#known.values()].filter(({ fold }) => isDue || fold !== undefined);
    for (let from = 0; from < open.length; from += CHUNK) {
      const moved = await this.#store.moved(open.slice(from, from + CHUNK));
      for (const { key, epoch, position } of moved) {
        const known = this.#known.get(key);
        if (known === undefined) continue;
        if (position === 0) this.#known.delete(key);
        else if (known.fold !== undefined) await this.#readOn(known, known.fold, { epoch, position });
      }
      await turnOf(this.#store);
    }
  }

  async #read(runs: readonly StoredRun[]): Promise<void> {
    for (const [index, run] of runs.entries()) {
      const { key, created, head, position } = run;
      const known: Known = { key, epoch: 0, position: 0, createdAt: created.at, facts: undefined, fold: undefined };
      this.#known.set(key, known);
      await this.#readOn(known, new RunFactsFold(key.tenant), { epoch: head.epoch, position });
      if (index % TURN_RUNS === TURN_RUNS - 1) await turnOf(this.#store);
    }
  }

  /** A log that cannot be read, or is deleted meanwhile, counts as far as it was read. */
  async #readOn(known: Known, fold: RunFactsFold, until: Pick<RunPosition, "epoch" | "position">): Promise<void> {
    try {
      while (fold.position < until.position) {
        const entries = await this.#store.read(known.key, fold.position, CHUNK);
        if (entries === undefined || entries.length === 0) break;
        for (const entry of entries) fold.add(entry);
        if (entries.length === CHUNK) await turnOf(this.#store);
      }
    } catch (error) {
      if (!CadenzaError.is(error) || error.run_id === undefined) throw error;
    }
    known.facts = fold.facts();
    known.fold = known.facts === undefined || known.facts.ended_at !== null ? undefined : fold;
    Object.assign(known, { epoch: until.epoch, position: until.position });
  }

  /** Forgets the oldest ended runs beyond the number that is kept. */
  #forget(): void {
    const beyond = this.#known.size - MAX_RUNS - MAX_OLD * live.length;
    if (beyond <= 0) return;
    const ended = [...this.#known.values()].filter(({ fold }) => fold === undefined);
    ended.sort((a, b) => a.createdAt - b.createdAt);
    for (const { key, createdAt } of ended.slice(0, beyond)) {
      this.#known.delete(key);
      this.#since = Math.max(this.#since, createdAt + 1);
    }
  }
}

function isReadable(run: FoundRun): run is StoredRun {
  return run.created !== null;
}

function isCounted({ key, created }: StoredRun): boolean {
  return !isOwn(key.tenant) && !isOwnAgent(created.agent_name);
}

interface Span {
  readonly from: number;
  readonly step_ms: number;
  readonly steps: number;
  readonly since: number;
  readonly complete: boolean;
}

async function figuresOf(
  known: readonly RunFacts[],
  query: FiguresWanted,
  span: Span,
  turn: () => Promise<void>,
): Promise<AdminFigures> {
  const { agent_name, version, tenant } = query;
  const facts = known.filter(
    (run) =>
      (agent_name === undefined || run.agent_name === agent_name) &&
      (version === undefined || run.version === version) &&
      (tenant === undefined || run.tenant === tenant),
  );
  const all = new Tally(span);
  const tallies = new Map<string, { readonly of: AdminFigureGroup["of"]; readonly tally: Tally }>();
  const tallyOf = (of: NonNullable<AdminFigureGroup["of"]>): Tally => {
    const name = JSON.stringify(Object.values(of));
    const found = tallies.get(name) ?? { of, tally: new Tally(span) };
    tallies.set(name, found);
    return found.tally;
  };
  for (const [index, run] of facts.entries()) {
    if (index % TURN_FACTS === TURN_FACTS - 1) await turn();
    all.add(run);
    if (query.by !== "model") tallyOf(groupOf(run, query.by)).add(run);
    else for (const spent of run.spent) tallyOf({ model: spent.model }).spend(spent);
  }
  const groups = [...tallies]
    .map(([name, { of, tally }]) => ({ name, of, tally, total: tally.total() }))
    .filter(({ total }) => isSeen(total))
    .sort(
      (a, b) =>
        b.total.total_tokens - a.total.total_tokens || b.total.started - a.total.started || (a.name < b.name ? -1 : 1),
    );
  const rest = groups.slice(MAX_GROUPS);
  const others = new Tally(span);
  for (const { tally } of rest) others.join(tally);
  return {
    ...{ from: isoTime(span.from), step_ms: span.step_ms, all: groupFrom(null, all) },
    groups: [
      ...groups.slice(0, MAX_GROUPS).map(({ of, total, tally }) => ({ of, total, steps: tally.steps() })),
      ...(rest.length > 0 ? [groupFrom(null, others)] : []),
    ],
    ...{ runs: facts.length, since: isoTime(Math.max(0, span.since)), complete: span.complete },
  };
}

function groupOf({ agent_name, version, tenant }: RunFacts, by: "agent" | "version" | "tenant") {
  if (by === "tenant") return { tenant };
  return by === "agent" ? { agent_name } : { agent_name, version };
}

function isSeen({ started, completed, failed, cancelled, waiting, total_tokens, calls }: AdminFigure): boolean {
  return started + completed + failed + cancelled + waiting + total_tokens + calls > 0;
}

function groupFrom(of: AdminFigureGroup["of"], tally: Tally): AdminFigureGroup {
  return { of, total: tally.total(), steps: tally.steps() };
}

/** What is counted in a step. */
class Step {
  started = 0;
  completed = 0;
  failed = 0;
  cancelled = 0;
  waiting = 0;
  calls = 0;
  input_tokens = 0;
  output_tokens = 0;
  total_tokens = 0;
  readonly active: number[] = [];
  readonly waited: number[] = [];

  join(other: Step): void {
    this.started += other.started;
    this.completed += other.completed;
    this.failed += other.failed;
    this.cancelled += other.cancelled;
    this.waiting += other.waiting;
    this.calls += other.calls;
    this.input_tokens += other.input_tokens;
    this.output_tokens += other.output_tokens;
    this.total_tokens += other.total_tokens;
    // As arguments of one call they could be too many.
    for (const ms of other.active) this.active.push(ms);
    for (const ms of other.waited) this.waited.push(ms);
  }

  figure(): AdminFigure {
    const { active, waited, ...counts } = this;
    const [active_p50_ms, active_p99_ms] = quantiles(active);
    const [waited_p50_ms, waited_p99_ms] = quantiles(waited);
    return { ...counts, active_p50_ms, active_p99_ms, waited_p50_ms, waited_p99_ms };
  }
}

/** Counts runs by steps of time. */
class Tally {
  readonly #span: Span;
  readonly #steps: readonly Step[];

  constructor(span: Span) {
    this.#span = span;
    this.#steps = Array.from({ length: span.steps }, () => new Step());
  }

  add({ started_at, ended_at, outcome, active_ms, questions, spent }: RunFacts): void {
    const begun = this.#at(started_at);
    if (begun !== undefined) begun.started += 1;
    const ended = this.#at(ended_at);
    if (ended !== undefined && outcome !== null) {
      ended[outcome] += 1;
      if (outcome !== "cancelled" && active_ms !== null) ended.active.push(active_ms);
    }
    for (const { from, to } of questions) {
      if (to !== null) this.#at(to)?.waited.push(to - from);
      this.#wait(from, to);
    }
    for (const one of spent) this.spend(one);
  }

  spend({ at, calls, input_tokens, output_tokens, total_tokens }: RunFacts["spent"][number]): void {
    const step = this.#at(at);
    if (step === undefined) return;
    step.calls += calls;
    step.input_tokens += input_tokens;
    step.output_tokens += output_tokens;
    step.total_tokens += total_tokens;
  }

  join(other: Tally): void {
    for (const [index, step] of other.#steps.entries()) this.#steps[index]?.join(step);
  }

  steps(): readonly AdminFigure[] {
    return this.#steps.map((step) => step.figure());
  }

  /** All steps as one, at whose end so many questions are open as at that of the last. */
  total(): AdminFigure {
    const sum = new Step();
    for (const step of this.#steps) sum.join(step);
    sum.waiting = this.#steps.at(-1)?.waiting ?? 0;
    return sum.figure();
  }

  #at(time: number | null): Step | undefined {
    return time === null ? undefined : this.#steps[this.#index(time)];
  }

  /** -1: before the first step. */
  #index(time: number): number {
    return Math.max(-1, Math.floor((time - this.#span.from) / this.#span.step_ms));
  }

  /** Counts a question in the steps at whose ends it is open. The last step ends now. */
  #wait(from: number, to: number | null): void {
    const last = this.#steps.length - 1;
    const end = to === null ? last : Math.min(last, this.#index(to) - 1);
    for (let index = Math.max(0, this.#index(from)); index <= end; index++) {
      const step = this.#steps[index];
      if (step !== undefined) step.waiting += 1;
    }
  }
}

/** The values that a half, and all but a hundredth, of the values do not exceed. */
function quantiles(values: number[]): readonly [p50: number | null, p99: number | null] {
  if (values.length === 0) return [null, null];
  values.sort((a, b) => a - b);
  const at = (share: number): number => values[Math.max(0, Math.ceil(share * values.length) - 1)] ?? 0;
  return [at(0.5), at(0.99)];
}
