import type { Entry } from "../core/log.ts";
import type { Expected, Mismatch, RunHead } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";

/** Who may write to a run, as its log sees it: what a write expects of the run in the store, and the head that it leaves there. */
export interface Ownership {
  /** What a write expects of the run in the store. */
  expected(head: RunHead, committed: number): Expected;
  /** The head that the run has with these entries; `before` itself if it stays as it is. */
  headFor(state: RunState, entries: readonly Entry[], before: RunHead | undefined): RunHead;
  /** A head was written. */
  onWritten(head: RunHead, before: RunHead | undefined): void;
  /** This process has claimed a run that was in the store. */
  takeOver(): void;
  /** This process has looked into the wake-ups up to this number. */
  lookedInto(wakes: number): void;
}

/** The owner of runs that no other process can own. */
const LOCAL = "local";

/** Runs of a store that lives in this process alone: no other process ever writes to them. */
class LocalOwnership implements Ownership {
  expected({ epoch }: RunHead, committed: number): Expected {
    return { epoch, position: committed };
  }

  headFor({ status, ended }: RunState, entries: readonly Entry[], before: RunHead | undefined): RunHead {
    if (before?.status === status) return before;
    const epoch = (before?.epoch ?? 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
    const owner = isFinal(status) ? null : LOCAL;
    const finished_at = ended?.at ?? null;
    return { status, epoch, owner, due_at: null, blocked: null, holds_slot: false, finished_at, takeovers: 0 };
  }

  onWritten(): void {}
  takeOver(): void {}
  lookedInto(): void {}
}

export const localOwnership: Ownership = new LocalOwnership();

/** Runs that may change hands: of a durable agent, or of a store that outlives the process. */
export class LeasedOwnership implements Ownership {
  readonly #owner: string;
  /** Whether the run keeps its owner although it waits. */
  readonly #isAtWork: () => boolean;
  /** Nothing has been written yet since the run was taken over. */
  #isTakenOver = false;
  /** The run has shown that it does not bring its owner down. */
  #isSound = false;
  /** The run is being released: nothing that is written claims it again. */
  #isReleased = false;
  #wakes = 0;
  #blocked: Mismatch | null = null;

  constructor(owner: string, isAtWork: () => boolean) {
    this.#owner = owner;
    this.#isAtWork = isAtWork;
  }

  get isBlocked(): boolean {
    return this.#blocked !== null;
  }

  /** Whether this process owns the run. */
  owns({ owner }: RunHead): boolean {
    return owner === this.#owner;
  }

  lookedInto(wakes: number): void {
    this.#wakes = wakes;
  }

  lookedIntoOneMore(): void {
    this.#wakes += 1;
  }

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

  /** A run that is blocked has no owner, and no process takes it before other code is registered. Null: it is not blocked. */
  block(mismatch: Mismatch | null): void {
    this.#blocked = mismatch;
  }

  expected({ epoch }: RunHead, committed: number): Expected {
    const wakes = this.#wakes;
    return wakes === 0 ? { epoch, position: committed } : { epoch, position: committed, wakes };
  }

  /** Most writes of a stream leave the head as it is. */
  headFor(state: RunState, entries: readonly Entry[], before: RunHead | undefined): RunHead {
    const { status, shown, ended } = state;
    const blocked = isFinal(status) ? null : this.#blocked;
    const owner = this.#isFree(state, entries, blocked) ? null : this.#owner;
    const getsOn = this.#isSound || entries.some(isProgress);
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
    const handedOver = before !== undefined && (isIdle || (this.#isTakenOver && before.owner !== null));
    // A process that has not seen that the owner is gone may not put it back with what it writes.
    const isGivenUp = before !== undefined && owner === null && entries.length === 0 && !isSame;
    const epoch = (before?.epoch ?? 0) + (handedOver || isGivenUp ? 1 : 0) + (entries.at(-1)?.type === "ended" ? 1 : 0);
    if (isSame && before.epoch === epoch) return before;
    return { status, epoch, owner, due_at, blocked, holds_slot: false, finished_at: ended?.at ?? null, takeovers };
  }

  onWritten(head: RunHead, before: RunHead | undefined): void {
    this.#isTakenOver = false;
    if (before?.owner !== head.owner) this.#wakes = 0;
  }

  #isFree({ status }: RunState, entries: readonly Entry[], blocked: Mismatch | null): boolean {
    // What has happened is written first, and then the run is released.
    const isReleased = this.#isReleased && entries.length === 0;
    return isFinal(status) || isReleased || blocked !== null || (status === "awaiting" && !this.#isAtWork());
  }
}

/** Whether an entry shows that a run got on. An attempt at a step, and what it emitted, does not: the next one may end in the same way. */
function isProgress(entry: Entry): boolean {
  if (entry.type === "emitted") return entry.kind !== "part" || entry.source === undefined;
  return entry.type !== "intent";
}
