import { aboutRun } from "../../core/about-run.ts";
import { endOf, inBackground } from "../../core/background.ts";
import { blockedError } from "../../core/blocked-error.ts";
import { takenAt } from "../../core/head.ts";
import type { Entry } from "../../core/log.ts";
import { isReceive } from "../../core/operation-keys.ts";
import type { Mismatch, RunHead, RunKey, RunWrite, StoredRun } from "../../core/ports.ts";
import { ignore } from "../../core/promises.ts";
import type { RunState } from "../../core/state.ts";
import { createdEntry, isFinal, isStopped, isWaiting, nextDeadline } from "../../core/state.ts";
import type { RunStatus } from "../../protocol/run.ts";
import type { Execution } from "../../runtime/execution/execution.ts";
import type { Journal, JournaledAgent } from "../../runtime/execution/operations.ts";
import { readGeneration } from "../../runtime/log/fold-log.ts";
import type { RunSlot } from "../../runtime/log/run-slot.ts";
import type { SubRunActivity } from "../../runtime/log/run-write.ts";
import { fed } from "../../runtime/log/run-write.ts";
import type { PostCommands } from "../../runtime/runs/committed-above.ts";
import type { LiveRun } from "../../runtime/runs/live-run.ts";
import { AgentJournal } from "../replay/agent-journal.ts";
import type { History } from "../replay/history.ts";
import { historyOf, subRunsBegun } from "../replay/history.ts";
import type { JournalEvent } from "../replay/result-queue.ts";
import { FIRST_RETRY_MS, pauseOf } from "./damaged-runs.ts";
import type { ResidencyRule } from "./keeping-owners.ts";
import { activities, activityOf } from "./keeping-owners.ts";
import type { Lease } from "./lease.ts";
import { LeasedHead } from "./leased-head.ts";
import type { OwnedLine } from "./owned-line.ts";
import type { Worker } from "./worker.ts";

/** The process that owns loaded runs, as they see it. */
export interface Owner {
  readonly worker: Worker;
  readonly lease: Lease;
  /** What waits for slots under this process. */
  readonly line: OwnedLine;
  /** Writes questions of a sub-run to a run above it that is not loaded here. */
  readonly postAbove: PostCommands;
  /** The code of a run does not match its history. */
  onBlocked(run: LiveRun): void;
  /** Releases the run, and loads it with the code that is registered now. */
  loadAgain(run: LiveRun): void;
  /** Loads the run again after it was given up. */
  reload(key: RunKey): void;
  /** Releases a run that has left this process, because it can do nothing more for it. */
  leaveToOthers(run: StoredRun, why: unknown): void;
  /** A run that was suspected to crash its process has made progress, or has left. */
  onSuspectCleared(run: LiveRun): void;
  /** A run has left this process before its end. */
  onGone(run: LiveRun): void;
  /** This process has lost a run, but not the sub-run. */
  onParentLost(child: LiveRun, parent: LiveRun): void;
}

const noEntries = [] as const;
/** How long a run that has taken a message of another process keeps its owner while it waits for more, in milliseconds. */
const MORE_MESSAGES_MS = 250;
/** By which part of `scanMs` a run that is given back is due later than this process asks: others ask before it does. */
const LEAD = 0.1;

/**
 * The residency of a durable run in this process: it is replayed, has an owner only while there is work for it, is
 * evicted after a long wait, and is released when its code does not match its history or this process closes. Of a plain
 * run in a durable store only the head is used: it stays loaded until it ends.
 */
export class Residency {
  readonly head: LeasedHead;
  /** The mismatch of code and history. Undefined: they match so far. */
  mismatch: Mismatch | undefined;
  /** Whether the run was taken over so often that it may crash the process. */
  isSuspect = false;
  readonly #owner: Owner;
  readonly #worker: Worker;
  readonly #run: LiveRun;
  #ready: Promise<void> | undefined;
  #caughtUp: (() => void) | undefined;
  #leaving: Promise<void> | undefined;
  #tryingAgain: Promise<void> | undefined;
  #clearEviction: (() => void) | undefined;
  /** Until when more messages are expected, by the monotonic clock. Undefined: what the run gets is sent in this process. */
  #expectsUntil: number | undefined;
  #clearExpecting: (() => void) | undefined;
  /** Undefined for most runs, which have no sub-runs. */
  #subRuns: Map<string, SubRunActivity> | undefined;
  /** When a process is to look again at sub-runs that this one cannot read, in milliseconds since 1970. Undefined: there are none. */
  #looksAgainAt: number | undefined;
  /** How often the run was given back for them, without having been woken meanwhile. */
  #givenBack = 0;
  /** How many checks of what the run waits for elsewhere are pending. */
  #checks = 0;
  /** Resolves when the agent has had its turn, and the run may be given up. Undefined: it is not to be given up. */
  #givingUp: Promise<void> | undefined;
  /** With `alwaysReplay`: resolves when the next replay has begun. The agent receives nothing before it. Undefined: none is due. */
  #replaying: Promise<void> | undefined;
  /** The number of entries at the last replay. */
  #replayedUntil = 0;
  /** Of the agent that is executed now. */
  #journal: AgentJournal | undefined;
  /** What the next execution has to do again. */
  #history: History | undefined;

  constructor(owner: Owner, run: LiveRun) {
    this.#owner = owner;
    this.#worker = owner.worker;
    this.#run = run;
    this.head = new LeasedHead(owner.worker.name, this);
  }

  /** Resolves when the replay is over. Undefined: the agent has caught up. */
  get ready(): Promise<void> | undefined {
    return this.#ready;
  }

  /** Resolves when the run is released to be loaded with other code. Undefined: it is not. */
  get tryingAgain(): Promise<void> | undefined {
    return this.#tryingAgain;
  }

  /** The journal of the next execution. */
  journalOf(agent: JournaledAgent): Journal {
    // An agent that begins again has nothing to catch up with. It may not have caught up before.
    if (this.#history === undefined && this.#replaying === undefined) {
      this.tellReady();
      this.#ready = undefined;
    }
    this.#journal = new AgentJournal(agent, (event) => this.#onJournal(event), this.#history, this.#worker.stallMs);
    this.#history = undefined;
    return this.#journal;
  }

  /** Executes the agent again, against its history. It is catching up until its journal tells that it has. */
  replay(history: History): void {
    const run = this.#run;
    run.execution?.fence();
    this.#subRuns = undefined;
    const begun = subRunsBegun(run.log.key, history);
    if (begun.length > 0) run.family.begunBefore(begun);
    this.prepare(history);
    if (history.startedAt === undefined && history.isStopped) run.endWithoutAgent();
    else run.execute();
  }

  /** The next execution of the agent is a replay of this history. */
  prepare(history: History): void {
    this.#expectCatchUp();
    this.#history = history;
  }

  #expectCatchUp(): void {
    this.#ready ??= new Promise((resolve) => {
      this.#caughtUp = resolve;
    });
  }

  /** What the journal of the agent tells. */
  #onJournal(event: JournalEvent): void {
    if (event === "difference") this.#worker.differences += 1;
    else if (event === "caught up") this.#onCaughtUp();
    else if ("stall" in event) this.#setMismatch(event.stall);
    else this.#onMismatch(event.mismatch);
  }

  #onCaughtUp(): void {
    this.#run.execution?.onCaughtUp();
    this.#goOn();
  }

  #onMismatch(mismatch: Mismatch): void {
    this.#run.execution?.fence();
    if (this.#setMismatch(mismatch)) this.#leaving ??= this.#leave(mismatch);
  }

  /** Whether other code than the run's agent is registered for it by now. */
  get #hasOtherCode(): boolean {
    const { agent, log, runs } = this.#run;
    const { agent_name, version } = createdEntry(log.state);
    return runs.registry.find(agent_name, version) !== agent;
  }

  /** Whether the run stays loaded with this mismatch. */
  #setMismatch(mismatch: Mismatch | undefined): boolean {
    const run = this.#run;
    const { log } = run;
    this.mismatch = mismatch;
    run.settleHold();
    if (mismatch !== undefined && log.state.status === "cancelling") {
      run.execution?.fence();
      run.endWithoutAgent();
      return false;
    }
    if (mismatch !== undefined && this.#hasOtherCode) {
      this.tellReady();
      this.#owner.loadAgain(run);
      return false;
    }
    this.setBlocked(mismatch ?? null);
    run.setBlocked(mismatch && blockedError(log.key.run_id, run.agent.name, mismatch));
    if (mismatch !== undefined) {
      this.#worker.logger.warn(
        "A run is blocked: its code does not match its history. Register matching code, or cancel the run.",
        { ...aboutRun(log), ...mismatch },
      );
      run.runs.onBlocked(run, mismatch);
      this.#owner.onBlocked(run);
      this.forgetTakeovers();
      this.tellReady();
    }
    return true;
  }

  /** The agent has caught up, unless its next replay is due already. The run continues, and may be left to any process. */
  #goOn(): void {
    if (this.#replaying === undefined) {
      this.tellReady();
      this.#ready = undefined;
      inBackground(this.#worker.logger, this.#forgetCrashes());
    }
    this.#run.goOn();
    this.settleOwner();
  }

  /** A run that has caught up, and then only waits for answers and sub-runs, has not crashed its owners. */
  async #forgetCrashes(): Promise<void> {
    const { log, execution } = this.#run;
    if (log.head?.takeovers === 0) return;
    await execution?.settled();
    const isCurrent = this.#run.execution === execution && execution?.over === false && !log.lost;
    if (isCurrent && execution.open.length > 0 && !this.#run.isInStep) this.forgetTakeovers();
  }

  /**
   * Ends the wait of callers for the replay: the agent has caught up, is blocked, or is replayed in another process.
   */
  tellReady(): void {
    this.#caughtUp?.();
  }

  /**
   * Releases the run, which this process then loads with other code. Answers wait meanwhile. `blocked`: the run stays blocked
   * until then, with the mismatch that it has.
   */
  leaveForOtherCode(how?: "blocked"): Promise<void> {
    this.#leaving ??= this.#leave((how && this.mismatch) ?? null);
    this.#tryingAgain = this.#leaving;
    return this.#leaving;
  }

  /** Releases the run, as blocked if there is a mismatch. Then a process with matching code may claim it. */
  async #leave(blocked: Mismatch | null): Promise<void> {
    this.#run.execution?.fence();
    this.setBlocked(blocked);
    // The release fails if another process has claimed the run. Then nothing is left to do.
    await this.release().catch(ignore);
    this.#run.leave("The code of the agent does not match the history of the run.");
  }

  /**
   * Releases the run and makes it due at once, unless it is blocked: this process may not have handled the wake-up for
   * which it took the run, or what has arrived since.
   */
  async release(): Promise<void> {
    const { log, residence } = this.#run;
    const { store, onReleased } = this.#worker;
    this.head.isReleased = true;
    const committed = log.acknowledge();
    if (committed !== undefined) await committed;
    for (;;) {
      if (log.writing !== undefined) await log.writing;
      const { head } = log;
      if (head === undefined || head.owner === null || log.lost) return;
      const released = this.head.headFor(log.state, noEntries, head, "release");
      const write = { entries: noEntries, head: released, wake: log.key, takes: "all" } as const;
      const told = fed(store, write, log.state, log.committed, head, 0);
      const conflict = await store.append(log.key, this.head.expected(head, log.committed), told);
      if (conflict === undefined) {
        log.replaceHead(released);
        onReleased(log.key, released);
      }
      // The next owner checks everything that the run waits for.
      else if (conflict.conflict === "woken") this.head.wakes = conflict.wakes;
      else if (conflict.conflict !== "changed" || conflict.epoch !== head.epoch) return;
      // Another process has posted a cancel. The run is released with it.
      else await residence?.sync("after writing");
    }
  }

  /** Blocks the run, because the code does not match the history. Null: unblocks it. */
  setBlocked(mismatch: Mismatch | null): void {
    const { log } = this.#run;
    if (log.head === undefined || (mismatch === null && this.head.blocked === null)) return;
    this.head.blocked = mismatch;
    log.settleHead();
  }

  /** Resets the count of take-overs, because the run has not crashed its earlier owners. */
  forgetTakeovers(): void {
    const { log } = this.#run;
    if (log.head === undefined || log.head.takeovers === 0) return;
    this.head.isSound = true;
    log.settleHead();
  }

  /** This process has written a run that this one waits for, and this run knows it. The wake-up counts as handled. */
  noteWake(): void {
    const { head, writing } = this.#run.log;
    if (head?.owner === this.#worker.name && writing === undefined) this.head.wakes += 1;
  }

  /**
   * The store has made this process the owner of a run that it has loaded. False: the loaded run may have been out of
   * date, and was compared with the store.
   */
  async take(head: RunHead, position: number): Promise<boolean> {
    const { log, residence } = this.#run;
    if (log.lost) return false;
    this.onGiven();
    const { epoch } = log.head ?? head;
    if (epoch !== head.epoch - 1 || position < log.committed || log.writing !== undefined) {
      await residence?.sync("after writing");
      return false;
    }
    log.replaceHead(head);
    this.head.wakes = 0;
    if (this.#looksAgainAt !== undefined && takenAt(head) < this.#looksAgainAt) this.#givenBack = 0;
    this.#looksAgainAt = undefined;
    // Without an owner, and so within one epoch, the log grows by posts alone.
    if (position > log.committed) log.onStored({ is: "behind" });
    return true;
  }

  /**
   * See {@link ResidenceEvent}. While a sub-run is `sought`, the run keeps its owner if it has one. One that waits for an
   * `unreadable` sub-run is given back, and is due again after a pause: what has woken it is for a process that can read it.
   */
  setSubRun(key: string, activity: SubRunActivity | undefined): void {
    this.#subRuns ??= new Map();
    if (activity === undefined) this.#subRuns.delete(key);
    else this.#subRuns.set(key, activity);
    if (activity === "unreadable") this.#looksAgainAt ??= this.#nextLook();
    else if (this.#looksAgainAt !== undefined && ![...this.#subRuns.values()].includes("unreadable"))
      this.#looksAgainAt = undefined;
    if (activity !== "sought") this.settleOwner();
  }

  #nextLook(): number {
    const { clock, settings } = this.#worker;
    this.#givenBack += 1;
    return clock.now() + pauseOf(FIRST_RETRY_MS, this.#givenBack) + settings.scanMs * LEAD;
  }

  /** Something that the run waits for has happened elsewhere. The run keeps its owner until the check resolves. */
  lookInto(check: Promise<unknown>): void {
    this.#checks += 1;
    const looked = endOf(this.#worker.logger, check).then(() => {
      this.#checks -= 1;
      this.settleOwner();
    });
    inBackground(this.#worker.logger, looked);
  }

  /** Whether the run only waits, and no work of it is or may be in progress here. Then it needs no owner. */
  get isIdle(): boolean {
    return this.#run.durable && this.#waits && !this.#rule.keeps;
  }

  get isAtWork(): boolean {
    return this.#run.isAtWork;
  }

  get decided(): number {
    return this.#run.log.state.position;
  }

  get slot(): RunSlot | undefined {
    return this.#run.slot;
  }

  get mayLeave(): boolean {
    return this.#run.durable && !this.#rule.claims;
  }

  get hasSubRuns(): boolean {
    return this.#subRuns !== undefined && this.#subRuns.size > 0 && this.#worker.store.persistent;
  }

  /** When the run has something to do again if nothing happens, in milliseconds since 1970. Null: never. */
  get deadline(): number | null {
    const deadline = nextDeadline(this.#run.log.state);
    return this.#looksAgainAt === undefined ? deadline : Math.min(deadline ?? this.#looksAgainAt, this.#looksAgainAt);
  }

  /** Whether the run waits for answers, time or messages, or for sub-runs, whatever else its agent does. */
  get #waits(): boolean {
    const { state } = this.#run.log;
    return isWaiting(state) || (this.#subRuns !== undefined && this.#subRuns.size > 0 && !isStopped(state));
  }

  get #rule(): ResidencyRule {
    const activity = activityOf({
      isInStep: this.#run.isInStep,
      subRuns: this.#subRuns?.values() ?? [],
      checks: this.#checks,
      isReplaying: this.#ready !== undefined,
      isOverdue: this.#hasCome || this.#expectsMessages,
      isSettled: this.#journal?.isIdle !== false,
    });
    return activities[activity];
  }

  get #isCommitted(): boolean {
    const { state, committed, backlog } = this.#run.log;
    return state.position === committed && backlog === 0;
  }

  /** Whether something has happened that the run may wait for. Its agent does not have it yet. */
  get isExpecting(): boolean {
    return this.#checks > 0 || this.#hasCome;
  }

  get #hasCome(): boolean {
    return this.#isOverdue || hasMailToTake(this.#run.log.state);
  }

  /** Whether a deadline has passed, by this clock or by the store's. The agent is about to go on. */
  get #isOverdue(): boolean {
    const deadline = nextDeadline(this.#run.log.state);
    return deadline !== null && deadline <= Math.max(this.#worker.clock.now(), takenAt(this.#run.log.head));
  }

  /**
   * Whether more messages are expected: each of them would cost a run without an owner a claim, and perhaps a replay. An
   * owner takes what has arrived at once.
   */
  get #expectsMessages(): boolean {
    const until = this.#expectsUntil;
    if (until === undefined || this.#worker.isClosed || this.#worker.clock.monotonic() >= until) return false;
    return isReceiving(this.#run.log.state);
  }

  /** The store has given the run to this process, or more of it: perhaps a message of another process. */
  onGiven(): void {
    this.#expectsUntil ??= this.#worker.clock.monotonic();
  }

  /** A run that has taken a message of another process expects more. */
  onWritten({ entries, takes, head }: RunWrite): void {
    if (takes !== undefined) this.onGiven();
    if (head.owner === null) this.#expectsUntil = undefined;
    else if (this.#expectsUntil !== undefined && entries.some(isTaken))
      this.#expectsUntil = this.#worker.clock.monotonic() + MORE_MESSAGES_MS;
  }

  /** This process takes no more runs. One that only expects more messages has no owner once that is written. */
  async stopExpecting(): Promise<void> {
    const { head } = this.#run.log;
    if (head !== undefined && head.owner !== null && this.mismatch === undefined && this.isIdle)
      await this.#giveUpOwner();
  }

  /** Settles the owner when no more messages are expected. */
  #watchExpecting(): void {
    const { clock } = this.#worker;
    const leftMs = (this.#expectsUntil ?? 0) - clock.monotonic();
    if (this.#clearExpecting !== undefined || leftMs <= 0) return;
    this.#clearExpecting = clock.setTimeout(() => {
      this.#clearExpecting = undefined;
      if (this.#expectsMessages) this.#watchExpecting();
      else this.settleOwner();
    }, leftMs);
  }

  /** Claims a waiting run that has work to do here, and gives up ownership when no work is left. */
  settleOwner(): void {
    const { log } = this.#run;
    const { head } = log;
    if (head === undefined || !this.#waits || this.mismatch !== undefined) return;
    const { claims, evicts } = this.#rule;
    if (head.owner === null && claims) log.settleHead();
    else if (head.owner !== null && evicts) inBackground(this.#worker.logger, this.#giveUpOwner());
  }

  async #giveUpOwner(): Promise<void> {
    if (this.#givingUp !== undefined) return;
    this.#givingUp = this.#run.execution?.settled() ?? Promise.resolve();
    await this.#givingUp;
    this.#givingUp = undefined;
    const { log } = this.#run;
    const { head, lost } = log;
    const isOwned = !lost && head !== undefined && head.owner !== null;
    // The agent has yet to get what is being written. This is tried again when it is committed.
    if (isOwned && this.#isCommitted && this.isIdle) log.settleHead();
  }

  /** After a commit: a waiting run is to be evicted, and with `alwaysReplay` the agent is replayed. */
  onCommit(status: RunStatus): void {
    this.#clearEviction?.();
    if (isFinal(status)) {
      this.#clearExpecting?.();
      // A run may end before its agent has caught up.
      this.tellReady();
      return;
    }
    const { evictAfterMs, clock, settings } = this.#worker;
    if (settings.alwaysReplay) this.#replaySoon();
    if (!this.#waits) return;
    this.settleOwner();
    this.#watchExpecting();
    if (evictAfterMs === Number.POSITIVE_INFINITY) return;
    this.#clearEviction = clock.setTimeout(() => this.evict(), evictAfterMs);
  }

  /**
   * Evicts the run, if it only waits. A run that has an owner in the store stays, because no other process would load
   * it.
   */
  evict(): void {
    const { head, writing } = this.#run.log;
    // What is being written may make this process the owner.
    const isFree = this.#waits && head?.owner === null && writing === undefined;
    if (!isFree || !this.#isCommitted || !this.#rule.evicts || this.#run.isNeeded) return;
    this.#run.leave("The run waits, and was evicted.", "evicted");
  }

  /** The run's parent is not loaded here any more. */
  leaveAlone(): void {
    if (this.#worker.evictAfterMs !== Number.POSITIVE_INFINITY) this.evict();
  }

  /** The run has left this process. */
  end(): void {
    this.#clearEviction?.();
    this.#clearExpecting?.();
    this.tellReady();
  }

  /**
   * Schedules a replay for when everything that the agent did is committed. Until then the agent receives no results.
   */
  #replaySoon(): void {
    const { log, execution } = this.#run;
    if (this.#replaying !== undefined || execution === undefined || this.#isPastReplay(execution)) return;
    // A run that is being cancelled is not replayed.
    if (log.committed <= this.#replayedUntil || log.state.status === "cancelling") return;
    this.#expectCatchUp();
    // The writer reports a failing store. The agent continues without the replay.
    this.#replaying = this.#replayWhenCommitted(execution).catch(() => this.#goOnWithoutReplay());
    const held = this.#journal?.hold(this.#replaying);
    if (held !== undefined) inBackground(this.#worker.logger, held);
  }

  async #replayWhenCommitted(execution: Execution): Promise<void> {
    const { log } = this.#run;
    const { clock, store } = this.#worker;
    for (;;) {
      await clock.turn();
      await log.commit();
      await this.#run.slot?.unqueued();
      const { committed } = log;
      const entries = await readGeneration(store, log.key, committed);
      if (this.#isPastReplay(execution)) {
        this.#goOnWithoutReplay();
        return;
      }
      if (log.backlog > 0 || entries === undefined || committed !== log.committed) continue;
      this.#replaying = undefined;
      this.#replayedUntil = log.committed;
      this.replay(historyOf(entries));
      return;
    }
  }

  /** Whether the agent is not replayed any more: it is being stopped, or the run has ended, is blocked or has left. */
  #isPastReplay(execution: Execution): boolean {
    const { lost, state } = this.#run.log;
    return execution.isStopped || lost || isFinal(state.status) || this.mismatch !== undefined;
  }

  #goOnWithoutReplay(): void {
    this.#replaying = undefined;
    if (this.#run.log.lost || this.#journal?.isCatchingUp === true) return;
    this.#goOn();
  }
}

/** Whether another process has posted something that the agent has yet to get: an offered answer, or a message. */
function hasMailToTake({ mail, waits }: RunState): boolean {
  if (mail === null) return false;
  if (mail.offers.size > 0) return true;
  if (mail.inbox.size === 0 || waits === null) return false;
  const awaited = new Set([...waits.keys()].filter(isReceive).map((key) => key.slice(0, key.lastIndexOf("#"))));
  return awaited.size > 0 && mail.inbox.find(({ entry }) => awaited.has(`receive:${entry.name}`)) !== undefined;
}

/** Whether a receive has taken a message. */
function isTaken(entry: Entry): boolean {
  return entry.type === "taken" && entry.position !== null;
}

/** Whether the run waits for a message. */
function isReceiving({ waits }: RunState): boolean {
  for (const key of waits?.keys() ?? []) if (isReceive(key)) return true;
  return false;
}
