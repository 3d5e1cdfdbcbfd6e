import { aboutRun } from "../../core/about-run.ts";
import { endOf, inBackground } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { beginsToWait, carriedEntry, commandOf } from "../../core/commands.ts";
import { copyState } from "../../core/copy-state.ts";
import type { Decision } from "../../core/decide.ts";
import { decide, decideArrived, hasCancel, isRefusal } from "../../core/decide.ts";
import { CadenzaError, unwritableError } from "../../core/errors.ts";
import { evolve } from "../../core/evolve.ts";
import type { NewLog } from "../../core/fork.ts";
import { checkFormat, newerPart } from "../../core/format.ts";
import { grown } from "../../core/grown.ts";
import { expectedAfter, isFree, localHead, mayBeOf } from "../../core/head.ts";
import type { ContinuedEntry, Entry } from "../../core/log.ts";
import type {
  Arrived,
  Logger,
  RunHead,
  RunKey,
  RunWrite,
  SessionChange,
  StoreConflict,
  StoredRun,
  WrittenWithInbox,
} from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { runRecord, saidUntil } from "../../core/record.ts";
import { roughLength, roughLengthOf } from "../../core/rough-length.ts";
import type { RunState } from "../../core/state.ts";
import { initialState, isFinal } from "../../core/state.ts";
import type { Message } from "../../protocol/message.ts";
import type { Run } from "../../protocol/run.ts";
import type { ActiveTime } from "./active-time.ts";
import { committedRecord, foldOn, READ_CHUNK } from "./fold-log.ts";
import { logSizeError } from "./part-size.ts";
import type { QueuedTime } from "./queued-time.ts";
import { lostError } from "./refusals.ts";
import type { Attempt, LogResidence, Outcome } from "./run-write.ts";
import { bothChanges, fed, localOutcome, sessionWith, writeOf } from "./run-write.ts";
import type { SharedByRuns } from "./shared-by-runs.ts";
import { Outage } from "./store-failures.ts";

const noEntries: readonly Entry[] = [];
/** About how many characters of JSON a write to a persistent store has. One command may have more. */
const MAX_WRITE = 1_048_576;
const nothingWritten: Pick<RunWrite, "entries" | "takes"> = { entries: noEntries };

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun {
  readonly shared: SharedByRuns;
  readonly residence: LogResidence | undefined;
  /** Ends the run as failed, whatever its agent is doing. */
  fail(error: CadenzaError): void;
  /** The session change that goes with the end of the run. */
  sessionAtEnd(): SessionChange | undefined;
  /** Whether the end of the run, or of a generation, must not be written yet, because no process would cancel its sub-runs after that. */
  readonly isEndHeld: boolean;
  /** The error of a blocked run; undefined if the run is not blocked. */
  readonly blocked: CadenzaError | undefined;
  /** Entries were committed, up to the log's `committed`. */
  onCommit(): void;
  /** Nothing is written to the run here any more. */
  onLost(): void;
  /** Another process has written to the run, or to its inbox, and that is decided here. */
  onReloaded(): void;
  /** How long it was in queues. Undefined: it was in none. */
  readonly queued: QueuedTime | undefined;
  /** How long that is which the log does not say, up to now and in the state from now on. */
  queuedMs(state: RunState): number;
  /** The run may be active from now on, or not any more. */
  settleActivity(): void;
}

/**
 * The log of a live run. It has two positions: `state` is decided and may run ahead; `committed` is what the store has
 * said yes to, and readers are shown no more. Decide, commit, announce, in that order. Every write to a live run is made
 * here, whether the store answers at once or later.
 */
export class RunLog {
  readonly key: RunKey;
  /** Of a run whose active time has a limit, once its agent is called. */
  activeTime: ActiveTime | undefined;
  readonly #run: LogRun;
  /** What has been decided. It is replaced after a conflict alone. */
  #state: RunState;
  /** What goes with the next write. Undefined: nothing. */
  #due: Due | undefined;
  #head: RunHead | undefined;
  #committed = 0;
  /** Undefined in a store that is not persistent and answers at once. */
  #storing: Storing | undefined;
  /** What has kept the log from being written. Undefined: nothing so far. */
  #trouble: Trouble | undefined;
  /** The callers that wait for a commit. */
  #waiters: Waiter[] | undefined;
  /** Undefined: the log is not read as it grows. */
  #reading: Reading | undefined;
  /** Undefined: the log gets what is decided here, as it is decided. */
  #others: Others | undefined;

  constructor(key: RunKey, run: LogRun) {
    this.key = key;
    this.#run = run;
    this.#state = initialState(key.run_id);
  }

  /** What has been decided. */
  get state(): RunState {
    return this.#state;
  }

  get logger(): Logger {
    return this.#run.shared.logger;
  }

  /** How many entries the store has. */
  get committed(): number {
    return this.#committed;
  }

  /** What the store knows of the run in addition to its log; undefined before the first commit. */
  get head(): RunHead | undefined {
    return this.#head;
  }

  /** The head that the store has once it has accepted what is under way. */
  get nextHead(): RunHead | undefined {
    return this.#storing?.write?.head ?? this.#head;
  }

  /** The run as it is committed. Work that has been decided and is not committed is left out. */
  record(): MaybePromise<Run> {
    if (this.backlog === 0) return runRecord(this.state);
    return committedRecord(this.#run.shared.store, this.key, this.#committed);
  }

  /** Whether nothing is written to the run here any more. */
  get lost(): boolean {
    return this.lostReason !== undefined;
  }

  get lostReason(): CadenzaError | undefined {
    return this.#trouble?.lost;
  }

  get #troubles(): Trouble {
    this.#trouble ??= { lost: undefined, unwritable: undefined, outage: undefined, failingCalls: 0 };
    return this.#trouble;
  }

  get #stored(): Storing {
    this.#storing ??= {
      size: 0,
      sealed: nothingSealed,
      done: undefined,
      write: undefined,
      session: undefined,
      results: 0,
    };
    return this.#storing;
  }

  /** What goes with the writes before the next one, each with the state after it. */
  get #sealed(): readonly Sealed[] {
    return this.#storing?.sealed ?? nothingSealed;
  }

  /** Begins a new run with these entries. `idempotencyKey` and `session` go with the first write. */
  create([entry, ...others]: NewLog, idempotencyKey: string | null, session: SessionChange | undefined): void {
    const due = this.#next;
    due.session = session;
    due.idempotencyKey = idempotencyKey;
    this.decide({ type: "create", entry });
    for (const other of others) {
      if (this.#run.shared.store.persistent) this.#seal();
      this.#append([other]);
    }
  }

  /** Begins with a run that is in the store: its entries so far, its head as it is there, and the length of its JSON. */
  adopt(state: RunState, head: RunHead, size: number): void {
    this.#state = state;
    this.#stored.size = size;
    this.#committed = state.position;
    this.#fromOthers.position = state.position;
    this.#head = head;
  }

  /** Decides a command on the decided state. What is decided in one turn of the event loop is committed together at its end, unless a caller forces it. */
  decide(command: Command): Decision {
    if (this.lost) return noEntries;
    const had = this.#entries.length;
    // What an agent emits may be a great deal. It records no time, and a run is as active after it as before.
    const isEmitting = command.type === "emit";
    const activeTime = isEmitting ? undefined : this.activeTime;
    const queuedMs = isEmitting ? undefined : this.#run.queuedMs(this.#state);
    const decision = this.#decide(command, activeTime?.ms, queuedMs);
    if (!isEmitting && !isRefusal(decision)) this.#run.queued?.onRecorded(decision);
    if (had === 0 && this.#entries.length > 0) this.#run.shared.commitSoon(this);
    const size = this.#storing?.size;
    if (size !== undefined && size > this.#run.shared.settings.maxLogBytes) this.#failForSize();
    const isWaiting = beginsToWait(command) && !isRefusal(decision) && decision.length > 0;
    if (isWaiting && this.state.created?.durable === true) this.#comeToRest();
    if (!isEmitting) this.#run.settleActivity();
    return decision;
  }

  #decide(command: Command, activeMs?: number, queuedMs?: number): Decision {
    const decision = decide(this.#state, command, activeMs, queuedMs);
    if (isRefusal(decision) || decision.length === 0) return decision;
    // Some commands carry their entry. The log may get another one, with a later time.
    const carried = carriedEntry(command);
    if (carried !== undefined && decision[0] !== undefined && decision[0] !== carried)
      this.#setStanding(carried, decision[0]);
    if (this.#run.shared.store.persistent) this.#seal();
    this.#append(decision);
    return decision;
  }

  #append(entries: readonly Entry[]): void {
    const due = this.#next;
    due.entries = grown(due.entries, entries);
    for (const entry of entries) {
      if (entry.type === "continued") this.#endGeneration(due, entry);
      evolve(this.#state, entry);
      if (!this.#run.shared.store.persistent) continue;
      const size = roughLength(entry);
      due.size += size;
      this.#stored.size += size;
    }
  }

  #endGeneration(due: Due, entry: ContinuedEntry): void {
    const { created, position } = this.#state;
    // What a fork has from its origin was said by that.
    if (position >= (created?.origin?.position ?? 0))
      due.said = [...(due.said ?? []), ...saidUntil(this.#state, entry)];
    if (this.#storing !== undefined) this.#storing.size = 0;
  }

  /** Fails the run, once. */
  #failForSize(): void {
    const { clock, settings } = this.#run.shared;
    this.#stored.size = Number.NEGATIVE_INFINITY;
    const failed = clock.turn().then(() => {
      if (!this.lost && !isFinal(this.#state.status))
        this.#run.fail(logSizeError(this.key.run_id, settings.maxLogBytes));
    });
    inBackground(this.logger, failed);
  }

  /** Cuts what goes with the next write if it is large enough. What is decided later goes with another one. */
  #seal(): void {
    const due = this.#due;
    if (due === undefined || due.size <= MAX_WRITE) return;
    this.#due = undefined;
    const isFirst = this.#head === undefined && this.writing === undefined && this.#sealed.length === 0;
    if (!isFirst && due.session !== undefined) {
      this.#next.session = due.session;
      due.session = undefined;
    }
    this.#stored.sealed = [...this.#sealed, { due, state: copyState(this.#state) }];
  }

  /** A change of the session that goes with the next write, also if no entry does. */
  changeSession(change: SessionChange): void {
    this.#next.session = this.#joined(this.#due?.session, change);
    this.#run.shared.commitSoon(this);
  }

  /** Two changes as one. Callers that wait for either of the two now wait for the joined change. */
  #joined(before: SessionChange | undefined, after: SessionChange | undefined): SessionChange | undefined {
    const both = bothChanges(before, after);
    for (const waiter of this.#waiters ?? [])
      if (waiter.session !== undefined && (waiter.session === before || waiter.session === after))
        waiter.session = both;
    return both;
  }

  /** The session changes that the store has not said yes to, the newest first. */
  get #changes(): readonly SessionChange[] {
    const { sealed = nothingSealed, session } = this.#storing ?? {};
    const all = [session, ...sealed.map(({ due }) => due.session), this.#due?.session];
    return all.filter((change) => change !== undefined).reverse();
  }

  /** The decided entries that are not handed to the store yet. */
  get #entries(): readonly Entry[] {
    return this.#due?.entries ?? noEntries;
  }

  get #fromOthers(): Others {
    this.#others ??= { position: 0, log: undefined, standing: undefined };
    return this.#others;
  }

  get #next(): Due {
    this.#due ??= newDue();
    return this.#due;
  }

  /** How many entries have been decided, and the store has not said yes to. */
  get backlog(): number {
    return this.state.position - this.#committed;
  }

  /**
   * Resolves when all that has been decided is committed, however often the store fails before. Stays open if the run is
   * lost. Undefined: it is committed.
   */
  commit(): undefined | Promise<void> {
    const position = this.#writeNow();
    if (this.#isCommitted(position)) return undefined;
    if (this.lost) return new Promise(ignore);
    return this.#untilCommitted(position, undefined);
  }

  /** Hands over a result as soon as the commit of its entry has resolved. Until then {@link handsOver} is false. */
  handOverAfter(committed: Promise<void>, handOver: () => void): void {
    const storing = this.#stored;
    storing.results += 1;
    const handed = committed.then(() => {
      storing.results -= 1;
      handOver();
    });
    inBackground(this.logger, handed);
  }

  /**
   * Whether the agent may be given a result that follows from the committed log before the entry of the result is committed:
   * this process owns the run, also after the write under way, and no earlier result waits for its commit.
   */
  get handsOver(): boolean {
    const storing = this.#storing;
    if (storing === undefined || !this.#run.shared.store.persistent || this.isRetrying) return false;
    const isReading = storing.done !== undefined && storing.write === undefined;
    const isOurs = !isReading && storing.sealed.length === 0 && !isFree(this.#head) && !isFree(this.nextHead);
    return isOurs && storing.results === 0;
  }

  /**
   * As {@link commit}, for a caller that can be told: rejects when the store fails, and when the run is lost. `with what
   * follows`: the write is left to the end of the turn.
   */
  acknowledge(goes?: "with what follows"): undefined | Promise<void> {
    const before = this.#trouble?.outage?.failure;
    const position = goes === undefined ? this.#writeNow() : this.#state.position;
    if (this.#isCommitted(position)) return undefined;
    if (this.lostReason !== undefined) return Promise.reject(this.lostReason);
    // A store that answers at once has failed before a caller could wait.
    const failure = this.#trouble?.outage?.failure;
    if (this.#head !== undefined && failure !== before && failure !== undefined) return Promise.reject(failure);
    return this.#untilCommitted(position, "or refused");
  }

  /** Resolves when the log is committed so far. `or refused`: rejects when the caller is to learn of a failure. */
  #untilCommitted(position: number, or: "or refused" | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const [session] = this.#changes;
      const waiter: Waiter = { position, session, resolve, reject: or === undefined ? undefined : reject };
      if (this.#waiters === undefined) this.#waiters = [waiter];
      else this.#waiters.push(waiter);
    });
  }

  /**
   * Writes what has been decided, and answers where that ends. A store that answers at once may give what has arrived,
   * which is decided behind it and concerns no caller.
   */
  #writeNow(): number {
    const { position } = this.#state;
    const fromOthers = this.#others?.position;
    this.flush();
    return this.#others?.position === fromOthers ? position : this.#state.position;
  }

  #isCommitted(position: number): boolean {
    // A sealed change needs no look: the entries that it goes with are not committed either.
    const isChanging = this.#due?.session !== undefined || this.#storing?.session !== undefined;
    return this.#committed >= position && !isChanging;
  }

  /** Resolves the callers whose entries and session changes are committed. */
  #tellWaiters(): void {
    if (this.#waiters !== undefined) this.#tell(this.#waiters);
  }

  #tell(waiters: readonly Waiter[]): void {
    const changes = this.#changes;
    const isOpen = ({ position, session }: Waiter): boolean =>
      position > this.#committed || (session !== undefined && changes.includes(session));
    const open = waiters.filter(isOpen);
    if (open.length === waiters.length) return;
    this.#waiters = open.length === 0 ? undefined : open;
    for (const waiter of waiters) if (!isOpen(waiter)) waiter.resolve();
  }

  /** The entry that the log has, or is going to have, in place of one that was decided. Undefined: it was dropped. */
  standingOf(entry: Entry): Entry | undefined {
    const again = this.#others?.standing?.get(entry);
    if (again === undefined) return entry;
    return again === "dropped" ? undefined : this.standingOf(again);
  }

  #setStanding(entry: Entry, standing: Entry | "dropped"): void {
    const others = this.#fromOthers;
    others.standing ??= new WeakMap();
    others.standing.set(entry, standing);
  }

  /** Nothing can be written just now. Those who wait for what has been decided, and can be told, are. */
  refuse(error: CadenzaError): void {
    const waiters = this.#waiters;
    this.#waiters = waiters?.filter(({ reject }) => reject === undefined);
    for (const { reject } of waiters ?? []) reject?.(error);
  }

  /** While a write is under way, or waits to be tried again. */
  get writing(): Promise<void> | undefined {
    return this.#storing?.done;
  }

  /** Whether the store failed to take the last write: it is asked again from time to time. */
  get isRetrying(): boolean {
    return this.#trouble?.outage !== undefined;
  }

  /** Whether the store fails to take a write, or to answer what the agent waits for. It is asked again from time to time. */
  get isFailing(): boolean {
    return this.isRetrying || (this.#trouble !== undefined && this.#trouble.failingCalls > 0);
  }

  /** Waits with the agent for a store that has failed to answer it. */
  async outlast<Value>(answer: Promise<Value>): Promise<Value> {
    this.#troubles.failingCalls += 1;
    this.#run.settleActivity();
    try {
      return await answer;
    } finally {
      this.#troubles.failingCalls -= 1;
      this.#run.settleActivity();
    }
  }

  /** Whether something has been decided that is not handed to the store yet. */
  get isDue(): boolean {
    return this.#due !== undefined || this.#sealed.length > 0;
  }

  /** Hands what has been decided to the store, unless a write is under way: then it goes with the next one. */
  flush(): void {
    const sealed = this.#sealed[0];
    const due = sealed?.due ?? this.#due;
    if (due === undefined || due.isHeld || this.writing !== undefined || this.lost) return;
    const isOver = isFinal((sealed?.state ?? this.#state).status);
    if ((isOver || due.said !== undefined) && this.#run.isEndHeld) return;
    const isNews = due.entries.length > 0 || due.session !== undefined || due.takes !== undefined;
    if (isNews || (due.isHeadDue && !isOver)) this.#write(due, sealed?.state);
  }

  /** Has the head written that the run should have by now, also if nothing else is to be written. */
  settleHead(): void {
    this.#next.isHeadDue = true;
    this.flush();
  }

  /** A durable run that waits may be left to any process. Its agent has a turn to begin other work. */
  #comeToRest(): void {
    const due = this.#next;
    due.isHeld = true;
    const rested = this.#run.shared.clock.turn().then(() => {
      due.isHeld = false;
      this.flush();
    });
    inBackground(this.logger, rested);
  }

  /** The committed entries from a position on, some or all of them; undefined if the store has deleted the run. */
  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    const behind = this.#committed - from;
    if (behind === 0) return noEntries;
    const newest = this.#reading?.newest;
    if (behind === newest?.length) return newest;
    // The store may hold more already, which it has not said yet.
    return this.#run.shared.store.read(this.key, from, Math.min(READ_CHUNK, behind));
  }

  get blocked(): CadenzaError | undefined {
    return this.#run.blocked;
  }

  /** Calls back once, with the next commit. */
  watch(callback: () => void): void {
    this.#reading ??= { waiting: [], newest: noEntries };
    this.#reading.waiting = [...this.#reading.waiting, callback];
    this.#run.residence?.note("readers");
  }

  unwatch(callback: () => void): void {
    const reading = this.#reading;
    if (reading !== undefined) reading.waiting = reading.waiting.filter((reader) => reader !== callback);
    this.#run.residence?.note("readers");
  }

  /** Whether readers wait for the next commit. */
  get isRead(): boolean {
    return this.#reading !== undefined && this.#reading.waiting.length > 0;
  }

  /** The head has been replaced in the store, by this process, and nothing else was written. */
  replaceHead(head: RunHead): void {
    this.#head = head;
  }

  /** The store holds something else than this process knows, as a read has shown. Nothing is being written. */
  onStored(outcome: Outcome & { readonly is: "behind" | "lost" }): void {
    if (outcome.is === "lost") this.#giveUp(outcome.error, outcome.after);
    // It may hold the entries of a write whose answer was lost. The next attempt tells: they must not be decided again.
    else if (this.#trouble?.outage?.attempts.some(({ write }) => write.entries.length > 0) === true) this.flush();
    else this.#decideAgain();
  }

  /**
   * Other processes have written to the inbox of the run. What it holds is decided here, behind what has been decided, and
   * goes into the log with the next write. What has been taken before is left alone.
   */
  receive(inbox: readonly Arrived[]): void {
    if (this.lost || isFinal(this.#state.status)) return;
    const before = this.backlog;
    for (const { id, entries } of inbox) {
      if (this.#isTaken(id)) continue;
      try {
        checkFormat(this.key, this.#state.position, entries);
      } catch (error) {
        this.#onUnread(error);
        return;
      }
      for (const entry of entries) this.#append(decideArrived(this.#state, entry));
      this.#next.takes ??= [];
      this.#next.takes.push(id);
    }
    if (this.#due?.takes === undefined) return;
    this.#run.shared.commitSoon(this);
    if (this.backlog > before) this.#run.onReloaded();
  }

  /** Whether what has arrived was decided here. */
  #isTaken(id: number): boolean {
    const isIn = ({ takes }: Due): boolean => takes?.includes(id) === true;
    const taking = this.#storing?.write?.takes;
    if ((taking !== "all" && taking?.includes(id) === true) || (this.#due !== undefined && isIn(this.#due)))
      return true;
    return this.#sealed.some(({ due }) => isIn(due));
  }

  /** Gives the run up: nothing is written any more. Its readers wake, so that they can look elsewhere. */
  abandon(reason: CadenzaError): void {
    const trouble = this.#troubles;
    trouble.lost = reason;
    trouble.outage?.end();
    this.#dropSealed();
    if (this.#due !== undefined) this.#due.entries = noEntries;
    this.refuse(reason);
    this.#waiters = undefined;
    this.tellReaders();
  }

  #dropSealed(): void {
    if (this.#storing !== undefined) this.#storing.sealed = nothingSealed;
  }

  /** Nothing is being written any more. */
  #wrote(): void {
    const storing = this.#storing;
    if (storing === undefined) return;
    storing.done = undefined;
    storing.write = undefined;
    storing.session = undefined;
  }

  /** Who waits for a write waits for its end, whatever its outcome is. */
  #done(write: Promise<void>): Promise<void> {
    return endOf(this.logger, write);
  }

  #write({ entries, takes, session, said, idempotencyKey }: Due, sealed: RunState | undefined): void {
    const { shared } = this.#run;
    const before = this.#head;
    const state = sealed ?? this.#state;
    if (sealed === undefined) this.#due = undefined;
    else this.#stored.sealed = this.#sealed.slice(1);
    const plan = this.#run.residence?.plan(state, entries, before, this.#committed);
    const head = plan === undefined ? localHead(state, before) : plan.head;
    // The store has it already.
    const isSame = head === before && plan?.asks !== "joins";
    if (isSame && entries.length === 0 && session === undefined && takes === undefined) return;
    const joined = bothChanges(session, said && said.length > 0 ? sessionWith(state, () => said) : undefined);
    const added = writeOf(state, entries, head, plan?.wake, joined, this.#run);
    const taken: RunWrite["takes"] = plan?.leavesInbox === true ? "all" : takes;
    const asks = plan?.asks === undefined ? undefined : true;
    const place = plan?.place;
    const isPlain = taken === undefined && asks === undefined && place === undefined;
    const write = isPlain ? added : { ...added, takes: taken, asks, ...place };
    const attempt: Attempt = {
      key: this.key,
      write: fed(shared.store, write, state, this.#committed, before, this.#others?.position ?? 0),
      session,
      said,
      expected: plan === undefined ? before && expectedAfter(before, this.#committed) : plan.expected,
      idempotencyKey,
      sealed,
    };
    this.activeTime?.count();
    const outcome = this.#send(attempt);
    if (!isPromise(outcome)) this.#onOutcome(outcome, attempt);
    else this.#awaitOutcome(outcome, attempt);
  }

  #awaitOutcome(outcome: Promise<Outcome | undefined>, attempt: Attempt): void {
    this.#stored.write = attempt.write;
    this.#stored.session = attempt.session;
    this.#stored.done = this.#done(outcome.then((later) => this.#onOutcome(later, attempt)));
  }

  /** Hands a write to the store. Undefined: the store has accepted it. */
  #send(attempt: Attempt): MaybePromise<Outcome | undefined> {
    const { expected, write, idempotencyKey } = attempt;
    const { store } = this.#run.shared;
    let answer: MaybePromise<StoreConflict | WrittenWithInbox | undefined>;
    try {
      answer =
        expected === undefined
          ? store.create(this.key, write, idempotencyKey)
          : store.append(this.key, expected, write);
    } catch (error) {
      return this.#failedToSend(error, attempt);
    }
    return isPromise(answer) ? this.#awaitAnswer(answer, attempt) : answer && this.#onAnswer(answer, attempt);
  }

  #awaitAnswer(
    answer: Promise<StoreConflict | WrittenWithInbox | undefined>,
    attempt: Attempt,
  ): Promise<Outcome | undefined> {
    return answer.then(
      (later) => later && this.#onAnswer(later, attempt),
      (error: unknown) => this.#failedToSend(error, attempt),
    );
  }

  #onAnswer(answer: StoreConflict | WrittenWithInbox, attempt: Attempt): MaybePromise<Outcome> {
    return answer.conflict !== undefined ? this.#onConflict(answer, attempt) : { is: "written", inbox: answer.inbox };
  }

  #onConflict(conflict: StoreConflict, attempt: Attempt): MaybePromise<Outcome> {
    // A run that was not created has no log to say so: its caller gets the error.
    if (conflict.conflict === "unwritable" && attempt.expected !== undefined)
      return { is: "unwritable", error: unwritableError(conflict.reason) };
    const failed = this.#trouble?.outage?.attempts ?? [];
    const outcome =
      this.#run.residence?.onConflict(conflict, attempt, failed) ?? localOutcome(conflict, attempt, failed);
    return isPromise(outcome) ? outcome.catch((error: unknown) => this.#failedToSend(error, attempt)) : outcome;
  }

  #failedToSend(cause: unknown, attempt: Attempt): Outcome {
    const failure = this.#noteFailure(cause);
    // After a failed `create` the store is asked whether the run exists.
    if (attempt.expected !== undefined) this.#trouble?.outage?.attempts.push(attempt);
    return { is: "failed", failure };
  }

  /** Notes a failure of the store, and returns its error. */
  #noteFailure(cause: unknown): CadenzaError {
    const { run_id } = this.key;
    const failure = new CadenzaError("store_failed", `The store failed to write run ${run_id}.`, { run_id, cause });
    const { clock } = this.#run.shared;
    const trouble = this.#troubles;
    trouble.outage ??= new Outage(clock, failure);
    trouble.outage.failure = failure;
    return failure;
  }

  #onOutcome(outcome: Outcome | undefined, attempt: Attempt): void {
    this.#wrote();
    if (outcome === undefined) {
      this.#onWritten(attempt);
      return;
    }
    switch (outcome.is) {
      case "written":
        this.#onWritten(attempt);
        this.receive(outcome.inbox);
        return;
      case "recognised":
        this.#onRecognised(outcome.own, attempt);
        return;
      case "again":
        this.#putBack(attempt);
        outcome.before();
        this.flush();
        return;
      case "arrived":
        this.#putBack(attempt);
        this.#stored.done = this.#done(this.#readInbox(attempt));
        return;
      case "behind":
        this.#decideAgain(attempt);
        return;
      case "lost":
        this.#giveUp(outcome.error, outcome.after);
        return;
      case "unwritable":
        this.#dropUnwritable(outcome.error, attempt);
        return;
      case "failed":
        if (this.#head !== undefined) this.#onFailed(outcome.failure, attempt);
        else this.#stored.done = this.#done(this.#confirmCreate(outcome.failure, attempt));
    }
  }

  #onWritten(attempt: Attempt): void {
    const { write } = attempt;
    const before = this.#head;
    if (this.#trouble !== undefined) this.#trouble.outage = undefined;
    this.#head = write.head;
    this.#run.residence?.note({ written: attempt, before });
    if (write.entries.length > 0) {
      this.#committed += write.entries.length;
      // Without readers nothing is kept for them.
      this.#reading = this.isRead ? this.#reading : undefined;
      if (this.#reading !== undefined) this.#reading.newest = write.entries;
    }
    this.#tellWaiters();
    this.tellReaders();
    this.#run.onCommit();
    if (write.wake !== undefined) this.#run.residence?.note({ woken: write.wake });
    this.flush();
  }

  /** An earlier attempt was written after all: what the last one adds to it goes next. */
  #onRecognised(own: Attempt, { write, session, said, sealed }: Attempt): void {
    const rest = write.entries.slice(own.write.entries.length);
    const due = this.#goesFirst(rest, session === own.session ? undefined : session, sealed);
    if (rest.some(({ type }) => type === "continued")) due.said = said?.slice(own.said?.length ?? 0);
    this.#onWritten(own);
  }

  /**
   * The store can never hold a write. It is dropped, with all that was decided after it, and the run fails on the log that
   * is there.
   */
  #dropUnwritable(error: CadenzaError, attempt: Attempt): void {
    const sizes = attempt.write.entries.map(roughLength);
    const size = Math.max(0, ...sizes);
    const type = attempt.write.entries[sizes.indexOf(size)]?.type;
    this.#troubles.unwritable = new CadenzaError(
      "limit_reached",
      `${error.message} The largest entry of the write is \`${type}\`, with about ${size} characters as JSON.`,
      { run_id: this.key.run_id, limit: "entry" },
    );
    this.refuse(this.#troubles.unwritable);
    this.#unseal();
    for (const entry of [...attempt.write.entries, ...this.#entries]) this.#setStanding(entry, "dropped");
    this.#due = undefined;
    this.#decideAgain();
  }

  /** The state that the store holds. A run to which other processes write often does not read its whole log each time. */
  #readAgain(): MaybePromise<RunState | undefined> {
    this.#fromOthers.log ??= initialState(this.key.run_id);
    return foldOn(this.#run.shared.store, this.key, this.#fromOthers.log, Number.POSITIVE_INFINITY);
  }

  /** The log in the store is longer: what was decided here is decided again on what is there now. */
  #decideAgain(attempt?: Attempt): void {
    this.#putBack(attempt);
    let reload: MaybePromise<RunState | undefined>;
    try {
      reload = this.#readAgain();
    } catch (error) {
      this.#onUnread(error);
      return;
    }
    if (isPromise(reload))
      this.#stored.done = this.#done(
        reload.then(
          (state) => this.#rebase(state),
          (error: unknown) => this.#onUnread(error),
        ),
      );
    else this.#rebase(reload);
  }

  /**
   * The store refuses to leave behind what has arrived. A run that has ended here is decided again: the cancel comes
   * before its end.
   */
  async #readInbox({ write: { takes } }: Attempt): Promise<void> {
    let stored: StoredRun | undefined;
    let onWhat: RunState | undefined;
    try {
      stored = await this.#run.shared.store.find(this.key, "with inbox");
      // What was decided stays as it is until there is something on which to decide it again.
      if (isFinal(this.#state.status)) onWhat = await this.#readAgain();
    } catch (error) {
      this.#onUnread(error);
      return;
    }
    this.#wrote();
    const isOver = isFinal(this.#state.status);
    if (stored?.position !== this.#committed || (isOver && onWhat === undefined)) {
      // Another process has taken over the run with what had arrived. The next write is refused, and says so.
      this.flush();
      return;
    }
    const { inbox = [] } = stored;
    // What was decided here meanwhile is not in the write that was refused.
    if (takes === "all" || inbox.every(({ id }) => takes?.includes(id))) {
      const message = `The store refuses to write run ${this.key.run_id} because of what has arrived, and shows none of it.`;
      this.#onFailed(new CadenzaError("store_failed", message, { run_id: this.key.run_id }));
      return;
    }
    if (!isOver) {
      this.receive(inbox);
      this.flush();
      return;
    }
    this.#unseal();
    const due = this.#next;
    const cancels = inbox.filter(({ id, entries }) => !this.#isTaken(id) && hasCancel(entries));
    due.takes = [...(due.takes ?? []), ...cancels.map(({ id }) => id)];
    // What the run did before its end stays as it was.
    due.entries = due.entries.toSpliced(-1, 0, ...cancels.flatMap(({ entries }) => entries));
    this.#rebase(onWhat);
  }

  /** What another process has written could not be read. A run that only a newer version can read is left to it. */
  #onUnread(error: unknown): void {
    if (newerPart(error) === undefined || !CadenzaError.is(error)) {
      this.#onFailed(this.#noteFailure(error));
      return;
    }
    this.#wrote();
    this.#giveUp(error);
  }

  #rebase(state: RunState | undefined): void {
    this.#wrote();
    if (state === undefined) {
      this.#giveUp(lostError(this.key.run_id, "is not in the store any more"));
      return;
    }
    this.#committed = state.position;
    this.#fromOthers.position = state.position;
    if (this.#reading !== undefined) this.#reading.newest = noEntries;
    this.#decideAgainOn(copyState(state));
    if (this.#head !== undefined && this.#head.status !== this.#state.status) this.#next.isHeadDue = true;
    // Entries came before what callers wait for, or parts of it were dropped.
    for (const waiter of this.#waiters ?? []) waiter.position = this.#state.position;
    if (this.#entries.length > 0) this.#run.shared.commitSoon(this);
    this.tellReaders();
    this.#run.onCommit();
    this.#run.onReloaded();
    const unwritable = this.#trouble?.unwritable;
    if (unwritable !== undefined) {
      this.#troubles.unwritable = undefined;
      this.#run.fail(unwritable);
    }
    this.#tellWaiters();
    this.flush();
  }

  /** Decides the pending entries again on a newer state. */
  #decideAgainOn(state: RunState): void {
    this.#unseal();
    const decided = this.#entries;
    const { takes } = this.#next;
    this.#state = state;
    this.#next.entries = noEntries;
    this.#next.size = 0;
    this.#next.said = undefined;
    this.#next.takes = undefined;
    for (const entry of decided) {
      const decision = this.#decideOnceMore(entry);
      const again = (isRefusal(decision) ? undefined : decision[0]) ?? "dropped";
      // Some commands carry their entry, which is then the same one.
      if (again !== entry) this.#setStanding(entry, again);
    }
    // What was decided may go with several writes. The inbox keeps what is in any of them until the last one.
    if (takes !== undefined) this.#next.takes = takes;
  }

  /** A message was accepted, perhaps by another process that has said so: a cancel that came later does not refuse it. */
  #decideOnceMore(entry: Entry): Decision {
    if (entry.type !== "received" || isFinal(this.#state.status)) return this.#decide(commandOf(entry));
    const decision = decideArrived(this.#state, entry);
    this.#append(decision);
    return decision;
  }

  /** The store failed. Callers that can get an error get it. What was decided stays, and is tried again. */
  #onFailed(failure: CadenzaError, attempt?: Attempt): void {
    this.#putBack(attempt);
    this.refuse(failure);
    this.activeTime?.discount();
    const { cause: error = failure } = failure;
    this.logger.error("The store failed to write a run. It is tried again.", { ...aboutRun(this), error });
    const again = (this.#trouble?.outage?.pause() ?? Promise.resolve()).then(() => {
      this.#wrote();
      // What was dropped is to be decided on what the store holds, which could not be read.
      if (this.#trouble?.unwritable !== undefined) this.#decideAgain();
      else this.flush();
    });
    this.#stored.done = this.#done(again);
  }

  /** What was not written is written with what comes next. Undefined: nothing was written, and the head may be due. */
  #putBack(attempt: Attempt | undefined): void {
    const { entries, takes } = attempt?.write ?? nothingWritten;
    if (entries.length === 0) this.#next.isHeadDue = true;
    if (attempt === undefined) return;
    const due = this.#goesFirst(entries, attempt.session, attempt.sealed);
    due.idempotencyKey = attempt.idempotencyKey;
    if (attempt.said !== undefined) due.said = [...attempt.said, ...(due.said ?? [])];
    if (takes !== undefined && takes !== "all") due.takes = [...takes, ...(due.takes ?? [])];
  }

  /** These go before all else. `sealed`: in a write of their own, with the state after it. */
  #goesFirst(entries: readonly Entry[], session: SessionChange | undefined, sealed: RunState | undefined): Due {
    if (sealed !== undefined) this.#stored.sealed = [{ due: newDue(), state: sealed }, ...this.#sealed];
    const due = this.#sealed[0]?.due ?? this.#next;
    due.entries = [...entries, ...due.entries];
    due.session = this.#joined(session, due.session);
    if (this.#run.shared.store.persistent) due.size += roughLengthOf(entries);
    return due;
  }

  /** Puts all that is not handed to the store yet together. */
  #unseal(): void {
    const sealed = this.#sealed;
    this.#dropSealed();
    for (const { due } of sealed.toReversed()) {
      const first = this.#goesFirst(due.entries, due.session, undefined);
      if (due.takes !== undefined) first.takes = [...due.takes, ...(first.takes ?? [])];
    }
  }

  /** The store failed to say whether it has the run. Until it answers, the run is neither given up nor acknowledged. */
  async #confirmCreate(failure: CadenzaError, attempt: Attempt): Promise<void> {
    let isWritten: boolean | undefined;
    while (isWritten === undefined && !this.lost) {
      try {
        const stored = await this.#run.shared.store.find(this.key);
        isWritten = stored !== undefined && mayBeOf(attempt.write.head, stored.head);
      } catch {
        this.refuse(failure);
        await this.#trouble?.outage?.pause();
      }
    }
    this.#wrote();
    if (this.lost) return;
    if (isWritten === true) this.#onWritten(attempt);
    else this.#giveUp(failure);
  }

  #giveUp(error: CadenzaError, after?: () => void): void {
    this.abandon(error);
    this.#run.onLost();
    after?.();
  }

  /** Wakes those that wait for more entries: there are some, or there is something to learn about the run. */
  tellReaders(): void {
    const reading = this.#reading;
    if (reading === undefined) return;
    const { waiting } = reading;
    reading.waiting = [];
    for (const reader of waiting) reader();
  }
}

function newDue(): Due {
  return {
    entries: noEntries,
    size: 0,
    takes: undefined,
    session: undefined,
    said: undefined,
    idempotencyKey: null,
    isHeadDue: false,
    isHeld: false,
  };
}

const nothingSealed: readonly Sealed[] = [];

/** What a store is given that keeps the log, or that answers later. */
interface Storing {
  /** About how many characters the log has as JSON; 0 in a store that is not persistent. */
  size: number;
  sealed: readonly Sealed[];
  /** While a write is under way, or waits to be tried again. */
  done: Promise<void> | undefined;
  /** What is being written. Undefined: nothing. */
  write: RunWrite | undefined;
  /** The change of the session that goes with it. */
  session: SessionChange | undefined;
  /** How many results the agent is given when they are committed. */
  results: number;
}

/** What goes with a write before the next one, and the state after it. */
interface Sealed {
  readonly due: Due;
  readonly state: RunState;
}

/** What goes with the next write. */
interface Due {
  /** What has been decided and is not handed to the store yet. */
  entries: readonly Entry[];
  /** About how many characters they have as JSON; 0 in a store that is not persistent. */
  size: number;
  /** What of the inbox was decided with them. Undefined: nothing. */
  takes: number[] | undefined;
  session: SessionChange | undefined;
  /** What the generations that end with it add to the session. Undefined: none ends. */
  said: readonly Message[] | undefined;
  /** Of a new run: the key that its caller has given. */
  idempotencyKey: string | null;
  /** The head is to be written although nothing else is. */
  isHeadDue: boolean;
  /** A durable run that asks has a turn to begin other work. */
  isHeld: boolean;
}

/** What other processes may have written to the run, and what follows for what is decided here. */
interface Others {
  /** Up to which position. 0: none can have written. */
  position: number;
  /** The log as it was last read, after another process had written to it. */
  log: RunState | undefined;
  /** What has become of entries that were decided again, or that the log gets in another form. */
  standing: WeakMap<Entry, Entry | "dropped"> | undefined;
}

/** What keeps a log from being written. */
interface Trouble {
  /** Why nothing is written any more. */
  lost: CadenzaError | undefined;
  /** Why the run fails when its log has been read again: the store can never hold what was decided. */
  unwritable: CadenzaError | undefined;
  /** While the store fails to take a write. */
  outage: Outage | undefined;
  /** How many calls that the agent waits for the store has failed to answer, and is asked again. */
  failingCalls: number;
}

/** Who reads the log as it grows. */
interface Reading {
  /** Those who wait for the next commit. */
  waiting: (() => void)[];
  /** The entries of the last commit, for readers that are up to date. */
  newest: readonly Entry[];
}

/** A caller that waits for a commit. */
interface Waiter {
  position: number;
  /** The session change that it waits for, if any. */
  session: SessionChange | undefined;
  readonly resolve: () => void;
  readonly reject: ((error: CadenzaError) => void) | undefined;
}
