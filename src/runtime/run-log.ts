import type { Command, Decision } from "../core/decide.ts";
import { commandOf, decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import { evolve } from "../core/evolve.ts";
import { copyJson, sameJson } from "../core/json.ts";
import type { Entry } from "../core/log.ts";
import type {
  Clock,
  Expected,
  Logger,
  Mismatch,
  RunHead,
  RunKey,
  RunPosition,
  RunWrite,
  SessionChange,
  Store,
  StoreConflict,
  StoredRun,
} from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { runRecord } from "../core/record.ts";
import type { RunState } from "../core/state.ts";
import { initialState, isAtRest, isFinal } from "../core/state.ts";
import { countRun } from "../core/statistics.ts";
import type { Run } from "../protocol/run.ts";
import type { Follower } from "./follower.ts";

/** What the logs of one runtime share. */
export interface LogHost {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The name under which this runtime owns runs. */
  readonly owner: string;
  /** Called when a log has entries that nobody waits for: they are committed at the end of the turn. */
  commitSoon(log: RunLog): void;
  /** Keeps the process from ending until the answer is called. */
  hold(): () => void;
  /** The store failed to answer, and may have given this process a run all the same. */
  onUnknownOutcome(): void;
  /** Asks the store for runs that other processes may write to. */
  readonly follower: Follower;
  /** The store holds less of a run than it had taken: the run is loaded again. */
  reload(key: RunKey): void;
}

/** The run that a log belongs to, and what the log reports to it. */
export interface LogRun {
  readonly host: LogHost;
  /** Entries were committed, up to the log's `committed`. */
  onCommit(): void;
  /** Another process owns the run now. Nothing that happens here counts any more. */
  onLost(): void;
  /** Whether the end of the run is not to be written yet: no process would cancel its sub-runs after that. */
  readonly isEndHeld: boolean;
  /** The session change that goes with a write whose last entry is `ended`. */
  sessionAtEnd(): SessionChange | undefined;
  /** Somebody else has written to the run, and what they wrote has been taken in. */
  onReloaded(): void;
  /** Whether the run keeps its owner although it waits. */
  keepsOwner(): boolean;
  /** The run that has something to do once these entries are written: the parent of a sub-run that comes to rest. */
  wakes(entries: readonly Entry[]): RunKey | undefined;
  /** Something that the run waits for has happened elsewhere. */
  onWoken(): void;
  /** Another run has something to do, since this one was written. */
  onWakeWritten(): void;
  /** Why the run does not get on; undefined if it does. */
  readonly blocked: CadenzaError | undefined;
}

/** How many entries a reader that is behind is given at a time. */
const READ_CHUNK = 256;
const FIRST_RETRY_MS = 50;
const LAST_RETRY_MS = 5_000;
const noEntries: readonly Entry[] = [];

/**
 * The log of a live run. It has two positions: `state` is decided and may run ahead; `committed` is what the store has
 * said yes to, and readers are shown no more. Decide, commit, announce, in that order. Every write to a live run is made
 * here, whether the store answers at once or later.
 */
export class RunLog {
  readonly key: RunKey;
  readonly #run: LogRun;
  #state: RunState;
  #head: RunHead | undefined;
  #committed = 0;
  #session: SessionChange | undefined;
  /** Decided and not yet handed to the store. */
  #entries: Entry[] | undefined;
  /** Since the last write that did not fail. */
  #trouble: Trouble | undefined;
  #writing: Promise<void> | undefined;
  /** Why nothing is written any more. */
  #lost: CadenzaError | undefined;
  #waiters: Waiter[] | undefined;
  /** Only of a run that was asked for with a key, or changes hands. */
  #handover: Handover | undefined;
  /** Only of a run that somebody reads along with. */
  #audience: Audience | undefined;

  constructor(key: RunKey, run: LogRun) {
    this.key = key;
    this.#run = run;
    this.#state = initialState(key.run_id);
  }

  /** What has been decided. */
  get state(): RunState {
    return this.#state;
  }

  /** How many entries the store has. */
  get committed(): number {
    return this.#committed;
  }

  /** How far the store is known to have come with the run; undefined before the first commit and after the run was lost. */
  get known(): RunPosition {
    return { key: this.key, epoch: this.#head?.epoch ?? 0, position: this.#committed };
  }

  /** What the store knows of the run beside its log; undefined before the first commit. */
  get head(): RunHead | undefined {
    return this.#head;
  }

  /** When the store gave the run to this process, by the store's clock, if it was due then; else 0. In milliseconds since the epoch. */
  get takenAt(): number {
    const head = this.#head;
    return head === undefined || head.owner === null ? 0 : (head.due_at ?? 0);
  }

  /** The run as it is committed. Work that has been decided and is not committed is left out. */
  record(): MaybePromise<Run> {
    if (this.#state.position === this.#committed) return runRecord(this.#state);
    const folded = foldLog(this.#run.host.store, this.key, initialState(this.key.run_id), this.#committed);
    return isPromise(folded) ? folded.then((state) => this.#recordOf(state)) : this.#recordOf(folded);
  }

  #recordOf(state: RunState | undefined): Run {
    if (state === undefined)
      throw new CadenzaError("run_not_found", `Run ${this.key.run_id} is not in the store any more.`, {
        run_id: this.key.run_id,
      });
    return runRecord(state);
  }

  /** Whether the run belongs to another process by now. */
  get lost(): boolean {
    return this.#lost !== undefined;
  }

  /** Why the run is not this process's any more; undefined while it is. */
  get lostReason(): CadenzaError | undefined {
    return this.#lost;
  }

  /** Begins a new run. `idempotencyKey` and `session` go with the first write. */
  create(
    command: Command & { type: "create" },
    idempotencyKey: string | null,
    session: SessionChange | undefined,
  ): void {
    if (idempotencyKey !== null) this.#changesHands.idempotencyKey = idempotencyKey;
    this.#session = session;
    this.decide(command);
  }

  /** Takes over a run that is in the store: its entries so far, and its head as it is there. */
  adopt(state: RunState, head: RunHead): void {
    this.#state = state;
    this.#committed = state.position;
    this.#head = head;
    this.#changesHands.isAdopted = true;
  }

  /** Decides a command on the decided state. What is decided in one turn of the event loop is committed together at its end, unless somebody forces it. */
  decide(command: Command): Decision {
    if (this.#lost !== undefined) return noEntries;
    const decision = decide(this.#state, command);
    if (isRefusal(decision) || decision.length === 0) return decision;
    if (this.#entries === undefined) {
      this.#entries = [];
      this.#run.host.commitSoon(this);
    }
    for (const entry of decision) {
      evolve(this.#state, entry);
      this.#entries.push(entry);
    }
    if (command.type === "ask" && this.#state.created?.durable === true) this.#comeToRest();
    return decision;
  }

  /** What deciding the command would lead to; nothing happens. */
  preview(command: Command): Decision {
    return decide(this.#state, command);
  }

  /** A change of the session that goes with the next write, also if no entry does. */
  changeSession(change: SessionChange): void {
    const before = this.#session;
    this.#session = { ...change, create: change.create || (before?.create ?? false), messages: before?.messages };
    this.#run.host.commitSoon(this);
  }

  /** How many entries have been decided, and the store has not said yes to. */
  get backlog(): number {
    return this.#state.position - this.#committed;
  }

  /**
   * Sees to it that all that has been decided is committed. Undefined: it is. A promise: it will be; it stays open if the run
   * goes to another process, and with `refusable` it rejects when the store fails, else the store is asked again until it works.
   */
  commit(refusable = false): undefined | Promise<void> {
    const failure = this.#trouble?.failure;
    this.flush();
    const position = this.#state.position;
    if (this.#committed >= position && this.#session === undefined) return undefined;
    if (this.#lost !== undefined) return refusable ? Promise.reject(this.#lost) : new Promise(ignore);
    // A store that answers at once has failed before anybody could wait.
    const failed = this.#trouble?.failure;
    if (refusable && failed !== undefined && failed !== failure) return Promise.reject(failed);
    return this.#committedTo(position, refusable);
  }

  #committedTo(position: number, refusable: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiters ??= [];
      this.#waiters.push({ position, session: this.#session, resolve, reject: refusable ? reject : undefined });
    });
  }

  /** Nothing can be written just now. Those who wait for what has been decided, and can be told, are. */
  refuse(error: CadenzaError): void {
    const waiters = this.#waiters;
    this.#waiters = waiters?.filter((waiter) => waiter.reject === undefined);
    for (const waiter of waiters ?? []) waiter.reject?.(error);
  }

  /** The turn of the event loop in which something was decided is over. */
  onTurnsEnd(): void {
    this.flush();
  }

  /** While a write is under way, or waits to be tried again. */
  get writing(): Promise<void> | undefined {
    return this.#writing;
  }

  /** Whether the store failed to take the last write: it is asked again from time to time. */
  get isRetrying(): boolean {
    return this.#trouble !== undefined;
  }

  /** Hands what has been decided to the store, unless a write is under way: then it goes with the next one. */
  flush(): void {
    if (this.#writing !== undefined || this.#lost !== undefined || this.#handover?.isComingToRest === true) return;
    const isOver = isFinal(this.#state.status);
    if (isOver && this.#run.isEndHeld) return;
    const isHeadDue = this.#handover?.isHeadDue === true && !isOver;
    if (this.#entries === undefined && this.#session === undefined && !isHeadDue) return;
    this.#write();
  }

  /** Has the head written that the run should have by now, also if nothing else is to be written. */
  settleHead(): void {
    this.#changesHands.isHeadDue = true;
    this.flush();
  }

  /** What brought earlier owners of the run down was not the run: how often it was taken over is counted anew. */
  forgetTakeovers(): void {
    if (this.#head === undefined || this.#head.takeovers === 0) return;
    this.#changesHands.isSound = true;
    this.settleHead();
  }

  get #changesHands(): Handover {
    this.#handover ??= {
      idempotencyKey: null,
      isAdopted: false,
      isSound: false,
      isReleased: false,
      isHeadDue: false,
      isComingToRest: false,
      wakes: 0,
      blocked: null,
    };
    return this.#handover;
  }

  /** A durable run that waits gives its owner up. What its agent does beside asking has a turn to begin, and keeps the owner. */
  #comeToRest(): void {
    const handover = this.#changesHands;
    handover.isComingToRest = true;
    void this.#run.host.clock.turn().then(() => {
      handover.isComingToRest = false;
      this.flush();
    });
  }

  /** A run that this one waits for was written here, and this run has seen it: it has looked into that wake-up. */
  noteWake(): void {
    const { owner } = this.#run.host;
    if (this.#head?.owner === owner && this.#writing === undefined) this.#changesHands.wakes += 1;
  }

  /** The committed entries from a position on, some or all of them; undefined if the store has forgotten the run. */
  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    const behind = this.#committed - from;
    if (behind === 0) return noEntries;
    const batch = this.#audience?.batch;
    if (behind === batch?.length) return batch;
    // The store may hold more already, which it has not said yet.
    return this.#run.host.store.read(this.key, from, Math.min(READ_CHUNK, behind));
  }

  /** See {@link LogRun.blocked}. */
  get blocked(): CadenzaError | undefined {
    return this.#run.blocked;
  }

  /** Calls back once, with the next commit. */
  watch(callback: () => void): void {
    this.#audience ??= { readers: [], batch: noEntries, unfollow: undefined };
    this.#audience.readers.push(callback);
    this.#settleFollowing();
  }

  /** Takes a `watch` back. */
  unwatch(callback: () => void): void {
    const audience = this.#audience;
    if (audience !== undefined) audience.readers = audience.readers.filter((reader) => reader !== callback);
    this.#settleFollowing();
  }

  /** The store has more of the run than this process has seen, or the run has another owner. */
  onMoved(): void {
    void this.catchUp().catch(ignore);
  }

  /** A run without an owner may be written by another process: for readers here the store is asked. */
  #settleFollowing(): void {
    const audience = this.#audience;
    if (audience === undefined) return;
    const { store, follower } = this.#run.host;
    const isOutside = this.#head?.owner === null && this.#lost === undefined && store.persistent;
    if (isOutside && audience.readers.length > 0 && !isFinal(this.#head?.status ?? "created"))
      audience.unfollow ??= follower.follow(this);
    else {
      audience.unfollow?.();
      audience.unfollow = undefined;
    }
  }

  /** Gives the run back, so that another process may take it over at once. */
  async release(): Promise<void> {
    this.#changesHands.isReleased = true;
    const committed = this.commit(true);
    if (committed !== undefined) await committed;
    for (;;) {
      if (this.#writing !== undefined) await this.#writing;
      const head = this.#head;
      if (head === undefined || head.owner === null || this.#lost !== undefined) return;
      const released = this.#nextHead(noEntries);
      const write = this.#writeOf(noEntries, released);
      const conflict = await this.#run.host.store.append(this.key, this.#expected(head), write);
      if (conflict === undefined) this.#head = released;
      // The next owner looks at everything that the run waits for.
      else if (conflict.conflict === "woken") this.#changesHands.wakes = conflict.wakes;
      else if (conflict.conflict !== "changed" || conflict.epoch !== head.epoch) return;
      // Another process has asked for the run to stop: it is given back as one that is to be stopped.
      else await this.catchUp(true);
    }
  }

  /** The code does not match the history: the run has no owner, and no process takes it before other code is registered. Null: it matches after all. */
  setBlocked(mismatch: Mismatch | null): void {
    if (this.#head === undefined || (mismatch === null && this.#handover?.blocked == null)) return;
    this.#changesHands.blocked = mismatch;
    this.settleHead();
  }

  /** This process was given the run while it was loaded here already. */
  async onTaken(head: RunHead, position: number): Promise<void> {
    const { epoch } = this.#head ?? head;
    if (this.#lost !== undefined) return;
    if (epoch !== head.epoch - 1 || position !== this.#committed || this.#writing !== undefined) {
      await this.catchUp(true);
      return;
    }
    this.#head = head;
    this.#changesHands.wakes = 0;
    this.#run.onWoken();
  }

  /** Looks whether another process has written to the run, or has taken it over. With `surely` it waits for what this process writes meanwhile. */
  async catchUp(surely = false): Promise<void> {
    const { store } = this.#run.host;
    let stored: StoredRun | undefined;
    for (;;) {
      if (surely && this.#writing !== undefined) await this.#writing;
      const head = this.#head;
      stored = await store.find(this.key);
      if (this.#lost !== undefined) return;
      if (this.#head === head && this.#writing === undefined) break;
      if (!surely) return;
    }
    if (stored?.position === this.#committed && stored.head.epoch === this.#head?.epoch) return;
    if (stored !== undefined && stored.position < this.#committed) this.#loseHistory(stored.position);
    else if (stored === undefined || stored.head.epoch !== this.#head?.epoch) this.#giveUp(lostError(this.key.run_id));
    else this.#decideAgain({ write: { entries: noEntries, head: this.#head }, session: undefined });
  }

  /** Gives the run up: nothing is written any more. Readers are told, so that they can look elsewhere. */
  abandon(reason: CadenzaError): void {
    this.#lost = reason;
    this.#trouble?.clearRetry();
    this.#entries = undefined;
    this.refuse(reason);
    this.#waiters = undefined;
    this.#settleFollowing();
    this.tellReaders();
  }

  #write(): void {
    const { store } = this.#run.host;
    const entries = this.#entries ?? noEntries;
    const head = this.#nextHead(entries);
    // The store has it already.
    if (head === this.#head && head.owner === null && entries.length === 0 && this.#session === undefined) {
      this.#changesHands.isHeadDue = false;
      return;
    }
    const write = this.#writeOf(entries, head);
    const attempt: Attempt = { write, session: this.#session };
    this.#entries = undefined;
    this.#session = undefined;
    if (this.#handover !== undefined) this.#handover.isHeadDue = false;
    let answer: MaybePromise<StoreConflict | undefined>;
    try {
      answer =
        this.#head === undefined
          ? store.create(this.key, write, this.#handover?.idempotencyKey ?? null)
          : store.append(this.key, this.#expected(this.#head), write);
    } catch (error) {
      this.#failed(error, attempt);
      return;
    }
    if (!isPromise(answer)) {
      this.#answered(answer, attempt);
      return;
    }
    this.#writing = answer.then(
      (conflict) => {
        this.#writing = undefined;
        this.#answered(conflict, attempt);
      },
      (error: unknown) => {
        this.#writing = undefined;
        this.#failed(error, attempt);
      },
    );
  }

  #expected({ epoch }: RunHead): Expected {
    const wakes = this.#handover?.wakes ?? 0;
    return wakes === 0 ? { epoch, position: this.#committed } : { epoch, position: this.#committed, wakes };
  }

  #writeOf(entries: readonly Entry[], head: RunHead): RunWrite {
    // A run that is given back at work, or is to stop, needs work at once. One that waits is due at its deadline.
    const isAtWork = head.owner === null && !isAtRest(head.status) && head.blocked === null;
    const wake = this.#run.wakes(entries) ?? (isAtWork ? this.key : undefined);
    if (entries.at(-1)?.type === "ended")
      return { entries, head, session: this.#mergedSession(), counters: countRun(this.#state), wake };
    if (this.#session === undefined && wake === undefined) return { entries, head };
    return { entries, head, session: this.#session, wake };
  }

  /** A run may set its session's state, make the session and add to it in one write. */
  #mergedSession(): SessionChange | undefined {
    const end = this.#run.sessionAtEnd();
    const change = this.#session;
    if (end === undefined || change === undefined) return end ?? change;
    return {
      ...end,
      create: end.create || change.create,
      state: change.state,
      messages: () => [...(change.messages?.() ?? []), ...(end.messages?.() ?? [])],
    };
  }

  /** Most writes of a stream leave the head as it is. */
  #nextHead(entries: readonly Entry[]): RunHead {
    const { status, shown, ended } = this.#state;
    const blocked = isFinal(status) ? null : (this.#handover?.blocked ?? null);
    const released =
      isFinal(status) ||
      // What has happened is written first, and then the run is given back.
      (this.#handover?.isReleased === true && entries.length === 0) ||
      blocked !== null ||
      (status === "awaiting" && !this.#run.keepsOwner());
    const owner = released ? null : this.#run.host.owner;
    const before = this.#head;
    const getsOn = this.#handover?.isSound === true || entries.some(isProgress);
    const takeovers = before === undefined || getsOn ? 0 : before.takeovers;
    const deadline = status === "awaiting" && blocked === null ? (shown?.deadline ?? null) : null;
    // With an owner: since when it has the run, if the store has given it.
    const due_at = owner === null ? deadline : before?.owner === owner ? before.due_at : null;
    const isSame =
      before?.status === status &&
      before.owner === owner &&
      before.due_at === due_at &&
      before.blocked === blocked &&
      before.takeovers === takeovers;
    // Each change of hands has an epoch of its own, and the end has the last one.
    // A run without an owner may have been loaded elsewhere too: then it belongs to the first process that writes.
    const isIdle = before?.owner === null && (entries.length > 0 || !isSame);
    const handedOver =
      before !== undefined && (isIdle || (this.#handover?.isAdopted === true && before.owner !== null));
    // A process that has not seen that the owner is gone may not put it back with what it writes.
    const isGivenUp = before !== undefined && owner === null && entries.length === 0 && !isSame;
    const epoch = (before?.epoch ?? 0) + (handedOver || isGivenUp ? 1 : 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
    if (isSame && before.epoch === epoch) return before;
    return { status, epoch, owner, due_at, blocked, holds_slot: false, finished_at: ended?.at ?? null, takeovers };
  }

  #answered(conflict: StoreConflict | undefined, attempt: Attempt): void {
    if (conflict !== undefined) {
      this.#refused(conflict, attempt);
      return;
    }
    const { write } = attempt;
    this.#trouble = undefined;
    if (this.#handover !== undefined) {
      this.#handover.isAdopted = false;
      if (this.#head?.owner !== write.head.owner) this.#handover.wakes = 0;
    }
    this.#head = write.head;
    this.#settleFollowing();
    if (write.entries.length > 0) {
      this.#committed += write.entries.length;
      this.#tellBatch(write.entries);
    }
    this.#tellWaiters();
    this.tellReaders();
    this.#run.onCommit();
    if (write.wake !== undefined) this.#run.onWakeWritten();
    // What was decided meanwhile goes next, all of it in one batch.
    this.flush();
  }

  #refused(conflict: StoreConflict, attempt: Attempt): void {
    const own = this.#trouble?.attempts.find(
      ({ write: { head, entries } }) =>
        conflict.conflict === "changed" &&
        conflict.epoch === head.epoch &&
        conflict.position === this.#committed + entries.length,
    );
    if (own !== undefined) {
      this.#recognise(own, conflict, attempt);
      return;
    }
    if (conflict.conflict === "woken") {
      this.#changesHands.wakes = conflict.wakes;
      this.#putBack(attempt);
      this.#run.onWoken();
      this.flush();
      return;
    }
    if (conflict.conflict === "changed" && conflict.position < this.#committed) {
      this.#loseHistory(conflict.position);
      return;
    }
    if (conflict.conflict === "changed" && conflict.epoch === this.#head?.epoch) {
      this.#decideAgain(attempt);
      return;
    }
    if (conflict.conflict === "key_used")
      this.#giveUp(
        new CadenzaError("idempotency_conflict", "The idempotency key was used in the meantime.", {
          run_id: conflict.run_id,
        }),
      );
    else this.#giveUp(lostError(this.key.run_id));
  }

  /** The store may have written what it failed to confirm. If the log holds just that, it has, and the rest goes next. */
  #recognise(own: Attempt, conflict: StoreConflict, attempt: Attempt): void {
    const written = own.write.entries;
    const compare = (held: readonly Entry[] | undefined): void => {
      this.#writing = undefined;
      if (!sameJson(copyJson(held), copyJson(written))) {
        if (this.#trouble !== undefined) this.#trouble.attempts = [];
        this.#refused(conflict, attempt);
        return;
      }
      const rest = attempt.write.entries.slice(written.length);
      if (rest.length > 0) this.#entries = [...rest, ...(this.#entries ?? [])];
      if (attempt.session !== own.session) this.#session ??= attempt.session;
      this.#answered(undefined, own);
    };
    const held = this.#run.host.store.read(this.key, this.#committed, written.length);
    if (!isPromise(held)) compare(held);
    else this.#writing = held.then(compare, (error: unknown) => this.#failed(error, attempt));
  }

  /** Somebody else added to the log, in the same epoch: what was decided here is decided again on what is there now. */
  #decideAgain({ write, session }: Attempt): void {
    const reload = this.#reload();
    const again = (state: RunState | undefined): void => {
      this.#writing = undefined;
      if (state === undefined) {
        this.#giveUp(lostError(this.key.run_id, "is not in the store any more"));
        return;
      }
      this.#state = state;
      this.#committed = state.position;
      if (this.#audience !== undefined) this.#audience.batch = noEntries;
      const decided = [...write.entries, ...(this.#entries ?? noEntries)];
      this.#entries = undefined;
      this.#session ??= session;
      for (const entry of decided) this.decide(commandOf(entry));
      this.tellReaders();
      this.#run.onCommit();
      this.#run.onReloaded();
      this.#tellWaiters();
      this.flush();
    };
    if (!isPromise(reload)) again(reload);
    else this.#writing = reload.then(again, (error: unknown) => this.#failed(error, { write, session }));
  }

  #reload(): MaybePromise<RunState | undefined> {
    return foldLog(this.#run.host.store, this.key, initialState(this.key.run_id), Number.POSITIVE_INFINITY);
  }

  /** The store failed. Whoever can be told is told; what was decided stays, and is tried again. */
  #failed(cause: unknown, attempt: Attempt): void {
    this.#writing = undefined;
    const error = new CadenzaError("store_failed", `The store failed to write run ${this.key.run_id}.`, {
      run_id: this.key.run_id,
      cause,
    });
    if (this.#head === undefined) {
      this.#run.host.onUnknownOutcome();
      this.#settleCreate(error, attempt, FIRST_RETRY_MS);
      return;
    }
    this.#putBack(attempt);
    this.refuse(error);
    this.#run.host.logger.error(error.message, { run_id: this.key.run_id, error: cause });
    const { attempts = [], retryMs: wait = FIRST_RETRY_MS } = this.#trouble ?? {};
    attempts.push(attempt);
    this.#writing = new Promise((resolve) => {
      const clearRetry = this.#later(wait, () => {
        this.#writing = undefined;
        resolve();
        this.flush();
      });
      this.#trouble = { failure: error, attempts, retryMs: Math.min(2 * wait, LAST_RETRY_MS), clearRetry };
    });
  }

  /** What was not written is written with what comes next. */
  #putBack({ write, session }: Attempt): void {
    if (write.entries.length > 0) this.#entries = [...write.entries, ...(this.#entries ?? [])];
    else this.#changesHands.isHeadDue = true;
    this.#session ??= session;
  }

  /** The store failed to say whether it has the run. Until it answers, the run is neither given up nor acknowledged. */
  #settleCreate(error: CadenzaError, attempt: Attempt, retryMs: number): void {
    const settle = (stored: StoredRun | undefined): void => {
      this.#writing = undefined;
      if (this.#lost !== undefined) return;
      if (stored === undefined) this.#giveUp(error);
      else this.#answered(undefined, attempt);
    };
    const again = (): void => {
      this.#writing = undefined;
      if (this.#lost !== undefined) return;
      this.refuse(error);
      this.#writing = new Promise<void>((resolve) => {
        this.#later(retryMs, resolve);
      }).then(() => this.#settleCreate(error, attempt, Math.min(2 * retryMs, LAST_RETRY_MS)));
    };
    let found: MaybePromise<StoredRun | undefined>;
    try {
      found = this.#run.host.store.find(this.key);
    } catch {
      again();
      return;
    }
    if (isPromise(found)) this.#writing = found.then(settle, again);
    else settle(found);
  }

  /** Does something after a pause that holds the process open: what has been decided and not stored is lost if it ends. The answer takes it back. */
  #later(waitMs: number, act: () => void): () => void {
    const letGo = this.#run.host.hold();
    const clearTimer = this.#run.host.clock.setTimeout(() => {
      letGo();
      act();
    }, waitMs);
    return () => {
      letGo();
      clearTimer();
    };
  }

  /** What the store had acknowledged is not there any more. Nothing is written on top of that: the run is replayed from what is left. */
  #loseHistory(position: number): void {
    const { host } = this.#run;
    const { run_id } = this.key;
    const message = `The store lost entries of run ${run_id}: it holds ${position}, and had acknowledged ${this.#committed}. The run is replayed from what is left.`;
    host.logger.warn(message, { run_id, position, acknowledged: this.#committed });
    this.#giveUp(lostError(run_id, "lost a part of its history in the store, and is replayed"));
    host.reload(this.key);
  }

  #giveUp(error: CadenzaError): void {
    this.refuse(error);
    this.abandon(error);
    this.#run.onLost();
  }

  /** Readers at the live edge need not ask the store; without any, nothing is held for them. */
  #tellBatch(entries: readonly Entry[]): void {
    if (this.#audience === undefined) return;
    if (this.#audience.readers.length === 0) {
      this.#audience.unfollow?.();
      this.#audience = undefined;
    } else this.#audience.batch = entries;
  }

  #tellWaiters(): void {
    const waiters = this.#waiters;
    if (waiters === undefined) return;
    const isOpen = ({ position, session }: Waiter): boolean =>
      position > this.#committed || (session !== undefined && session === this.#session);
    const open = waiters.filter(isOpen);
    this.#waiters = open.length === 0 ? undefined : open;
    if (open.length < waiters.length) for (const waiter of waiters) if (!isOpen(waiter)) waiter.resolve();
  }

  /** Wakes those that wait for more entries: there are some, or there is something to learn about the run. */
  tellReaders(): void {
    const audience = this.#audience;
    if (audience === undefined) return;
    const { readers } = audience;
    audience.readers = [];
    for (const reader of readers) reader();
  }
}

/** Whether an entry shows that a run got on. An attempt at a step, and what it showed, does not: the next one may end in the same way. */
function isProgress(entry: Entry): boolean {
  if (entry.type === "emitted") return entry.kind !== "part" || entry.source === undefined;
  return entry.type !== "intent";
}

/** The run is not this process's any more. `awaitId`: the question that an answer to it was meant for. */
export function lostError(runId: string, why = "belongs to another process now", awaitId?: string): CadenzaError {
  return new CadenzaError("lost_ownership", `Run ${runId} ${why}.`, {
    run_id: runId,
    ...(awaitId !== undefined && { await_id: awaitId }),
  });
}

/** Whether an error is that of {@link lostError}. */
export function isLost(error: unknown): error is CadenzaError {
  return CadenzaError.is(error) && error.code === "lost_ownership";
}

/** What is known of a store that fails, until it works again. */
interface Trouble {
  /** Why the last write failed. */
  readonly failure: CadenzaError;
  /** The writes that failed. A store that fails may have written all the same. */
  attempts: Attempt[];
  /** How long the next failure waits, in milliseconds. */
  readonly retryMs: number;
  readonly clearRetry: () => void;
}

/** Those who read along with a run. */
interface Audience {
  /** Who waits for the next commit. */
  readers: (() => void)[];
  /** What was committed last. */
  batch: readonly Entry[];
  /** While other processes may write to the run: asks the store no more. */
  unfollow: (() => void) | undefined;
}

/** How a run comes into the store and changes hands. */
interface Handover {
  /** Goes with the first write. */
  idempotencyKey: string | null;
  /** Nothing has been written yet since the run was taken over. */
  isAdopted: boolean;
  /** The run has shown that it does not bring its owner down. */
  isSound: boolean;
  /** The run is being given back: nothing that is written takes it again. */
  isReleased: boolean;
  /** The head is to be written although nothing else is. */
  isHeadDue: boolean;
  /** How many wake-ups under the present owner the run has looked into. */
  wakes: number;
  /** How the code differs from the history; null for a run that is not blocked. */
  blocked: Mismatch | null;
  isComingToRest: boolean;
}

/** A write that was handed to the store. */
interface Attempt {
  readonly write: RunWrite;
  /** The session change that it carries, without what the end of the run adds to it. */
  readonly session: SessionChange | undefined;
}

interface Waiter {
  readonly position: number;
  /** The session change that it waits for, if there was one. */
  readonly session: SessionChange | undefined;
  readonly resolve: () => void;
  readonly reject: ((error: CadenzaError) => void) | undefined;
}

/** Folds what the store has of a log into a state, up to a position; undefined if there is no such run. */
export function foldLog(store: Store, key: RunKey, state: RunState, until: number): MaybePromise<RunState | undefined> {
  for (;;) {
    const entries = store.read(key, state.position, Math.min(READ_CHUNK, until - state.position));
    if (isPromise(entries))
      return entries.then((later) =>
        foldChunk(state, later, until) ? foldLog(store, key, state, until) : stateOrNothing(state, later),
      );
    if (!foldChunk(state, entries, until)) return stateOrNothing(state, entries);
  }
}

/** Whether there may be more. */
function foldChunk(state: RunState, entries: readonly Entry[] | undefined, until: number): boolean {
  for (const entry of entries ?? []) evolve(state, entry);
  return entries !== undefined && entries.length > 0 && state.position < until;
}

function stateOrNothing(state: RunState, entries: readonly Entry[] | undefined): RunState | undefined {
  return entries === undefined ? undefined : state;
}
