import { isStopped, isWaiting } from "../../core/state.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import { RunSlot } from "../../runtime/log/run-slot.ts";
import type { LeasedHead } from "./leased-head.ts";

/** A slot that the store counts, over all processes: the head of the run holds it. */
export class SharedSlot extends RunSlot {
  readonly #log: RunLog;
  readonly #head: LeasedHead;
  #isReplayDue = false;

  constructor(log: RunLog, head: LeasedHead, isKept: boolean) {
    super(isKept);
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
    this.#isReplayDue = true;
    this.take(() => {
      this.#isReplayDue = false;
      callback();
    });
  }

  /** A run that is stopped needs no slot to be replayed up to there. A result that waits for the slot is not handed over. */
  override onCommit(): void {
    if (!this.isQueued) return;
    const { state } = this.#log;
    if (this.isHeld) this.goOn();
    else if (isWaiting(state) || (this.#isReplayDue && isStopped(state))) this.goOnWithout();
  }

  protected override giveBack(): void {
    // The next write of the head does.
  }
}
