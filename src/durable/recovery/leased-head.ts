import { isCopy } from "../../core/emission-source.ts";
import type { Entry } from "../../core/log.ts";
import { resultKey } from "../../core/operation-keys.ts";
import type { Expected, Mismatch, RunHead } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { isFinal, isStopped, isWaiting, startTime } from "../../core/state.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import { RunSlot } from "../../runtime/log/run-slot.ts";
import type { WritePlan } from "../../runtime/log/run-write.ts";
import type { Situation } from "./keeping-owners.ts";
import { situations } from "./keeping-owners.ts";

/** What the head says in addition to the status. */
export interface HeadFacts {
  /** Whether the run only waits, and no work of it is in progress here. */
  readonly isIdle: boolean;
  /** Whether a step or a sub-run is at work here, whatever the run waits for at the same time. */
  readonly isAtWork: boolean;
  /** Whether it waits for sub-runs, which wake it from any process. */
  readonly hasSubRuns: boolean;
  /** Undefined: the run needs none. */
  readonly slot: Pick<RunSlot, "isQueued" | "hasQueuedBodies" | "isKept"> | undefined;
  /** Whether the run may leave this process to wait for a slot: it is durable, and no step or sub-run is at work here. */
  readonly mayLeave: boolean;
  /** How long the log is with all that is decided. What is decided may go with several writes. */
  readonly decided: number;
  /** When it has something to do again if nothing happens, in milliseconds since 1970. Null: never. */
  readonly deadline: number | null;
}

/** The head of a run that may change its owner, and what its writes expect. */
export class LeasedHead {
  /** The run was claimed, and nothing has been written since. */
  isTakenOver = false;
  /** The run has not crashed this process, and so not its earlier owners. */
  isSound = false;
  /** The run is about to be released. What is written before keeps its owner, and no later write claims it again. */
  isReleased = false;
  /** How many wake-ups this process has handled. */
  wakes = 0;
  /**
   * `full`: no slot was free when this process asked for one, so the run leaves with the next write, or joins the line.
   * `in line`: it waits there under its owner, as far as is known here. Undefined: neither.
   */
  waitsForSlot: "full" | "in line" | undefined;
  /** The run has no owner, and no process takes it before other code is registered. Null: it is not blocked. */
  blocked: Mismatch | null = null;
  readonly #owner: string;
  readonly #facts: HeadFacts;
  /** The head that is being written gives the slot back. */
  #isGivingSlot = false;
  /** How the last head that was made found the run. Undefined: none was made. */
  #made: Situation | undefined;
  /** How the last head that was written found the run. Undefined: none was written. */
  #written: Situation | undefined;

  constructor(owner: string, facts: HeadFacts) {
    this.#owner = owner;
    this.#facts = facts;
  }

  get isGivingSlot(): boolean {
    return this.#isGivingSlot;
  }

  /** Whether the run has been left to any process because no slot was free. */
  get hasLeftForSlot(): boolean {
    return this.#written === "queueing";
  }

  /** Whether the write of the head that was made last asks for a permit under the owner. */
  get asks(): WritePlan["asks"] {
    if (this.#made !== "inLine") return undefined;
    return this.waitsForSlot === "in line" ? "stays" : "joins";
  }

  expected({ epoch, owner }: RunHead, committed: number): Expected {
    const { wakes } = this;
    return wakes === 0 ? { epoch, position: committed, owner } : { epoch, position: committed, owner, wakes };
  }

  /** Most writes of a stream leave the head as it is. `release`: the head alone is written, to release the run. */
  headFor(state: RunState, entries: readonly Entry[], before: RunHead | undefined, release?: "release"): RunHead {
    const { status, ended } = state;
    const blocked = isFinal(status) ? null : this.blocked;
    const situation = this.#situationOf(state, entries, before, release);
    const [whose, due, slot] = situations[situation];
    const owner = whose && this.#owner;
    const takenAt = before?.owner === owner ? before.due_at : null;
    const due_at = due === "taken" ? takenAt : due && this.#dueAt(state);
    const holds_slot = slot === "take" || (slot === "keep" && before?.holds_slot === true && this.#needsSlot(state));
    this.#made = situation;
    this.#isGivingSlot = before?.holds_slot === true && !holds_slot;
    const getsOn = this.isSound || entries.some(isProgress);
    const takeovers = before === undefined || getsOn ? 0 : before.takeovers;
    const isSame =
      before?.status === status &&
      before.owner === owner &&
      before.due_at === due_at &&
      before.blocked === blocked &&
      before.holds_slot === holds_slot &&
      before.takeovers === takeovers;
    // Several processes may have loaded a run without an owner: it belongs to the first that writes. The epoch also
    // refuses a writer with the head from before a take-over, or before the owner gave the run up.
    const isHandedOn =
      before?.owner === null
        ? entries.length > 0 || !isSame
        : before !== undefined && (this.isTakenOver || (owner === null && entries.length === 0 && !isSame));
    const epoch = (before?.epoch ?? 0) + (isHandedOn ? 1 : 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
    if (isSame && before.epoch === epoch) return before;
    return { status, epoch, owner, due_at, blocked, holds_slot, finished_at: ended?.at ?? null, takeovers };
  }

  #situationOf(
    state: RunState,
    entries: readonly Entry[],
    before: RunHead | undefined,
    release: "release" | undefined,
  ): Situation {
    const facts = this.#facts;
    if (isFinal(state.status)) return "ended";
    if (this.blocked !== null) return "blocked";
    if (release !== undefined) return "released";
    if (this.#asksForSlot(state))
      return this.waitsForSlot === undefined ? "asking" : facts.mayLeave && this.#isLast(state) ? "queueing" : "inLine";
    // A run that begins later belongs to no process until then. It is not claimed for that.
    if (entries.at(-1)?.type === "created" && startTime(state) > 0) return "later";
    const isUnowned = before?.owner === null;
    // The release makes the run due, which no write before it does.
    if (this.isReleased) return isUnowned && entries.length === 0 ? "released" : "working";
    if (state.status === "created") return "working";
    // The store does not count the wake-ups of a run without an owner, and this write may replace one.
    if (isUnowned && entries.length > 0 && facts.hasSubRuns) return "working";
    // What has arrived is written at any time, also before the agent has got a result that was just committed.
    const mayHaveMore = entries.some(isResult) || (!isUnowned && entries.some(isPost));
    return this.#isIdle(state) && !mayHaveMore ? "waiting" : "working";
  }

  #isIdle(state: RunState): boolean {
    return this.#facts.isIdle && this.#isLast(state);
  }

  /** Whether no other write follows one with this state. Until then the run keeps its owner: it does not wait in that state. */
  #isLast({ position }: RunState): boolean {
    return position >= this.#facts.decided;
  }

  /** Whether the agent cannot go on without a slot, and the run has none. */
  #asksForSlot(state: RunState): boolean {
    const { slot } = this.#facts;
    if (slot?.isQueued !== true || this.isReleased) return false;
    return (slot.hasQueuedBodies || !isWaiting(state)) && !isStopped(state);
  }

  /** A run that waits needs none, unless the slot is kept, or a step or a sub-run is at work. */
  #needsSlot(state: RunState): boolean {
    return this.#facts.slot?.isKept === true || this.#facts.isAtWork || !this.#waits(state);
  }

  onWritten(head: RunHead, before: RunHead | undefined): void {
    this.isTakenOver = false;
    if (before?.owner !== head.owner) this.wakes = 0;
    this.#isGivingSlot = false;
    this.#written = this.#made;
    this.waitsForSlot = this.#made === "inLine" ? "in line" : undefined;
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
    return isWaiting(state) || this.#isIdle(state);
  }
}

/**
 * Whether the agent has yet to get the result in the entry. If this process dies before that, another one has to take
 * the run over, although it waits for more.
 */
function isResult(entry: Entry): boolean {
  return resultKey(entry) !== undefined;
}

/** Whether the entry may come from another process. */
function isPost({ type }: Entry): boolean {
  return type === "received" || type === "offered" || type === "settled";
}

/**
 * Whether an entry is progress. An attempt at a step, and what the step emits, is not, because the next attempt may
 * crash in the same way. What is copied from a sub-run is the progress of that run.
 */
function isProgress(entry: Entry): boolean {
  if (entry.type === "emitted") return !isCopy(entry.source) && (entry.kind !== "part" || entry.source === undefined);
  return !["intent", "attempt-failed", "torn", "patched", "moved"].includes(entry.type);
}

/** A slot that the store counts, over all processes: the head of the run holds it. */
export class SharedSlot extends RunSlot {
  readonly #log: RunLog;
  readonly #head: LeasedHead;
  /** Replays the run, as soon as it has its slot or needs none. Undefined: no replay waits for that. */
  #replay: (() => void) | undefined;

  constructor(log: RunLog, head: LeasedHead, per: string | undefined) {
    super(per);
    this.#log = log;
    this.#head = head;
  }

  override get isHeld(): boolean {
    return this.#log.head?.holds_slot === true && !this.#head.isGivingSlot;
  }

  /** The head keeps it. */
  override get needsMemory(): boolean {
    return false;
  }

  /** What has just been decided is written together with the new head. */
  protected override request(): void {
    const { backlog, writing } = this.#log;
    if (backlog === 0 || writing !== undefined) this.#log.settleHead();
  }

  override occupy(callback: () => void): void {
    this.#replay = callback;
    this.take(() => {
      this.#replay = undefined;
      callback();
    });
  }

  /** A run that is stopped needs no slot to be replayed up to there. A result that waits for the slot is not handed over. */
  override onCommit(): void {
    if (!this.isQueued) return;
    const { state } = this.#log;
    if (this.isHeld) this.goOn();
    else if (isWaiting(state) || (this.#replay !== undefined && isStopped(state))) this.goOnWithout();
  }

  protected override giveBack(): void {
    // The next write of the head does.
  }
}
