import { CadenzaError } from "../core/errors.ts";
import { copyJson, sameJson } from "../core/json.ts";
import type { Clock, Expected, RunKey, RunWrite, Store, StoreConflict } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { Batch } from "./decided-run.ts";
import { lostError } from "./refusals.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "./retry-pause.ts";

/** A write that was handed to the store. */
export interface Attempt {
  readonly write: RunWrite;
  /** The decided entries and session change that it writes. */
  readonly batch: Batch;
  /** What the write expects of the run in the store. Undefined: that the run is not there. */
  readonly expected: Expected | undefined;
  readonly idempotencyKey: string | null;
}

/**
 * The outcome of a write that the store did not accept at once.
 * `recognised`: an earlier attempt was written, although the store had reported a failure.
 * `woken`: the run has wake-ups that its owner has not handled. `behind`: another process has posted to the log, and
 * the owner is the same.
 * `truncated`: the store holds fewer entries than it had accepted. `lost`: nothing more can be written. `failed`: the
 * store failed.
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
  /** Keeps the process open until the returned function is called. */
  hold(): () => void;
}

/** Hands the writes of one run to the store, and reports the outcome of each. */
export class RunWriter {
  readonly #host: WriterHost;
  readonly #key: RunKey;
  /** The state of an outage of the store. Undefined: the store works. */
  #outage: Outage | undefined;

  constructor(host: WriterHost, key: RunKey) {
    this.#host = host;
    this.#key = key;
  }

  /** The error of the last write. Undefined: it succeeded. */
  get failure(): CadenzaError | undefined {
    return this.#outage?.failure;
  }

  /**
   * Resolves when the next attempt is due. The process is kept open until then, because decided entries that are not
   * committed would be lost.
   */
  pause(): Promise<void> {
    const { clock } = this.#host;
    const outage = this.#outage;
    if (outage === undefined) return Promise.resolve();
    const pauseMs = outage.nextPauseMs;
    outage.nextPauseMs = nextPauseMs(pauseMs);
    return new Promise((resolve) => {
      const letGo = this.#host.hold();
      const clearTimer = clock.setTimeout(() => {
        letGo();
        resolve();
      }, pauseMs);
      outage.clear = () => {
        letGo();
        clearTimer();
        // A process that closes, or looks at the run once more, waits for the pause.
        resolve();
      };
    });
  }

  /** Cancels the next attempt. */
  end(): void {
    this.#outage?.clear?.();
  }

  /** Whether the run is in the store. Undefined: the store failed. */
  async isThere(): Promise<boolean | undefined> {
    try {
      return (await this.#host.store.find(this.#key)) !== undefined;
    } catch {
      return undefined;
    }
  }

  /** Writes. Undefined: the store has accepted the write. */
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

  /** Notes a failure of the store, and returns its error. */
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
    // After a failed `create` the runtime asks the store whether the run exists.
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
   * Checks whether the store has written an attempt that it reported as failed. Then its log holds the same entries,
   * and its head the same owner. The epoch is not enough, because another process that claims the run at the same time
   * sets the same epoch.
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
        const message = `The idempotency key was used by another request at the same time, which created run ${run_id}.`;
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

/** The state of an outage of the store. */
interface Outage {
  /** The error of the last write. */
  failure: CadenzaError;
  /** The attempts that failed. The store may still have written them. */
  attempts: Attempt[];
  nextPauseMs: number;
  clear: (() => void) | undefined;
}
