import { aboutRun } from "../../core/about-run.ts";
import { endOf, inBackground } from "../../core/background.ts";
import type { Command } from "../../core/commands.ts";
import { beginsToWait } from "../../core/commands.ts";
import { copyState } from "../../core/copy-state.ts";
import type { Decision } from "../../core/decide.ts";
import { isRefusal } from "../../core/decide.ts";
import { CadenzaError } from "../../core/errors.ts";
import { newerPart } from "../../core/format.ts";
import type { Entry } from "../../core/log.ts";
import type { Logger, RunHead, RunKey, SessionChange } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import { runRecord } from "../../core/record.ts";
import type { RunState } from "../../core/state.ts";
import { initialState, isFinal } from "../../core/state.ts";
import type { Run } from "../../protocol/run.ts";
import type { ActiveTime } from "./active-time.ts";
import { CommitWaiters } from "./commit-waiters.ts";
import type { Batch } from "./decided-run.ts";
import { DecidedRun } from "./decided-run.ts";
import { committedRecord, foldOn, READ_CHUNK } from "./fold-log.ts";
import type { LogRun } from "./log-host.ts";
import { LogReaders } from "./log-readers.ts";
import type { Ownership } from "./ownership.ts";
import { lostError } from "./refusals.ts";
import type { Attempt, Outcome } from "./run-write.ts";
import { fed, writeOf } from "./run-write.ts";
import { RunWriter } from "./run-writer.ts";

const noBatch: Batch = { entries: [], session: undefined };
const noEntries = noBatch.entries;

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
  readonly #ownership: Ownership;
  readonly #writer: RunWriter;
  readonly #decided: DecidedRun;
  #head: RunHead | undefined;
  #committed = 0;
  /** Up to which position other processes may have written. */
  #others = 0;
  #writing: Promise<void> | undefined;
  /** Why nothing is written any more. */
  #lost: CadenzaError | undefined;
  #waiters: CommitWaiters | undefined;
  /** Only of a run that has been read. */
  #readers: LogReaders | undefined;
  /** The log as it was last read from the store, after another process had written to it. */
  #stored: RunState | undefined;
  /** The head is to be written although nothing else is. */
  #isHeadDue = false;
  /** A durable run that asks has a turn to begin what it does beside asking. */
  #isComingToRest = false;
  /** Goes with the first write. */
  #idempotencyKey: string | null = null;
  /** How many calls that the agent waits for the store has failed to answer, and is asked again. */
  #failingCalls = 0;

  constructor(key: RunKey, run: LogRun, ownership: Ownership) {
    this.key = key;
    this.#run = run;
    this.#ownership = ownership;
    this.#writer = new RunWriter(run.shared, key, ownership);
    this.#decided = new DecidedRun(key);
  }

  /** What has been decided. */
  get state(): RunState {
    return this.#decided.state;
  }

  get logger(): Logger {
    return this.#run.shared.logger;
  }

  /** How many entries the store has. */
  get committed(): number {
    return this.#committed;
  }

  /** What the store knows of the run beside its log; undefined before the first commit. */
  get head(): RunHead | undefined {
    return this.#head;
  }

  /** The run as it is committed. Work that has been decided and is not committed is left out. */
  record(): MaybePromise<Run> {
    if (this.backlog === 0) return runRecord(this.state);
    return committedRecord(this.#run.shared.store, this.key, this.#committed);
  }

  /** Whether nothing is written to the run here any more. */
  get lost(): boolean {
    return this.#lost !== undefined;
  }

  get lostReason(): CadenzaError | undefined {
    return this.#lost;
  }

  /** Begins a new run. `idempotencyKey` and `session` go with the first write. */
  create(command: Command, idempotencyKey: string | null, session: SessionChange | undefined): void {
    this.#idempotencyKey = idempotencyKey;
    if (session !== undefined) this.#decided.changeSession(session);
    this.decide(command);
  }

  /** Begins with a run that is in the store: its entries so far, and its head as it is there. */
  adopt(state: RunState, head: RunHead): void {
    this.#decided.adopt(state);
    this.#committed = state.position;
    this.#others = state.position;
    this.#head = head;
    this.#ownership.onLoaded();
  }

  /** Decides a command on the decided state. What is decided in one turn of the event loop is committed together at its end, unless a caller forces it. */
  decide(command: Command): Decision {
    if (this.#lost !== undefined) return noEntries;
    const hadEntries = this.#decided.hasEntries;
    // What an agent emits may be a great deal. It records no time, and a run is as active after it as before.
    const activeTime = command.type === "emit" ? undefined : this.activeTime;
    const decision = this.#decided.decide(command, activeTime?.ms);
    if (!hadEntries && this.#decided.hasEntries) this.#run.shared.commitSoon(this);
    const isWaiting = beginsToWait(command) && !isRefusal(decision) && decision.length > 0;
    if (isWaiting && this.state.created?.durable === true) this.#comeToRest();
    if (activeTime !== undefined) this.#run.settleActiveTime();
    return decision;
  }

  /** A change of the session that goes with the next write, also if no entry does. */
  changeSession(change: SessionChange): void {
    this.#decided.changeSession(change);
    this.#run.shared.commitSoon(this);
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
    if (this.#isCommitted()) return undefined;
    if (this.#lost !== undefined) return new Promise(ignore);
    this.#waiters ??= new CommitWaiters();
    return this.#waiters.add(this.state.position, this.#decided.session);
  }

  /** As {@link commit}, for a caller that can be told: rejects when the store fails, and when the run is lost. */
  acknowledge(): undefined | Promise<void> {
    const before = this.#writer.failure;
    if (this.#isCommitted()) return undefined;
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    // A store that answers at once has failed before a caller could wait.
    const { failure } = this.#writer;
    if (this.#head !== undefined && failure !== before && failure !== undefined) return Promise.reject(failure);
    this.#waiters ??= new CommitWaiters();
    return this.#waiters.addRefusable(this.state.position, this.#decided.session);
  }

  #isCommitted(): boolean {
    this.flush();
    return this.#committed >= this.state.position && this.#decided.session === undefined;
  }

  /** What has become of an entry that was decided here: see {@link DecidedRun.standingOf}. */
  standingOf(entry: Entry): Entry | undefined {
    return this.#decided.standingOf(entry);
  }

  /** Nothing can be written just now. Those who wait for what has been decided, and can be told, are. */
  refuse(error: CadenzaError): void {
    this.#waiters?.refuse(error);
  }

  /** While a write is under way, or waits to be tried again. */
  get writing(): Promise<void> | undefined {
    return this.#writing;
  }

  /** Whether the store failed to take the last write: it is asked again from time to time. */
  get isRetrying(): boolean {
    return this.#writer.failure !== undefined;
  }

  /** Whether the store fails to take a write, or to answer what the agent waits for. It is asked again from time to time. */
  get isFailing(): boolean {
    return this.isRetrying || this.#failingCalls > 0;
  }

  /** Waits with the agent for a store that has failed to answer it. */
  async outlast<Value>(answer: Promise<Value>): Promise<Value> {
    this.#failingCalls += 1;
    this.#run.settleActiveTime();
    try {
      return await answer;
    } finally {
      this.#failingCalls -= 1;
      this.#run.settleActiveTime();
    }
  }

  /** Hands what has been decided to the store, unless a write is under way: then it goes with the next one. */
  flush(): void {
    if (this.#writing !== undefined || this.#lost !== undefined || this.#isComingToRest) return;
    const isOver = isFinal(this.state.status);
    if (isOver && this.#run.isEndHeld) return;
    if (!this.#decided.hasEntries && this.#decided.session === undefined && (isOver || !this.#isHeadDue)) return;
    this.#write();
  }

  /** Has the head written that the run should have by now, also if nothing else is to be written. */
  settleHead(): void {
    this.#isHeadDue = true;
    this.flush();
  }

  /** A durable run that waits may be left to any process. What its agent does beside that has a turn to begin. */
  #comeToRest(): void {
    this.#isComingToRest = true;
    const rested = this.#run.shared.clock.turn().then(() => {
      this.#isComingToRest = false;
      this.flush();
    });
    inBackground(this.logger, rested);
  }

  /** The committed entries from a position on, some or all of them; undefined if the store has deleted the run. */
  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    const behind = this.#committed - from;
    if (behind === 0) return noEntries;
    const batch = this.#readers?.batch;
    if (behind === batch?.length) return batch;
    // The store may hold more already, which it has not said yet.
    return this.#run.shared.store.read(this.key, from, Math.min(READ_CHUNK, behind));
  }

  get blocked(): CadenzaError | undefined {
    return this.#run.blocked;
  }

  /** Calls back once, with the next commit. */
  watch(callback: () => void): void {
    this.#readers ??= new LogReaders();
    this.#readers.add(callback);
    this.#ownership.onReaders();
  }

  unwatch(callback: () => void): void {
    this.#readers?.remove(callback);
    this.#ownership.onReaders();
  }

  /** Whether readers wait for the next commit. */
  get isRead(): boolean {
    return this.#readers?.isEmpty === false;
  }

  /** The head has been replaced in the store, by this process, and nothing else was written. */
  replaceHead(head: RunHead): void {
    this.#head = head;
  }

  /** The store holds something else than this process knows, as a read has shown. Nothing is being written. */
  onStored(outcome: Outcome & { readonly is: "behind" | "lost" }): void {
    if (outcome.is === "behind") this.#decideAgain(noBatch);
    else this.#giveUp(outcome.error, outcome.after);
  }

  /** Gives the run up: nothing is written any more. Readers are told, so that they can look elsewhere. */
  abandon(reason: CadenzaError): void {
    this.#lost = reason;
    this.#writer.end();
    this.#decided.drop();
    this.refuse(reason);
    this.#waiters = undefined;
    this.#ownership.onReaders();
    this.tellReaders();
  }

  /** Those who wait for a write wait for its end: its outcome is told otherwise. */
  #done(write: Promise<void>): Promise<void> {
    return endOf(this.logger, write);
  }

  #write(): void {
    const batch = this.#decided.take();
    const { entries, session } = batch;
    const before = this.#head;
    const head = this.#ownership.headFor(this.state, entries, before);
    this.#isHeadDue = false;
    // The store has it already.
    if (head === before && entries.length === 0 && session === undefined) return;
    const wake = this.#ownership.wakeFor(entries, head);
    const write = writeOf(this.state, entries, head, wake, session, () => this.#run.sessionAtEnd());
    const attempt: Attempt = {
      key: this.key,
      write: fed(this.#run.shared.store, write, this.state, this.#committed, before, this.#others),
      batch,
      expected: before && this.#ownership.expected(before, this.#committed),
      idempotencyKey: this.#idempotencyKey,
    };
    this.activeTime?.count();
    const outcome = this.#writer.write(attempt);
    if (!isPromise(outcome)) this.#onOutcome(outcome, attempt);
    else this.#writing = this.#done(outcome.then((later) => this.#onOutcome(later, attempt)));
  }

  #onOutcome(outcome: Outcome | undefined, attempt: Attempt): void {
    this.#writing = undefined;
    if (outcome === undefined) {
      this.#onWritten(attempt);
      return;
    }
    switch (outcome.is) {
      case "recognised":
        this.#onRecognised(outcome.own, attempt);
        return;
      case "again":
        this.#putBack(attempt.batch);
        outcome.before();
        this.flush();
        return;
      case "behind":
        this.#decideAgain(attempt.batch);
        return;
      case "lost":
        this.#giveUp(outcome.error, outcome.after);
        return;
      case "failed":
        if (this.#head !== undefined) this.#onFailed(outcome.failure, attempt.batch);
        else this.#writing = this.#done(this.#confirmCreate(outcome.failure, attempt));
    }
  }

  #onWritten(attempt: Attempt): void {
    const { write } = attempt;
    const before = this.#head;
    this.#head = write.head;
    this.#ownership.onWritten(attempt, before);
    this.#ownership.onReaders();
    if (write.entries.length > 0) {
      this.#committed += write.entries.length;
      // Without readers nothing is kept for them.
      if (this.#readers?.isEmpty === true) this.#readers = undefined;
      else if (this.#readers !== undefined) this.#readers.batch = write.entries;
    }
    this.#waiters?.committed(this.#committed, this.#decided.session);
    this.tellReaders();
    this.#run.onCommit();
    if (write.wake !== undefined) this.#ownership.onWakeWritten(write.wake);
    this.flush();
  }

  /** An earlier attempt was written after all: what the last one adds to it goes next. */
  #onRecognised(own: Attempt, attempt: Attempt): void {
    const { entries, session } = attempt.batch;
    const rest = entries.slice(own.batch.entries.length);
    this.#decided.putBack({ entries: rest, session: session === own.batch.session ? undefined : session });
    this.#onWritten(own);
  }

  /** The log in the store is longer: what was decided here is decided again on what is there now. */
  #decideAgain(batch: Batch): void {
    const { store } = this.#run.shared;
    this.#putBack(batch);
    // A run to which other processes write often does not read its whole log each time.
    this.#stored ??= initialState(this.key.run_id);
    let reload: MaybePromise<RunState | undefined>;
    try {
      reload = foldOn(store, this.key, this.#stored, Number.POSITIVE_INFINITY);
    } catch (error) {
      this.#onUnread(error);
      return;
    }
    if (isPromise(reload))
      this.#writing = this.#done(
        reload.then(
          (state) => this.#rebase(state),
          (error: unknown) => this.#onUnread(error),
        ),
      );
    else this.#rebase(reload);
  }

  /** What another process has written could not be read. A run that only a newer version can read is left to it. */
  #onUnread(error: unknown): void {
    if (newerPart(error) === undefined || !CadenzaError.is(error)) {
      this.#onFailed(this.#writer.failed(error), noBatch);
      return;
    }
    this.#writing = undefined;
    this.#giveUp(error);
  }

  #rebase(state: RunState | undefined): void {
    this.#writing = undefined;
    if (state === undefined) {
      this.#giveUp(lostError(this.key.run_id, "is not in the store any more"));
      return;
    }
    this.#committed = state.position;
    this.#others = state.position;
    if (this.#readers !== undefined) this.#readers.batch = noEntries;
    this.#decided.rebase(copyState(state));
    if (this.#head !== undefined && this.#head.status !== this.state.status) this.#isHeadDue = true;
    this.#waiters?.rebase(this.state.position);
    if (this.#decided.hasEntries) this.#run.shared.commitSoon(this);
    this.tellReaders();
    this.#run.onCommit();
    this.#run.onReloaded();
    this.#waiters?.committed(this.#committed, this.#decided.session);
    this.flush();
  }

  /** The store failed. Callers that can be told are told. What was decided stays, and is tried again. */
  #onFailed(failure: CadenzaError, batch: Batch): void {
    this.#putBack(batch);
    this.refuse(failure);
    this.activeTime?.discount();
    const { cause: error } = failure;
    this.logger.error("The store failed to write a run. It is tried again.", { ...aboutRun(this), error });
    const again = this.#writer.pause().then(() => {
      this.#writing = undefined;
      this.flush();
    });
    this.#writing = this.#done(again);
  }

  /** What was not written is written with what comes next. */
  #putBack(batch: Batch): void {
    if (batch.entries.length === 0) this.#isHeadDue = true;
    this.#decided.putBack(batch);
  }

  /** The store failed to say whether it has the run. Until it answers, the run is neither given up nor acknowledged. */
  async #confirmCreate(failure: CadenzaError, attempt: Attempt): Promise<void> {
    const isWritten = await this.#writer.isThere(
      attempt,
      () => this.lost,
      () => this.refuse(failure),
    );
    this.#writing = undefined;
    if (this.lost || isWritten === undefined) return;
    if (isWritten) this.#onWritten(attempt);
    else this.#giveUp(failure);
  }

  #giveUp(error: CadenzaError, after?: () => void): void {
    this.abandon(error);
    this.#run.onLost();
    after?.();
  }

  /** Wakes those that wait for more entries: there are some, or there is something to learn about the run. */
  tellReaders(): void {
    this.#readers?.tell();
  }
}
