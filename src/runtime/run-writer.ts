import { CadenzaError } from "../core/errors.ts";
import { copyJson, sameJson } from "../core/json.ts";
import type { Clock, Expected, RunKey, RunWrite, Store, StoreConflict } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { Batch } from "./decided-run.ts";
import { lostError } from "./refusals.ts";

/** A write that was handed to the store. */
export interface Attempt {
  readonly write: RunWrite;
  /** What was decided of it. */
  readonly batch: Batch;
  /** What the write expects of the run in the store; undefined: that it is not there. */
  readonly expected: Expected | undefined;
  readonly idempotencyKey: string | null;
}

/**
 * What became of a write that the store did not simply take.
 * `recognised`: an earlier attempt was written after all, although the store failed to say so.
 * `woken`: the run has wake-ups that its owner has not looked into. `behind`: another process has written, and left the owner as it is.
 * `truncated`: the store holds less than it had taken. `lost`: nothing is written any more. `failed`: the store failed.
 */
export type Outcome =
  | { readonly is: "recognised"; readonly own: Attempt }
  | { readonly is: "woken"; readonly wakes: number }
  | { readonly is: "behind" }
  | { readonly is: "truncated"; readonly position: number }
  | { readonly is: "lost"; readonly error: CadenzaError }
  | { readonly is: "failed"; readonly failure: CadenzaError };

/** What writers share. */
export interface WriterHost {
  readonly store: Store;
  readonly clock: Clock;
  /** Keeps the process from ending until the answer is called. */
  hold(): () => void;
}

const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 5_000;

/** Hands the writes of one run to the store, and says what became of each. */
export class RunWriter {
  readonly #host: WriterHost;
  readonly #key: RunKey;
  /** What is known of a store that fails, until it works again. */
  #outage: Outage | undefined;

  constructor(host: WriterHost, key: RunKey) {
    this.#host = host;
    this.#key = key;
  }

  /** Why the last write failed. Undefined: it did not. */
  get failure(): CadenzaError | undefined {
    return this.#outage?.failure;
  }

  /** Resolves when the next attempt is due. The process stays open until then: what is decided and not stored is lost if it ends. */
  pause(): Promise<void> {
    const { clock } = this.#host;
    const outage = this.#outage;
    if (outage === undefined) return Promise.resolve();
    const pauseMs = outage.nextPauseMs;
    outage.nextPauseMs = Math.min(2 * pauseMs, LAST_PAUSE_MS);
    return new Promise((resolve) => {
      const letGo = this.#host.hold();
      const clearTimer = clock.setTimeout(() => {
        letGo();
        resolve();
      }, pauseMs);
      outage.clear = () => {
        letGo();
        clearTimer();
      };
    });
  }

  /** There is no next attempt. */
  end(): void {
    this.#outage?.clear?.();
  }

  /** Whether the run is in the store. Undefined: the store failed to say. */
  async isThere(): Promise<boolean | undefined> {
    try {
      return (await this.#host.store.find(this.#key)) !== undefined;
    } catch {
      return undefined;
    }
  }

  /** Undefined: the store has taken the write. */
  write(attempt: Attempt): MaybePromise<Outcome | undefined> {
    const { expected, write, idempotencyKey } = attempt;
    let answer: MaybePromise<StoreConflict | undefined>;
    try {
      answer =
        expected === undefined
          ? this.#host.store.create(this.#key, write, idempotencyKey)
          : this.#host.store.append(this.#key, expected, write);
    } catch (error) {
      return this.#onFailure(error, attempt);
    }
    if (!isPromise(answer)) return answer === undefined ? this.#onTaken() : this.#onConflict(answer, attempt);
    return answer.then(
      (conflict) => (conflict === undefined ? this.#onTaken() : this.#onConflict(conflict, attempt)),
      (error: unknown) => this.#onFailure(error, attempt),
    );
  }

  /** The store failed in what has to be done before the next write. */
  failed(cause: unknown): CadenzaError {
    const { run_id } = this.#key;
    const failure = new CadenzaError("store_failed", `The store failed to write run ${run_id}.`, { run_id, cause });
    this.#outage ??= { failure, attempts: [], nextPauseMs: FIRST_PAUSE_MS, clear: undefined };
    this.#outage.failure = failure;
    return failure;
  }

  #onTaken(): undefined {
    this.#outage = undefined;
    return undefined;
  }

  #onFailure(cause: unknown, attempt: Attempt): Outcome {
    const failure = this.failed(cause);
    // A run that is not in the store yet is looked for instead: it is written once or not at all.
    if (attempt.expected !== undefined) this.#outage?.attempts.push(attempt);
    return { is: "failed", failure };
  }

  #onConflict(conflict: StoreConflict, attempt: Attempt): MaybePromise<Outcome> {
    const { expected } = attempt;
    const own = this.#outage?.attempts.find(
      ({ write: { head, entries } }) =>
        conflict.conflict === "changed" &&
        conflict.epoch === head.epoch &&
        conflict.position === (expected?.position ?? 0) + entries.length,
    );
    return own === undefined ? this.#meaningOf(conflict, expected) : this.#recognise(own, conflict, attempt);
  }

  /**
   * The store may have written what it failed to confirm. It has if its log holds just that, under the owner that was written: another
   * process that takes the run at the same moment gives it the same epoch.
   */
  async #recognise(own: Attempt, conflict: StoreConflict, attempt: Attempt): Promise<Outcome> {
    const { store } = this.#host;
    const { entries, head } = own.write;
    try {
      const stored = await store.find(this.#key);
      const isSameOwner = stored?.head.owner === head.owner && stored.head.epoch === head.epoch;
      const held = await store.read(this.#key, attempt.expected?.position ?? 0, entries.length);
      if (isSameOwner && sameJson(copyJson(held), copyJson(entries))) {
        this.#outage = undefined;
        return { is: "recognised", own };
      }
    } catch (error) {
      return this.#onFailure(error, attempt);
    }
    if (this.#outage !== undefined) this.#outage.attempts = [];
    return this.#meaningOf(conflict, attempt.expected);
  }

  #meaningOf(conflict: StoreConflict, expected: Expected | undefined): Outcome {
    switch (conflict.conflict) {
      case "woken":
        return { is: "woken", wakes: conflict.wakes };
      case "key_used": {
        const { run_id } = conflict;
        const message = "The idempotency key was used in the meantime.";
        return { is: "lost", error: new CadenzaError("idempotency_conflict", message, { run_id }) };
      }
      case "changed":
        if (expected !== undefined && conflict.position < expected.position)
          return { is: "truncated", position: conflict.position };
        if (conflict.epoch === expected?.epoch) return { is: "behind" };
    }
    return { is: "lost", error: lostError(this.#key.run_id) };
  }
}

/** What is known of a store that fails. */
interface Outage {
  /** Why the last write failed. */
  failure: CadenzaError;
  /** The attempts that failed. The store may have written them all the same. */
  attempts: Attempt[];
  nextPauseMs: number;
  clear: (() => void) | undefined;
}
