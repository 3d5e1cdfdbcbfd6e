import type { FeedOptions } from "../../core/feed.ts";
import { needsOwner, stillCancelling } from "../../core/head.ts";
import type { Entry, MovedEntry } from "../../core/log.ts";
import type { NewPause, Pause, PausedRuns } from "../../core/pauses.ts";
import { pauseKey } from "../../core/pauses.ts";
import type {
  Backlog,
  BlockedQuery,
  Clock,
  Expected,
  FeedPage,
  FeedQuery,
  LinesQuery,
  MessageRange,
  Retention,
  RuleRetention,
  RunHead,
  RunKey,
  RunPosition,
  RunPost,
  RunWrite,
  SessionHead,
  SessionKey,
  SlotLine,
  StepUse,
  Store,
  StoreConflict,
  StoredRun,
  StoredSession,
  TakeRequest,
  WrittenWithInbox,
} from "../../core/ports.ts";
import { MOST_ARRIVED } from "../../core/ports.ts";
import type { RunQuery } from "../../core/run-query.ts";
import type { Rate } from "../../core/slots.ts";
import type { Snapshot } from "../../core/snapshot.ts";
import type { Counters } from "../../core/statistics.ts";
import type { LiveCount, LogTail, SurveyPage, SurveyQuery, WorkerLease } from "../../core/survey.ts";
import { movedTo } from "../../core/versions.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message } from "../../protocol/message.ts";
import { systemClock } from "../../runtime/log/system.ts";
import { checkFeed } from "../feed.ts";
import { DueHeap } from "./due-heap.ts";
import { MemoryFeed } from "./feed.ts";
import { RunsByRule } from "./runs-by-rule.ts";
import { isForeign, MemorySessions, marksOf, messagesFor, stateOf } from "./sessions.ts";
import { StepCounts } from "./step-counts.ts";
import { surveyRuns } from "./survey.ts";
import { MemoryRun, Tenant } from "./tenant.ts";
import { MemoryWork } from "./work.ts";

const NEVER = Number.NEGATIVE_INFINITY;
const EVER = Number.POSITIVE_INFINITY;

/** How a `MemoryStore` works. */
export interface MemoryStoreOptions {
  /** The clock by which leases and due times are measured. Default: the machine's. */
  readonly clock?: Pick<Clock, "now"> | undefined;
  /** Whether the store keeps a feed, for `runtime.watch`. Default: it keeps none. */
  readonly feed?: FeedOptions | undefined;
}

/** Keeps runs in the memory of the process, and answers at once. It is the default store. */
export class MemoryStore implements Store {
  readonly persistent = false;
  /** Left out where the store keeps no feed. */
  readonly readFeed?: (query: FeedQuery) => FeedPage | undefined;
  readonly #clock: Pick<Clock, "now">;
  readonly #feed: MemoryFeed | undefined;
  readonly #tenants = new Map<string, Tenant>();
  readonly #snapshots = new WeakMap<MemoryRun, Snapshot>();
  readonly #counters = new Map<string, Tally>();
  readonly #work: MemoryWork;
  readonly #steps: StepCounts;
  #pauses: readonly Pause[] = [];
  /** How many runs have ended. */
  #ended = 0;
  /** Undefined until a retention has rules. */
  #byRule: RunsByRule | undefined;
  readonly #sessions = new MemorySessions((tenant) => this.#drop(tenant));
  #created = 0;
  /** How often something has arrived for a run with an owner. */
  #arrived = 0;

  /** Throws `invalid_argument` for an invalid `feed`. */
  constructor({ clock = systemClock, feed }: MemoryStoreOptions = {}) {
    checkFeed(feed);
    this.#clock = clock;
    this.#work = new MemoryWork(clock, (run) => this.#empty(run, "all"));
    this.#steps = new StepCounts(clock, (owner) => {
      this.#work.shorten(owner, clock.now());
      return this.#work.isAlive(owner, clock.now());
    });
    const kept = feed && new MemoryFeed(feed.keepMs);
    this.#feed = kept;
    if (kept !== undefined) this.readFeed = (query) => kept.read(query);
  }

  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): StoreConflict | undefined {
    const tenant = this.#tenant(key.tenant);
    if (isForeign(tenant, write.session)) return { conflict: "foreign" };
    if (tenant.runs.has(key.run_id)) return { conflict: "exists" };
    if (idempotencyKey !== null) {
      const other = tenant.idempotencyKeys.get(idempotencyKey);
      if (other !== undefined) return { conflict: "key_used", run_id: other.key.run_id };
    }
    const run = new MemoryRun(key, write, idempotencyKey, this.#created);
    const refusing = run.extras === null || !write.head.holds_slot ? undefined : this.#work.refusing(run);
    if (refusing !== undefined) {
      this.#drop(tenant);
      return { conflict: "full", key: refusing.key };
    }
    const messages = messagesFor(tenant, write.session);
    this.#created += 1;
    tenant.add(run);
    if (write.head.finished_at === null) {
      this.#work.begin(run, write.asks);
      this.#sessions.enter(tenant, run);
    } else this.#end(tenant, run);
    this.#settle(tenant, run, write, messages);
    return undefined;
  }

  append(key: RunKey, expected: Expected, write: RunWrite): StoreConflict | WrittenWithInbox | undefined {
    const tenant = this.#tenants.get(key.tenant);
    const run = tenant?.runs.get(key.run_id);
    if (tenant === undefined || run === undefined) return { conflict: "missing" };
    const isPlain = run.extras === null && expected.wakes === undefined;
    const refusal = changes(run, expected) ?? (isPlain ? undefined : this.#refusal(run, expected, write));
    if (refusal !== undefined) return refusal;
    const messages = messagesFor(tenant, write.session);
    run.add(write.entries);
    const head = stillCancelling(run.head.status, write.head);
    this.#replaceHead(tenant, run, isPlain ? head : stillDue(run, head), write.asks);
    if (!isPlain) this.#empty(run, write.takes);
    this.#settle(tenant, run, write, messages);
    if (isPlain) return undefined;
    const inbox = run.head.owner === null ? undefined : run.inbox;
    return inbox && { inbox: inbox.slice(0, MOST_ARRIVED) };
  }

  post(key: RunKey, post: RunPost): StoreConflict | undefined {
    const run = this.#run(key);
    if (run === undefined) return { conflict: "missing" };
    const { head } = run;
    if (head.finished_at !== null) return { conflict: "ended" };
    if (head.status === "cancelling" && post.unlessCancelling === true) return { conflict: "cancelling" };
    const status = post.status ?? head.status;
    if (head.owner !== null) {
      this.#arrived += 1;
      const { entries, feed } = post;
      const item = { id: this.#arrived, entries, isCancel: post.status === "cancelling", feed };
      run.withExtras.inbox ??= [];
      run.withExtras.inbox.push(item);
      this.#work.change(run, stillCancelling(head.status, { ...head, status }));
      return undefined;
    }
    if (needsOwner(post)) return { conflict: "changed", epoch: head.epoch, position: run.position };
    run.add(post.entries);
    const blocked = post.unblocks === true ? null : head.blocked;
    const becomesDue = post.due !== undefined && blocked === null;
    const due_at = becomesDue ? this.#dueNow(head) : head.due_at;
    this.#work.change(run, { ...head, status, blocked, due_at }, becomesDue && post.due === "look");
    this.#addToFeed(run, post.feed);
    return undefined;
  }

  claim(key: RunKey, expected: Expected, head: RunHead): StoreConflict | undefined {
    const run = this.#run(key);
    if (run === undefined) return { conflict: "missing" };
    if (run.head.finished_at !== null) return { conflict: "ended" };
    const changed = changes(run, expected);
    if (changed !== undefined) return changed;
    const { owner } = run.head;
    const now = this.#clock.now();
    if (owner !== null) this.#work.shorten(owner, now);
    if (owner !== null && this.#work.isAlive(owner, now)) return { conflict: "owned" };
    if (this.#isRefusedSlot(run, head)) return { conflict: "full" };
    this.#work.give(run, stillCancelling(run.head.status, head));
    return undefined;
  }

  changeVersion(
    key: RunKey,
    expected: Pick<Expected, "epoch" | "position">,
    moved: MovedEntry,
  ): StoreConflict | undefined {
    const run = this.#run(key);
    if (run === undefined) return { conflict: "missing" };
    const { head, created } = run;
    if (head.finished_at !== null) return { conflict: "ended" };
    const refusal = changes(run, expected);
    if (refusal !== undefined) return refusal;
    if (head.owner !== null) return { conflict: "owned" };
    const due_at = head.blocked === null ? head.due_at : this.#dueNow(head);
    run.add([moved]);
    this.#work.move(run, movedTo(created, moved.version), { ...head, epoch: head.epoch + 1, blocked: null, due_at });
    return undefined;
  }

  take(request: TakeRequest): readonly StoredRun[] {
    return this.#work.take(request, this.#pauses).map((run) => run.stored());
  }

  renew(owner: string, forMs: number): void {
    this.#work.renew(owner, forMs, this.#clock.now());
  }

  release(owner: string): void {
    this.#work.release(owner);
  }

  find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
    const run = this.#run(key);
    const inbox = how && run?.inbox;
    return run && (inbox ? { ...run.stored(), inbox } : run.stored());
  }

  read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    return this.#run(key)?.read(from, limit);
  }

  snapshot(key: RunKey): Snapshot | undefined {
    const run = this.#run(key);
    return run && this.#snapshots.get(run);
  }

  keepSnapshot(key: RunKey, snapshot: Snapshot): void {
    const run = this.#run(key);
    if (run !== undefined) this.#snapshots.set(run, snapshot);
  }

  trim(key: RunKey, before: number): boolean {
    const run = this.#run(key);
    run?.trim(before);
    if (run !== undefined && Number(this.#snapshots.get(run)?.position) < before) this.#snapshots.delete(run);
    return false;
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
    return this.#tenants.get(tenant)?.idempotencyKeys.get(idempotencyKey)?.stored();
  }

  list(query: RunQuery): readonly StoredRun[] {
    return this.#tenants.get(query.tenant)?.list(query) ?? [];
  }

  moved(known: readonly RunPosition[]): readonly RunPosition[] {
    const moved: RunPosition[] = [];
    for (const { key, epoch, position } of known) {
      const run = this.#run(key);
      const inbox = run?.inbox?.slice(0, MOST_ARRIVED);
      const now = { key, epoch: run?.head.epoch ?? 0, position: run?.position ?? 0 };
      const hasArrived = inbox !== undefined && run?.head.finished_at === null;
      if (hasArrived || now.epoch !== epoch || now.position !== position)
        moved.push({ ...now, ...(inbox && { inbox }) });
    }
    return moved;
  }

  owned(owner: string, limit: number): readonly RunKey[] {
    return this.#work.owned(owner, limit).map(({ key }) => key);
  }

  blocked({ agents, limit, after }: BlockedQuery): readonly StoredRun[] {
    const before = after === undefined ? undefined : this.#run(after);
    return this.#work.blocked(agents, before, limit).map((run) => run.stored());
  }

  backlog(): readonly Backlog[] {
    return this.#work.backlog(this.#clock.now());
  }

  lines(query: LinesQuery): readonly SlotLine[] {
    return this.#work.lines(query);
  }

  pauses(): readonly Pause[] {
    return this.#pauses;
  }

  pause(pause: NewPause, by: JsonValue): boolean {
    const key = pauseKey(pause);
    const known = this.#pauses.find((one) => pauseKey(one) === key);
    if (known === undefined) this.#pauses = [...this.#pauses, { ...pause, at: this.#clock.now(), by }];
    else if (pause.now !== true || known.now === true) return false;
    else this.#pauses = this.#pauses.map((one) => (one === known ? { ...one, now: true } : one));
    return true;
  }

  resume(runs: PausedRuns): boolean {
    const key = pauseKey(runs);
    const left = this.#pauses.filter((pause) => pauseKey(pause) !== key);
    const isResumed = left.length < this.#pauses.length;
    this.#pauses = left;
    return isResumed;
  }

  comeBack(limit: number): number {
    return this.#work.comeBack(this.#pauses, limit);
  }

  grantSteps(key: string, rate: Rate, wanted: number): readonly number[] {
    return this.#steps.grant(key, rate, wanted);
  }

  permitSteps(owner: string, key: string, max: number, use: StepUse): number {
    return this.#steps.permit(owner, key, max, use);
  }

  survey(query: SurveyQuery): SurveyPage<StoredRun> {
    return surveyRuns(this.#tenants.values(), query);
  }

  tails(runs: readonly RunKey[], count: number): readonly (LogTail | undefined)[] {
    return runs.map((key) => this.#run(key)?.tail(count));
  }

  census(): readonly LiveCount[] {
    return this.#work.census();
  }

  living(): readonly string[] {
    return this.workers()
      .filter(({ is_alive }) => is_alive)
      .map(({ owner }) => owner);
  }

  workers(): readonly WorkerLease[] {
    return this.#work.workers(this.#clock.now());
  }

  session(key: SessionKey, { from = 0, to }: Partial<MessageRange> = {}): StoredSession | undefined {
    const session = this.#tenants.get(key.tenant)?.sessions.get(key.session_id);
    return session && { history: session.history.slice(from, to), state: stateOf(session), ...marksOf(session) };
  }

  sessionHead(key: SessionKey): SessionHead | undefined {
    const session = this.#tenants.get(key.tenant)?.sessions.get(key.session_id);
    return session && { length: session.history.length, state: stateOf(session), ...marksOf(session) };
  }

  makeSession(key: SessionKey, session: StoredSession, at: number): boolean {
    const tenant = this.#tenant(key.tenant);
    if (tenant.sessions.has(key.session_id)) return false;
    this.#sessions.put(tenant, key.session_id, session, at);
    return true;
  }

  putSession(key: SessionKey, session: StoredSession, at: number): void {
    this.#sessions.put(this.#tenant(key.tenant), key.session_id, session, at);
  }

  counters(agentName: string): Counters | undefined {
    const tally = this.#counters.get(agentName);
    return tally && { ...tally };
  }

  prune({ maxRuns, endedBefore, sessionsBefore, perTenant, rules = [] }: Retention): number {
    const before = this.#ended;
    for (const name of perTenant?.tenants ?? []) {
      const tenant = this.#tenants.get(name);
      if (tenant === undefined) continue;
      this.#sessions.limit(tenant, perTenant?.maxSessions ?? EVER);
      let beyond = tenant.ended.size - (perTenant?.maxRuns ?? EVER);
      this.#removeFirst(tenant, () => beyond-- > 0);
    }
    if (rules.length > 0) this.#pruneByRules([...rules, { maxRuns: EVER, endedBefore }]);
    else if (endedBefore > NEVER)
      for (const tenant of this.#tenants.values())
        this.#removeFirst(tenant, ({ head }) => (head.finished_at ?? NEVER) < endedBefore);
    this.#removeBeyond(maxRuns);
    this.#sessions.prune(sessionsBefore);
    this.#work.forget();
    this.#feed?.trim(this.#clock.now());
    return before - this.#ended;
  }

  delete(runs: readonly RunKey[]): number {
    const before = this.#ended;
    for (const key of runs) {
      const run = this.#run(key);
      if (run !== undefined && run.head.finished_at !== null) this.#remove(run);
    }
    return before - this.#ended;
  }

  deleteSession(key: SessionKey): boolean {
    const tenant = this.#tenants.get(key.tenant);
    return tenant === undefined || this.#sessions.delete(tenant, key.session_id);
  }

  close(): void {
    // The store holds memory only.
  }

  #tenant(name: string): Tenant {
    let tenant = this.#tenants.get(name);
    if (tenant === undefined) {
      tenant = new Tenant(name);
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  #pruneByRules(rules: readonly RuleRetention[]): void {
    const named = rules.slice(0, -1);
    if (this.#byRule?.isOf(named) !== true) {
      const ended = [...this.#tenants.values()].flatMap((tenant) => [...tenant.ended]);
      this.#byRule = new RunsByRule(named, ended);
    }
    for (const [index, rule] of rules.entries())
      for (const run of this.#byRule.beyond(index, rule))
        if (!this.#tenant(run.key.tenant).needs(run)) this.#remove(run);
  }

  #end(tenant: Tenant, run: MemoryRun): void {
    tenant.ended.addLast(run);
    this.#byRule?.add(run);
    this.#ended += 1;
  }

  /** Removes ended runs of a tenant, those that ended first, as long as the next one is to go. */
  #removeFirst(tenant: Tenant, isToGo: (run: MemoryRun) => boolean): void {
    for (let run = tenant.ended.first; run !== null && isToGo(run); ) {
      const next = run.after;
      if (!tenant.needs(run)) this.#remove(run);
      run = next;
    }
  }

  /** Removes ended runs beyond a number: each time the run that ended first, of a tenant that has the most runs. */
  #removeBeyond(maxRuns: number): void {
    let beyond = this.#ended - maxRuns;
    if (beyond <= 0) return;
    if (this.#tenants.size === 1) {
      for (const tenant of this.#tenants.values()) this.#removeFirst(tenant, () => beyond-- > 0);
      return;
    }
    const most = new DueHeap<MemoryRun>();
    /** `run`: the first one of its tenant that is not looked at. `left`: how many the tenant has from there on. */
    const add = (run: MemoryRun | null, left: number): void => {
      if (run !== null) most.add({ item: run, due_at: -left, order: run.head.finished_at ?? NEVER, place: 0 });
    };
    for (const { ended } of this.#tenants.values()) add(ended.first, ended.size);
    for (let entry = most.first; entry !== undefined && beyond > 0; entry = most.first, beyond -= 1) {
      const { item: run, due_at } = entry;
      most.remove(entry);
      add(run.after, -due_at - 1);
      if (!this.#tenant(run.key.tenant).needs(run)) this.#remove(run);
    }
  }

  /** Removes a run that has ended. */
  #remove(run: MemoryRun): void {
    const tenant = this.#tenant(run.key.tenant);
    tenant.ended.remove(run);
    this.#byRule?.remove(run);
    this.#ended -= 1;
    tenant.remove(run);
    this.#sessions.forget(tenant, run);
    this.#drop(tenant);
  }

  #run(key: RunKey): MemoryRun | undefined {
    return this.#tenants.get(key.tenant)?.runs.get(key.run_id);
  }

  /** Why a write with the right epoch and position is refused all the same. */
  #refusal(run: MemoryRun, { wakes = 0 }: Expected, { head, takes = [] }: RunWrite): StoreConflict | undefined {
    const isOver = head.finished_at !== null;
    const isGivenUp = run.head.owner !== null && head.owner === null && !isOver;
    const known = run.extras?.wakes ?? 0;
    if (isGivenUp && known !== wakes) return { conflict: "woken", wakes: known };
    const left = takes === "all" ? [] : (run.extras?.inbox ?? []).filter(({ id }) => !takes.includes(id));
    if (isGivenUp ? left.length > 0 : isOver && left.some(({ isCancel }) => isCancel)) return { conflict: "arrived" };
    return this.#isRefusedSlot(run, head) ? { conflict: "full" } : undefined;
  }

  #isRefusedSlot(run: MemoryRun, head: RunHead): boolean {
    return head.holds_slot && !run.head.holds_slot && head.finished_at === null && !this.#work.hasPermitFor(run);
  }

  #replaceHead(tenant: Tenant, run: MemoryRun, head: RunHead, asks = false): void {
    if (run.head.finished_at !== null) run.head = head;
    else if (head.finished_at === null) this.#work.change(run, head, false, asks);
    else {
      this.#work.end(run, head);
      this.#end(tenant, run);
      this.#sessions.leave(tenant, run);
    }
  }

  /** Applies what comes with the entries of a write: the session, the counters, the run to wake and the feed. */
  #settle(tenant: Tenant, run: MemoryRun, write: RunWrite, messages: readonly Message[] | undefined): void {
    if (write.session !== undefined && messages !== undefined) this.#sessions.change(tenant, write.session, messages);
    if (write.counters !== undefined) this.#count(run.created.agent_name, write.counters);
    if (write.wake !== undefined) this.#wake(write.wake);
    this.#addToFeed(run, write.feed);
  }

  /** Takes things out of the inbox of a run: those that its owner has taken, or all of them into its log. */
  #empty(run: MemoryRun, takes: RunWrite["takes"]): void {
    const { extras } = run;
    if (extras === null || extras.inbox === null || takes === undefined) return;
    const left = takes === "all" ? [] : extras.inbox.filter(({ id }) => !takes.includes(id));
    if (takes === "all") {
      for (const { entries, feed } of extras.inbox) {
        run.add(entries);
        this.#addToFeed(run, feed);
      }
    }
    extras.inbox = left.length === 0 ? null : left;
  }

  #addToFeed({ key, created }: MemoryRun, events: RunWrite["feed"]): void {
    if (events !== undefined) this.#feed?.add(key, created.agent_name, events, this.#clock.now());
  }

  #wake(key: RunKey): void {
    const run = this.#run(key);
    if (run === undefined || run.head.finished_at !== null) return;
    const { head } = run;
    if (head.owner === null && head.blocked !== null) return;
    run.withExtras.wakes += 1;
    if (head.owner === null) this.#work.change(run, { ...head, due_at: this.#dueNow(head) });
  }

  #dueNow({ due_at }: RunHead): number {
    const now = this.#clock.now();
    return due_at === null ? now : Math.min(due_at, now);
  }

  #count(agentName: string, counters: Counters): void {
    const tally = this.#counters.get(agentName);
    if (tally === undefined) this.#counters.set(agentName, { ...counters });
    else add(tally, counters);
  }

  #drop(tenant: Tenant): void {
    if (tenant.runs.size === 0 && tenant.sessions.size === 0) this.#tenants.delete(tenant.name);
  }
}

type Tally = { -readonly [Name in keyof Counters]: Counters[Name] };

/** The head after a write. A run that was woken without an owner stays due until it has one, ends or is blocked. */
function stillDue({ head: { owner, due_at }, extras }: MemoryRun, head: RunHead): RunHead {
  if (extras === null || extras.wakes === 0 || owner !== null || head.owner !== null) return head;
  if (due_at === null || head.finished_at !== null || head.blocked !== null) return head;
  return { ...head, due_at: Math.min(due_at, head.due_at ?? due_at) };
}

function changes(run: MemoryRun, expected: Expected): StoreConflict | undefined {
  const { epoch, owner } = run.head;
  const { position } = run;
  const isSameOwner = expected.owner === undefined || expected.owner === owner;
  if (epoch === expected.epoch && position === expected.position && isSameOwner) return undefined;
  return { conflict: "changed", epoch, position };
}

/** Written out property by property for speed: it runs at the end of every run. */
function add(tally: Tally, counters: Counters): void {
  tally.completed += counters.completed;
  tally.failed += counters.failed;
  tally.cancelled += counters.cancelled;
  tally.active_ms += counters.active_ms;
  tally.waiting_ms += counters.waiting_ms;
  tally.reported += counters.reported;
  tally.input_tokens += counters.input_tokens;
  tally.output_tokens += counters.output_tokens;
  tally.total_tokens += counters.total_tokens;
  tally.cached_input_tokens += counters.cached_input_tokens;
  tally.cache_write_tokens += counters.cache_write_tokens;
  tally.reasoning_tokens += counters.reasoning_tokens;
}
