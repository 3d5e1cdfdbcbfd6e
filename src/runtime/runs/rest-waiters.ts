import type { CadenzaError } from "../../core/errors.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Run } from "../../protocol/run.ts";

/** The callers that wait for a run to rest. */
export class RestWaiters {
  #waiters: Waiter[] = [];

  add(): Promise<Run> {
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
    });
  }

  /** The run rests. */
  resolve(run: MaybePromise<Run>): void {
    for (const { resolve } of this.#waiters) resolve(run);
    this.#waiters = [];
  }

  reject(error: CadenzaError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { reject } of waiters) reject(error);
  }
}

interface Waiter {
  readonly resolve: (run: MaybePromise<Run>) => void;
  readonly reject: (error: CadenzaError) => void;
}
