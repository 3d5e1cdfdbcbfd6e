import { setImmediate as inNextTurn } from "node:timers";
import { CadenzaError } from "../core/errors.ts";
import type { Connection } from "./sqlite-database.ts";
import { isBusy, stillBusy } from "./sqlite-database.ts";

/** How many writes share a transaction at most: the event loop stands still while they are made. */
const MAX_GROUP = 128;

interface Write {
  /** Writes, inside a transaction, and gives what tells the caller once it is committed. */
  readonly attempt: () => () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Commits together what is written in one turn of the event loop, so that concurrent runs share the wait for the disk.
 * Writes are made in the order in which they came, and each is acknowledged after its transaction has been committed.
 */
export class GroupCommit {
  readonly #connection: Connection;
  /** One transaction each. The last takes what comes. */
  readonly #groups: Write[][] = [];
  #scheduled = false;
  #refusals = 0;
  #closed = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Does some work in a transaction, and resolves with its result after the commit. Work that throws has written nothing. */
  write<T>(work: () => T): Promise<T> {
    if (this.#closed) return Promise.reject(new CadenzaError("store_failed", "The store is closed."));
    return new Promise((resolve, reject) => {
      const attempt = () => {
        const result = work();
        return () => resolve(result);
      };
      const last = this.#groups.at(-1);
      if (last !== undefined && last.length < MAX_GROUP) last.push({ attempt, reject });
      else this.#groups.push([{ attempt, reject }]);
      this.#schedule();
    });
  }

  /** Commits at once what waits, and takes no more. */
  close(): void {
    this.#closed = true;
    while (this.#groups.length > 0) this.#commitNext();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    inNextTurn(() => {
      this.#scheduled = false;
      this.#commitNext();
      if (this.#groups.length > 0) this.#schedule();
    });
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
   * A prepared `BEGIN` that met a lock would stay open in some drivers (`libsql`), and until it is run again all reads would be of
   * the moment of the first one: they would miss what other processes commit.
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
    // The group stays where it is, and comes again in another turn.
    if (busy && ++this.#refusals < this.#connection.attempts) return;
    this.#refusals = 0;
    this.#groups.shift();
    if (busy) for (const { reject } of group) reject(stillBusy(error));
    else if (group.length === 1) for (const { reject } of group) reject(error);
    // One of them failed: each for itself, so that it takes no other down.
    else this.#groups.unshift(...group.map((write) => [write]));
  }
}
