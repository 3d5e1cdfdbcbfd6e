import type { CadenzaError } from "../../core/errors.ts";
import type { SessionChange } from "../../core/ports.ts";

/** The callers that wait for a commit of everything that was decided before they began to wait. */
export class CommitWaiters {
  #waiters: Waiter[] = [];

  /** Waits for a position, and for a session change if there is one. */
  add(position: number, session: SessionChange | undefined): Promise<void> {
    return new Promise((resolve) => {
      this.#waiters.push({ position, session, resolve, reject: undefined });
    });
  }

  /** As {@link add}, but the promise rejects when the store fails. */
  addRefusable(position: number, session: SessionChange | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiters.push({ position, session, resolve, reject });
    });
  }

  /** Everything up to a position is committed. `session` is the session change that is not committed yet. */
  committed(position: number, session: SessionChange | undefined): void {
    const isOpen = (waiter: Waiter): boolean =>
      waiter.position > position || (waiter.session !== undefined && waiter.session === session);
    const done = this.#waiters.filter((waiter) => !isOpen(waiter));
    if (done.length === 0) return;
    this.#waiters = this.#waiters.filter(isOpen);
    for (const { resolve } of done) resolve();
  }

  /** What had been decided was decided again, and ends at this position now: entries came before it, or parts were dropped. */
  rebase(position: number): void {
    for (const waiter of this.#waiters) waiter.position = position;
  }

  /** Rejects the promises of {@link addRefusable}. */
  refuse(error: CadenzaError): void {
    const waiters = this.#waiters;
    this.#waiters = waiters.filter(({ reject }) => reject === undefined);
    for (const { reject } of waiters) reject?.(error);
  }
}

interface Waiter {
  position: number;
  /** The session change that it waits for, if any. */
  readonly session: SessionChange | undefined;
  readonly resolve: () => void;
  readonly reject: ((error: CadenzaError) => void) | undefined;
}
