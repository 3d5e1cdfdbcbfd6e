import type { Mismatch, RunHead, RunKey, Store } from "../core/ports.ts";
import type { LeasedOwnership } from "./ownership.ts";
import type { RunLog } from "./run-log.ts";
import { writeOf } from "./run-write.ts";

const noEntries = [] as const;
const noSource = { sessionAtEnd: () => undefined, wakes: () => undefined };

/** How a run changes hands between processes: what its owner does to its head beside writing entries. */
export class Handover {
  readonly #log: RunLog;
  readonly #ownership: LeasedOwnership;
  readonly #store: Store;

  constructor(log: RunLog, ownership: LeasedOwnership, store: Store) {
    this.#log = log;
    this.#ownership = ownership;
    this.#store = store;
  }

  /** Releases the run as it is: one that waits is due at its deadline. */
  release(): Promise<void> {
    return this.#release(undefined);
  }

  /** Releases the run, and has another process look at it at once: this one may have taken it for something that it has not looked into. */
  releaseForALook(): Promise<void> {
    return this.#release(this.#log.key);
  }

  async #release(wake: RunKey | undefined): Promise<void> {
    const log = this.#log;
    const ownership = this.#ownership;
    ownership.release();
    const committed = log.commit(true);
    if (committed !== undefined) await committed;
    for (;;) {
      if (log.writing !== undefined) await log.writing;
      const { head } = log;
      if (head === undefined || head.owner === null || log.lost) return;
      const released = ownership.headFor(log.state, noEntries, head);
      const write = { wake, ...writeOf(log.key, log.state, noEntries, released, undefined, noSource) };
      const conflict = await this.#store.append(log.key, ownership.expected(head, log.committed), write);
      if (conflict === undefined) log.replaceHead(released);
      // The next owner looks at everything that the run waits for.
      else if (conflict.conflict === "woken") ownership.lookedInto(conflict.wakes);
      else if (conflict.conflict !== "changed" || conflict.epoch !== head.epoch) return;
      // Another process has asked for the run to stop: it is released as one that is to be stopped.
      else await log.catchUp(true);
    }
  }

  /** The code does not match the history. Null: it does after all. */
  setBlocked(mismatch: Mismatch | null): void {
    if (this.#log.head === undefined || (mismatch === null && !this.#ownership.isBlocked)) return;
    this.#ownership.block(mismatch);
    this.#log.settleHead();
  }

  /** What brought earlier owners of the run down was not the run: its take-overs are counted anew. */
  forgetTakeovers(): void {
    const { head } = this.#log;
    if (head === undefined || head.takeovers === 0) return;
    this.#ownership.forgetTakeovers();
    this.#log.settleHead();
  }

  /** A run that this one waits for was written here, and this run has seen it: it has looked into that wake-up. */
  noteWake(): void {
    const { head, writing } = this.#log;
    if (head !== undefined && writing === undefined && this.#ownership.owns(head)) this.#ownership.lookedIntoOneMore();
  }

  /** The store has given the run to this process, which had loaded it already. False: what is loaded may be out of date, and has been compared with the store. */
  async take(head: RunHead, position: number): Promise<boolean> {
    const log = this.#log;
    if (log.lost) return false;
    const { epoch } = log.head ?? head;
    if (epoch !== head.epoch - 1 || position !== log.committed || log.writing !== undefined) {
      await log.catchUp(true);
      return false;
    }
    log.replaceHead(head);
    this.#ownership.lookedInto(0);
    return true;
  }
}
