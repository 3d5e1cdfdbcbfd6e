import { setImmediate as inNextTurn } from "node:timers";
import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import { silentLogger } from "../../runtime/log/system.ts";
import type { Connection } from "./database.ts";
import { isBusy, stillBusy } from "./database.ts";

/** How many writes share a transaction at most. The event loop is blocked while they are made. */
const MAX_GROUP = 128;
/** How many characters of entries these have together, unless one has more. */
const MAX_SIZE = 524_288;

interface Write {
  /** Writes inside a transaction, and returns what acknowledges the write after the commit. */
  readonly attempt: () => () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Commits the writes of one turn of the event loop together, so that concurrent runs share the wait for the disk.
 * Writes are made in the order of the calls. Each is acknowledged after its transaction has been committed.
 */
export class GroupCommit {
  readonly #connection: Connection;
  /** Each group is one transaction. New writes join the last one. */
  readonly #groups: Write[][] = [];
  /** How many characters the last one has. */
  #size = 0;
  #scheduled = false;
  #refusals = 0;
  #closed = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Does work in a transaction, and resolves with its result after the commit. If the work throws, it has written
   * nothing. `size`: about how many characters it writes, if that may be many.
   */
  write<T>(work: () => T, size = 0): Promise<T> {
    if (this.#closed) return Promise.reject(new CadenzaError("store_failed", "The store is closed."));
    return new Promise((resolve, reject) => {
      const attempt = () => {
        const result = work();
        return () => resolve(result);
      };
      const last = this.#groups.at(-1);
      const joins = last !== undefined && last.length < MAX_GROUP && this.#size + size <= MAX_SIZE;
      this.#size = joins ? this.#size + size : size;
      if (joins) last.push({ attempt, reject });
      else this.#groups.push([{ attempt, reject }]);
      this.#schedule();
    });
  }

  /** Commits the waiting writes at once, and accepts no more. */
  close(): void {
    this.#closed = true;
    while (this.#groups.length > 0) this.#commitNext();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const commit = (): void => {
      this.#scheduled = false;
      this.#commitNext();
      if (this.#groups.length > 0) this.#schedule();
    };
    // What fails rejects its write.
    inNextTurn(() => inBackground(silentLogger, commit));
  }

  #commitNext(): void {
    const [group] = this.#groups;
    if (group === undefined) return;
    try {
      const acknowledgements = this.#transaction(group);
      this.#groups.shift();
      this.#refusals = 0;
      for (const acknowledge of acknowledgements) acknowledge();
    } catch (error) {
      this.#failed(group, error);
    }
  }

  /**
   * Uses `exec`, since in some drivers (`libsql`) a prepared `BEGIN` that met a lock stays open. All reads would then
   * show the moment of the first read, without later commits of other processes, until the statement runs again.
   */
  #transaction(group: readonly Write[]): readonly (() => void)[] {
    this.#connection.exec("BEGIN IMMEDIATE");
    try {
      const acknowledgements = group.map((write) => write.attempt());
      this.#connection.exec("COMMIT");
      return acknowledgements;
    } catch (error) {
      this.#connection.rollback();
      throw error;
    }
  }

  #failed(group: readonly Write[], error: unknown): void {
    const busy = isBusy(error);
    // The group stays first in line, and is tried again in another turn.
    if (busy && ++this.#refusals < this.#connection.attempts) return;
    this.#refusals = 0;
    this.#groups.shift();
    if (busy) for (const { reject } of group) reject(stillBusy(error));
    else if (group.length === 1) for (const { reject } of group) reject(error);
    // One write of the group failed. Each is tried in a transaction of its own, so that the others succeed.
    else this.#groups.unshift(...group.map((write) => [write]));
  }
}
