import type { Mismatch, RunHead, Store } from "../../core/ports.ts";
import type { RunLog } from "../../runtime/log/run-log.ts";
import { fed } from "../../runtime/log/run-write.ts";
import type { LeasedHead } from "./leased-head.ts";

const noEntries = [] as const;

/** Releases, blocks and takes over a run: the changes of its head without entries. */
export class Handover {
  readonly #log: RunLog;
  readonly #head: LeasedHead;
  readonly #store: Store;
  /** Reads what other processes have written to the run, after what this process is writing. */
  readonly #sync: () => Promise<void>;
  readonly #onReleased: (head: RunHead) => void;

  constructor(
    log: RunLog,
    head: LeasedHead,
    store: Store,
    sync: () => Promise<void>,
    onReleased: (head: RunHead) => void,
  ) {
    this.#log = log;
    this.#head = head;
    this.#store = store;
    this.#sync = sync;
    this.#onReleased = onReleased;
  }

  /**
   * Releases the run and makes it due at once, unless it is blocked: this process may not have handled the wake-up for
   * which it took the run, or what has arrived since.
   */
  async release(): Promise<void> {
    const log = this.#log;
    this.#head.beginRelease();
    const committed = log.acknowledge();
    if (committed !== undefined) await committed;
    for (;;) {
      if (log.writing !== undefined) await log.writing;
      const { head } = log;
      if (head === undefined || head.owner === null || log.lost) return;
      const released = this.#head.headFor(log.state, noEntries, head, true);
      const write = { entries: noEntries, head: released, wake: log.key };
      const told = fed(this.#store, write, log.state, log.committed, head, 0);
      const conflict = await this.#store.append(log.key, this.#head.expected(head, log.committed), told);
      if (conflict === undefined) {
        log.replaceHead(released);
        this.#onReleased(released);
      }
      // The next owner checks everything that the run waits for.
      else if (conflict.conflict === "woken") this.#head.handled(conflict.wakes);
      else if (conflict.conflict !== "changed" || conflict.epoch !== head.epoch) return;
      // Another process has posted a cancel. The run is released with it.
      else await this.#sync();
    }
  }

  /** Blocks the run, because the code does not match the history. Null: unblocks it. */
  setBlocked(mismatch: Mismatch | null): void {
    if (this.#log.head === undefined || (mismatch === null && !this.#head.isBlocked)) return;
    this.#head.block(mismatch);
    this.#log.settleHead();
  }

  /** Resets the count of take-overs, because the run has not crashed its earlier owners. */
  forgetTakeovers(): void {
    const { head } = this.#log;
    if (head === undefined || head.takeovers === 0) return;
    this.#head.forgetTakeovers();
    this.#log.settleHead();
  }

  /** This process has written a run that this one waits for, and this run knows it. The wake-up counts as handled. */
  noteWake(): void {
    const { head, writing } = this.#log;
    if (head !== undefined && writing === undefined && this.#head.owns(head)) this.#head.handledOneMore();
  }

  /**
   * The store has made this process the owner of a run that it has loaded. False: the loaded run may have been out of
   * date, and was compared with the store.
   */
  async take(head: RunHead, position: number): Promise<boolean> {
    const log = this.#log;
    if (log.lost) return false;
    const { epoch } = log.head ?? head;
    if (epoch !== head.epoch - 1 || position !== log.committed || log.writing !== undefined) {
      await this.#sync();
      return false;
    }
    log.replaceHead(head);
    this.#head.handled(0);
    return true;
  }
}
