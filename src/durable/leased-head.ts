import { isCopy } from "../core/emission-source.ts";
import type { Entry } from "../core/log.ts";
import { resultKey } from "../core/operation-keys.ts";
import type { Expected, Mismatch, RunHead } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isFinal, isWaiting, startTime } from "../core/state.ts";

/** What the head says beside the status. */
export interface HeadFacts {
  /** Whether the run only waits, and no work of it is in progress here. */
  readonly isIdle: boolean;
  /** Whether it waits for sub-runs, which wake it from any process. */
  readonly hasSubRuns: boolean;
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

  /** From now on the head has no owner. */
  release(): void {
    this.#isReleased = true;
  }

  /** Blocks the run: it has no owner, and no process takes it before other code is registered. Null: unblocks it. */
  block(mismatch: Mismatch | null): void {
    this.#blocked = mismatch;
  }

  expected({ epoch }: RunHead, committed: number): Expected {
    const wakes = this.#wakes;
    return wakes === 0 ? { epoch, position: committed } : { epoch, position: committed, wakes };
  }

  /** Most writes of a stream leave the head as it is. */
  headFor(state: RunState, entries: readonly Entry[], before: RunHead | undefined): RunHead {
    const { status, ended } = state;
    const blocked = isFinal(status) ? null : this.#blocked;
    const owner = this.#isFree(state, entries, blocked, before) ? null : this.#owner;
    const getsOn = this.#isSound || entries.some(isProgress);
    const takeovers = before === undefined || getsOn ? 0 : before.takeovers;
    const deadline = blocked === null ? this.#dueAt(state) : null;
    // For an owned run, `due_at` is the time at which the store has given it to the owner.
    const due_at = owner === null ? deadline : before?.owner === owner ? before.due_at : null;
    const isSame =
      before?.status === status &&
      before.owner === owner &&
      before.due_at === due_at &&
      before.blocked === blocked &&
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
    return { status, epoch, owner, due_at, blocked, holds_slot: false, finished_at: ended?.at ?? null, takeovers };
  }

  onWritten(head: RunHead, before: RunHead | undefined): void {
    this.#isTakenOver = false;
    if (before?.owner !== head.owner) this.#wakes = 0;
  }

  #isFree(state: RunState, entries: readonly Entry[], blocked: Mismatch | null, before: RunHead | undefined): boolean {
    // The entries are written first. Then the run is released.
    const isReleased = this.#isReleased && entries.length === 0;
    if (isFinal(state.status) || isReleased || blocked !== null) return true;
    // A run that begins later belongs to no process until then. It is not claimed for that.
    if (state.status === "created") return entries.at(-1)?.type === "created" && startTime(state) > 0;
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
  return entry.type !== "intent" && entry.type !== "torn";
}
