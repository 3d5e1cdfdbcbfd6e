import { isCopy } from "../../core/emission-source.ts";
import type { Entry } from "../../core/log.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Expected, Mismatch, RunHead } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal, isStopped, isWaiting, startTime } from "../../core/state.ts";
import type { RunSlot } from "../../runtime/log/run-slot.ts";

/** What the head says beside the status. */
export interface HeadFacts {
  /** Whether the run only waits, and no work of it is in progress here. */
  readonly isIdle: boolean;
  /** Whether a step or a sub-run is at work here, whatever the run waits for beside it. */
  readonly isAtWork: boolean;
  /** Whether it waits for sub-runs, which wake it from any process. */
  readonly hasSubRuns: boolean;
  /** Undefined: the run needs none. */
  readonly slot: Pick<RunSlot, "isQueued" | "hasQueuedBodies" | "isKept"> | undefined;
  /** Whether the run may leave this process to wait for a slot: it is durable, and no step or sub-run is at work here. */
  readonly mayLeave: boolean;
  /** When it has something to do again if nothing happens, in milliseconds since 1970. Null: never. */
  readonly deadline: number | null;
}

/** The head of a run that may change its owner, and what its writes expect. */
export class LeasedHead {
  readonly #owner: string;
  readonly #facts: HeadFacts;
  /** The run was claimed, and nothing has been written since. */
  #isTakenOver = false;
  /** The run has caught up without crashing this process. */
  #isSound = false;
  /** The run is being released. No later write claims it again. */
  #isReleased = false;
  #wakes = 0;
  /** No slot was free when this process asked for one. */
  #isSlotFull = false;
  /** The head that is being written gives the slot back. */
  #isGivingSlot = false;
  /** The head that was last made leaves the run to any process, since no slot is free here. */
  #leavesForSlot = false;
  #hasLeftForSlot = false;
  #blocked: Mismatch | null = null;

  constructor(owner: string, facts: HeadFacts) {
    this.#owner = owner;
    this.#facts = facts;
  }

  get isBlocked(): boolean {
    return this.#blocked !== null;
  }

  /** Whether this process owns the run. */
  owns({ owner }: RunHead): boolean {
    return owner === this.#owner;
  }

  /** This process has handled the wake-ups up to this number. */
  handled(wakes: number): void {
    this.#wakes = wakes;
  }

  /** This process has handled one more wake-up. */
  handledOneMore(): void {
    this.#wakes += 1;
  }

  /** The run was loaded from the store. */
  takeOver(): void {
    this.#isTakenOver = true;
  }

  /** See {@link Handover.forgetTakeovers}. */
  forgetTakeovers(): void {
    this.#isSound = true;
  }

  /** The run is about to be released. What is written before keeps its owner, and no later write claims it again. */
  beginRelease(): void {
    this.#isReleased = true;
  }

  /** The head with which the run is released. */
  released(state: RunState, before: RunHead): RunHead {
    return this.#headOf(state, [], before, true);
  }

  /** Blocks the run: it has no owner, and no process takes it before other code is registered. Null: unblocks it. */
  block(mismatch: Mismatch | null): void {
    this.#blocked = mismatch;
  }

  /** No slot is free. The run leaves with the next write, or goes without a slot until it may ask again. */
  onSlotFull(): void {
    this.#isSlotFull = true;
  }

  /** The run may ask for a slot again. */
  askAgain(): void {
    this.#isSlotFull = false;
  }

  get isGivingSlot(): boolean {
    return this.#isGivingSlot;
  }

  /** Whether the run has been left to any process because no slot was free. */
  get hasLeftForSlot(): boolean {
    return this.#hasLeftForSlot;
  }

  expected({ epoch, owner }: RunHead, committed: number): Expected {
    const wakes = this.#wakes;
    return wakes === 0 ? { epoch, position: committed, owner } : { epoch, position: committed, owner, wakes };
  }

  /** Most writes of a stream leave the head as it is. */
  headFor(state: RunState, entries: readonly Entry[], before: RunHead | undefined): RunHead {
    return this.#headOf(state, entries, before, false);
  }

  #headOf(state: RunState, entries: readonly Entry[], before: RunHead | undefined, isRelease: boolean): RunHead {
    const { status, ended } = state;
    const blocked = isFinal(status) ? null : this.#blocked;
    const asksForSlot = this.#asksForSlot(state, blocked);
    this.#leavesForSlot = asksForSlot && this.#isSlotFull && this.#facts.mayLeave;
    const isFree = isRelease || this.#leavesForSlot || (!asksForSlot && this.#isFree(state, entries, blocked, before));
    const owner = isFree ? null : this.#owner;
    const getsOn = this.#isSound || entries.some(isProgress);
    const takeovers = before === undefined || getsOn ? 0 : before.takeovers;
    const deadline = blocked === null && !this.#leavesForSlot ? this.#dueAt(state) : null;
    const holds_slot = asksForSlot ? !this.#isSlotFull : this.#keepsSlot(state, blocked, before);
    this.#isGivingSlot = before?.holds_slot === true && !holds_slot;
    // For an owned run, `due_at` is the time at which the store has given it to the owner.
    const due_at = owner === null ? deadline : before?.owner === owner ? before.due_at : null;
    const isSame =
      before?.status === status &&
      before.owner === owner &&
      before.due_at === due_at &&
      before.blocked === blocked &&
      before.holds_slot === holds_slot &&
      before.takeovers === takeovers;
    // Each change of the owner raises the epoch, and so does the end.
    // Several processes may have loaded a run without an owner. It belongs to the first that writes.
    const isIdle = before?.owner === null && (entries.length > 0 || !isSame);
    const isHandedOver = before !== undefined && (isIdle || (this.#isTakenOver && before.owner !== null));
    // Giving up ownership raises the epoch, so that a writer with the old head cannot restore the owner.
    const isGivenUp = before !== undefined && owner === null && entries.length === 0 && !isSame;
    const epoch =
      (before?.epoch ?? 0) + (isHandedOver || isGivenUp ? 1 : 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
    if (isSame && before.epoch === epoch) return before;
    return { status, epoch, owner, due_at, blocked, holds_slot, finished_at: ended?.at ?? null, takeovers };
  }

  /** Whether the agent cannot go on without a slot, and the run has none. */
  #asksForSlot(state: RunState, blocked: Mismatch | null): boolean {
    const { slot } = this.#facts;
    if (slot?.isQueued !== true || this.#isReleased || blocked !== null) return false;
    return (slot.hasQueuedBodies || !isWaiting(state)) && !isStopped(state);
  }

  /**
   * A run that waits gives its slot back, unless it keeps it or a step or a sub-run is at work. One that is left to another process
   * goes on with it.
   */
  #keepsSlot(state: RunState, blocked: Mismatch | null, before: RunHead | undefined): boolean {
    if (before?.holds_slot !== true || isFinal(state.status) || blocked !== null) return false;
    return this.#facts.slot?.isKept === true || this.#facts.isAtWork || !this.#waits(state);
  }

  onWritten(head: RunHead, before: RunHead | undefined): void {
    this.#isTakenOver = false;
    if (before?.owner !== head.owner) this.#wakes = 0;
    this.#isGivingSlot = false;
    this.#hasLeftForSlot = this.#leavesForSlot;
  }

  #isFree(state: RunState, entries: readonly Entry[], blocked: Mismatch | null, before: RunHead | undefined): boolean {
    if (isFinal(state.status) || blocked !== null) return true;
    // A run that begins later belongs to no process until then. It is not claimed for that.
    if (entries.at(-1)?.type === "created" && startTime(state) > 0) return true;
    // The release makes the run due, which no write before it does.
    if (this.#isReleased) return entries.length === 0 && before?.owner === null;
    if (state.status === "created") return false;
    // The store does not count the wake-ups of a run without an owner, and this write may replace one.
    if (before?.owner === null && entries.length > 0 && this.#facts.hasSubRuns) return false;
    return this.#facts.isIdle && !entries.some(isResult);
  }

  /**
   * Whether the run is due at once when it has this head: it has no owner, and is active or being cancelled. A waiting
   * run is due at its deadline.
   */
  isDueNow({ owner, status, due_at, blocked }: RunHead, state: RunState): boolean {
    return owner === null && due_at === null && !isFinal(status) && !this.#waits(state) && blocked === null;
  }

  /** When a run without an owner needs work, unless it needs it at once or only an outside event wakes it. */
  #dueAt(state: RunState): number | null {
    if (this.#waits(state)) return this.#facts.deadline;
    return state.status === "created" ? startTime(state) || null : null;
  }

  #waits(state: RunState): boolean {
    return isWaiting(state) || this.#facts.isIdle;
  }
}

/**
 * Whether the agent has yet to get the result in the entry. If this process dies before that, another one has to take
 * the run over, although it waits for more.
 */
function isResult(entry: Entry): boolean {
  return resultKey(entry) !== undefined;
}

/**
 * Whether an entry is progress. An attempt at a step, and what the step emits, is not, because the next attempt may
 * crash in the same way. What is copied from a sub-run is the progress of that run.
 */
function isProgress(entry: Entry): boolean {
  if (entry.type === "emitted") return !isCopy(entry.source) && (entry.kind !== "part" || entry.source === undefined);
  return entry.type !== "intent" && entry.type !== "attempt-failed" && entry.type !== "torn";
}
