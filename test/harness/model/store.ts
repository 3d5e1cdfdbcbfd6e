import { MemoryStore } from "cadenza";
import type {
  Backlog,
  BlockedQuery,
  Entry,
  Expected,
  Retention,
  RunHead,
  RunKey,
  RunPosition,
  RunPost,
  RunQuery,
  RunWrite,
  SessionKey,
  Store,
  StoreConflict,
  StoredRun,
  StoredSession,
  SurveyPage,
  SurveyQuery,
  TakeRequest,
} from "cadenza/store";
import type { RunState, SessionHead } from "../internals.ts";
import { evolve, initialState } from "../internals.ts";

/** The committed entries of one run. They are kept when the store removes the run. */
export interface WatchedLog {
  readonly run_id: string;
  readonly entries: Entry[];
  readonly idempotencyKey: string | null;
  readonly state: RunState;
  /** How many events the entries give. */
  events: number;
  head: RunHead;
  removed: boolean;
}

/** A memory store that keeps all commits. */
export class WatchedStore implements Store {
  readonly persistent = false;
  readonly logs = new Map<string, WatchedLog>();
  /** The runs that have ended, in the order of their ends. */
  readonly ended: string[] = [];
  /** The broken rules of the writes themselves. */
  readonly complaints: string[] = [];
  closed = false;
  readonly #inner = new MemoryStore();

  create(key: RunKey, write: RunWrite, idempotencyKey: string | null): StoreConflict | undefined {
    const conflict = this.#inner.create(key, write, idempotencyKey);
    if (conflict !== undefined) return conflict;
    const { run_id } = key;
    const state = initialState(run_id);
    const log = { run_id, entries: [], idempotencyKey, state, events: 0, head: write.head, removed: false };
    this.logs.set(key.run_id, log);
    this.#take(log, write);
    return undefined;
  }

  append(key: RunKey, expected: Expected, write: RunWrite): ReturnType<MemoryStore["append"]> {
    const conflict = this.#inner.append(key, expected, write);
    if (conflict?.conflict === undefined) this.#follow(key);
    return conflict;
  }

  post(key: RunKey, post: RunPost): StoreConflict | undefined {
    const conflict = this.#inner.post(key, post);
    if (conflict === undefined) this.#follow(key);
    return conflict;
  }

  claim(key: RunKey, expected: Expected, head: RunHead): StoreConflict | undefined {
    const conflict = this.#inner.claim(key, expected, head);
    if (conflict === undefined) this.#follow(key);
    return conflict;
  }

  take(request: TakeRequest): readonly StoredRun[] {
    const taken = this.#inner.take(request);
    for (const { key } of taken) this.#follow(key);
    return taken;
  }

  renew(owner: string, forMs: number): void {
    this.#inner.renew(owner, forMs);
  }

  release(owner: string): void {
    this.#inner.release(owner);
  }

  find(key: RunKey, how?: "with inbox"): StoredRun | undefined {
    return this.#inner.find(key, how);
  }

  read(key: RunKey, from: number, limit: number): readonly Entry[] | undefined {
    return this.#inner.read(key, from, limit);
  }

  trim(key: RunKey, before: number): boolean {
    return this.#inner.trim(key, before);
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string): StoredRun | undefined {
    return this.#inner.findByIdempotencyKey(tenant, idempotencyKey);
  }

  list(query: RunQuery): readonly StoredRun[] {
    return this.#inner.list(query);
  }

  moved(known: readonly RunPosition[]): readonly RunPosition[] {
    return this.#inner.moved(known);
  }

  owned(owner: string, limit: number): readonly RunKey[] {
    return this.#inner.owned(owner, limit);
  }

  blocked(query: BlockedQuery): readonly StoredRun[] {
    return this.#inner.blocked(query);
  }

  backlog(): readonly Backlog[] {
    return this.#inner.backlog();
  }

  lines(...parameters: Parameters<Store["lines"]>) {
    return this.#inner.lines(...parameters);
  }

  pauses() {
    return this.#inner.pauses();
  }

  pause(...parameters: Parameters<Store["pause"]>) {
    return this.#inner.pause(...parameters);
  }

  resume(...parameters: Parameters<Store["resume"]>) {
    return this.#inner.resume(...parameters);
  }

  comeBack(limit: number) {
    return this.#inner.comeBack(limit);
  }

  grantSteps(...parameters: Parameters<Store["grantSteps"]>) {
    return this.#inner.grantSteps(...parameters);
  }

  permitSteps(...parameters: Parameters<Store["permitSteps"]>) {
    return this.#inner.permitSteps(...parameters);
  }

  survey(query: SurveyQuery): SurveyPage<StoredRun> {
    return this.#inner.survey(query);
  }

  tails(runs: readonly RunKey[], count: number) {
    return this.#inner.tails(runs, count);
  }

  census() {
    return this.#inner.census();
  }

  living() {
    return this.#inner.living();
  }
  workers() {
    return this.#inner.workers();
  }

  session(key: SessionKey): StoredSession | undefined {
    return this.#inner.session(key);
  }

  sessionHead(key: SessionKey): SessionHead | undefined {
    return this.#inner.sessionHead(key);
  }

  makeSession(key: SessionKey, session: StoredSession, at: number): boolean {
    return this.#inner.makeSession(key, session, at);
  }

  putSession(key: SessionKey, session: StoredSession, at: number): void {
    this.#inner.putSession(key, session, at);
  }

  counters(agentName: string) {
    return this.#inner.counters(agentName);
  }

  prune(retention: Retention): number {
    return this.#checked(this.#inner.prune(retention));
  }

  delete(runs: readonly RunKey[]): number {
    return this.#checked(this.#inner.delete(runs));
  }

  deleteSession(key: SessionKey): boolean {
    return this.#inner.deleteSession(key);
  }

  /** Complains about a live run that was removed with others. */
  #checked(removed: number): number {
    if (removed === 0) return 0;
    for (const log of this.logs.values()) {
      if (log.removed || this.#inner.find({ tenant: "", run_id: log.run_id }) !== undefined) continue;
      log.removed = true;
      if (log.head.finished_at === null) this.complaints.push(`live run ${log.run_id} was removed`);
    }
    return removed;
  }

  close(): void {
    this.closed = true;
  }

  /** Notes what the last call has added to a log. */
  #follow(key: RunKey): void {
    const log = this.logs.get(key.run_id);
    const head = this.#inner.find(key)?.head;
    if (log === undefined || head === undefined) return;
    this.#take(log, { entries: this.#inner.read(key, log.entries.length, Number.POSITIVE_INFINITY) ?? [], head });
  }

  #take(log: WatchedLog, { entries, head }: RunWrite): void {
    if (this.closed) this.complaints.push(`${log.run_id} was written after the store was closed`);
    if (head.epoch < log.head.epoch) this.complaints.push(`the epoch of ${log.run_id} went back`);
    for (const entry of entries) {
      log.entries.push(entry);
      log.events = evolve(log.state, entry).events;
      if (entry.type === "ended") this.ended.push(log.run_id);
    }
    log.head = head;
  }
}

/** One call of a store that answers late. */
interface LateCall {
  /** The calls of one lane are served in order. */
  readonly lane: string;
  /** Whether it may fail, and when. A run whose creation fails is not stored, so that its caller can repeat it. */
  readonly fails: "never" | "before the work" | "at any time";
  readonly work: () => unknown;
  readonly answer: (result: unknown) => void;
  readonly refuse: (error: Error) => void;
  /** Set once the work is done. */
  done: { readonly result: unknown } | { readonly error: Error } | undefined;
}

/** The error of a failing call. */
class Outage extends Error {
  override readonly name = "Outage";
}

/**
 * A store whose calls take effect, and later are answered, when the model lets them. The calls for one run keep their
 * order. A call may fail before it takes effect, or, as with a broken connection, between the effect and the answer.
 */
export class LateStore implements Store {
  readonly persistent: boolean;
  readonly #store: Store;
  readonly #calls: LateCall[] = [];
  #otherLanes = 0;
  /** How many calls have failed. */
  failures = 0;

  constructor(store: Store) {
    this.#store = store;
    this.persistent = store.persistent;
  }

  get pending(): number {
    return this.#calls.length;
  }

  /** Takes one step with one of the pending calls: first it takes effect, then it is answered. */
  serve(choice: number): void {
    const first = new Map<string, LateCall>();
    for (const call of this.#calls) if (!first.has(call.lane)) first.set(call.lane, call);
    const calls = [...first.values()];
    const call = calls[choice % calls.length];
    if (call === undefined) return;
    if (call.done === undefined) this.#work(call);
    else this.#answer(call, call.done);
  }

  /** Serves all pending calls. */
  serveAll(): void {
    for (const call of this.#calls.slice()) {
      if (call.done === undefined) this.#work(call);
      if (call.done !== undefined) this.#answer(call, call.done);
    }
  }

  /** Fails one of the calls that have not taken effect. `afterWork`: it takes effect, and the answer is lost. */
  fail(choice: number, afterWork: boolean): void {
    const calls = this.#calls.filter((call) => call.done === undefined && call.fails !== "never");
    const call = calls[choice % calls.length];
    if (call === undefined) return;
    this.failures += 1;
    if (afterWork && call.fails === "at any time") this.#work(call);
    call.done = { error: new Outage("The store is out of order.") };
  }

  create(key: RunKey, write: RunWrite, idempotencyKey: string | null) {
    const work = () => this.#store.create(key, write, idempotencyKey);
    return this.#later(`run ${key.run_id}`, work, "before the work");
  }

  append(key: RunKey, expected: Expected, write: RunWrite) {
    return this.#later(`run ${key.run_id}`, () => this.#store.append(key, expected, write), "at any time");
  }

  post(key: RunKey, post: RunPost) {
    return this.#later(`run ${key.run_id}`, () => this.#store.post(key, post), "at any time");
  }

  claim(key: RunKey, expected: Expected, head: RunHead) {
    return this.#later(`run ${key.run_id}`, () => this.#store.claim(key, expected, head));
  }

  take(request: TakeRequest) {
    return this.#later("owner", () => this.#store.take(request));
  }

  renew(owner: string, forMs: number) {
    return this.#later("owner", () => this.#store.renew(owner, forMs));
  }

  release(owner: string) {
    return this.#later("owner", () => this.#store.release(owner));
  }

  find(key: RunKey, how?: "with inbox") {
    return this.#later(undefined, () => this.#store.find(key, how));
  }

  read(key: RunKey, from: number, limit: number) {
    return this.#later(undefined, () => this.#store.read(key, from, limit));
  }

  trim(key: RunKey, before: number) {
    return this.#later(undefined, () => this.#store.trim(key, before));
  }

  findByIdempotencyKey(tenant: string, idempotencyKey: string) {
    return this.#later(undefined, () => this.#store.findByIdempotencyKey(tenant, idempotencyKey));
  }

  list(query: RunQuery) {
    return this.#later(undefined, () => this.#store.list(query));
  }

  moved(known: readonly RunPosition[]) {
    return this.#later(undefined, () => this.#store.moved(known));
  }

  owned(owner: string, limit: number) {
    return this.#later(undefined, () => this.#store.owned(owner, limit));
  }

  blocked(query: BlockedQuery) {
    return this.#later(undefined, () => this.#store.blocked(query));
  }

  backlog() {
    return this.#later(undefined, () => this.#store.backlog());
  }

  lines(...parameters: Parameters<Store["lines"]>) {
    return this.#later(undefined, () => this.#store.lines(...parameters));
  }

  pauses() {
    return this.#later(undefined, () => this.#store.pauses());
  }

  pause(...parameters: Parameters<Store["pause"]>) {
    return this.#later("pauses", () => this.#store.pause(...parameters));
  }

  resume(...parameters: Parameters<Store["resume"]>) {
    return this.#later("pauses", () => this.#store.resume(...parameters));
  }

  comeBack(limit: number) {
    return this.#later("owner", () => this.#store.comeBack(limit));
  }

  grantSteps(...parameters: Parameters<Store["grantSteps"]>) {
    return this.#later("steps", () => this.#store.grantSteps(...parameters), "at any time");
  }

  permitSteps(...parameters: Parameters<Store["permitSteps"]>) {
    return this.#later("steps", () => this.#store.permitSteps(...parameters), "at any time");
  }

  survey(query: SurveyQuery) {
    return this.#later(undefined, () => this.#store.survey(query));
  }

  tails(runs: readonly RunKey[], count: number) {
    return this.#later(undefined, () => this.#store.tails(runs, count));
  }

  census() {
    return this.#later(undefined, () => this.#store.census());
  }

  living() {
    return this.#later(undefined, () => this.#store.living());
  }
  workers() {
    return this.#later(undefined, () => this.#store.workers());
  }

  session(key: SessionKey) {
    return this.#later(undefined, () => this.#store.session(key));
  }

  sessionHead(key: SessionKey) {
    return this.#later(undefined, () => this.#store.sessionHead(key));
  }

  makeSession(key: SessionKey, session: StoredSession, at: number) {
    return this.#later(`session ${key.session_id}`, () => this.#store.makeSession(key, session, at));
  }

  putSession(key: SessionKey, session: StoredSession, at: number) {
    return this.#later(`session ${key.session_id}`, () => this.#store.putSession(key, session, at));
  }

  counters(agentName: string) {
    return this.#later(undefined, () => this.#store.counters(agentName));
  }

  prune(retention: Retention) {
    return this.#later("prune", () => this.#store.prune(retention));
  }

  delete(runs: readonly RunKey[]) {
    return this.#later("prune", () => this.#store.delete(runs));
  }

  deleteSession(key: SessionKey) {
    return this.#later(`session ${key.session_id}`, () => this.#store.deleteSession(key));
  }

  close() {
    return this.#later("owner", () => this.#store.close());
  }

  #later<Result>(
    lane: string | undefined,
    work: () => Result,
    fails: LateCall["fails"] = "never",
  ): Promise<Awaited<Result>> {
    return new Promise((resolve, reject) => {
      this.#calls.push({
        lane: lane ?? `other ${this.#otherLanes++}`,
        fails,
        work,
        answer: (result) => resolve(result as Awaited<Result>),
        refuse: reject,
        done: undefined,
      });
    });
  }

  #work(call: LateCall): void {
    try {
      call.done = { result: call.work() };
    } catch (error) {
      call.done = { error: error instanceof Error ? error : new Error(String(error)) };
    }
  }

  #answer(call: LateCall, done: NonNullable<LateCall["done"]>): void {
    this.#calls.splice(this.#calls.indexOf(call), 1);
    if ("error" in done) call.refuse(done.error);
    else call.answer(done.result);
  }
}
