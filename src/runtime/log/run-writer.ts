import { CadenzaError } from "../../core/errors.ts";
import type { RunKey, StoreConflict } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { Ownership } from "./ownership.ts";
import { FIRST_PAUSE_MS, nextPauseMs } from "./retry-pause.ts";
import type { Attempt, Outcome } from "./run-write.ts";
import type { SharedByRuns } from "./shared-by-runs.ts";

/** Hands the writes of one run to the store, and reports the outcome of each. */
export class RunWriter {
  readonly #shared: Pick<SharedByRuns, "store" | "clock" | "hold">;
  readonly #key: RunKey;
  readonly #ownership: Ownership;
  /** The state of an outage of the store. Undefined: the store works. */
  #outage: Outage | undefined;

  constructor(shared: Pick<SharedByRuns, "store" | "clock" | "hold">, key: RunKey, ownership: Ownership) {
    this.#shared = shared;
    this.#key = key;
    this.#ownership = ownership;
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
    const { clock } = this.#shared;
    const outage = this.#outage;
    if (outage === undefined) return Promise.resolve();
    const pauseMs = outage.nextPauseMs;
    outage.nextPauseMs = nextPauseMs(pauseMs);
    return new Promise((resolve) => {
      const letGo = this.#shared.hold();
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

  /**
   * Asks the store whether it has the run as it was created here, until it answers. `isLost`: whether that matters no
   * more. Undefined: it does not. `onFailure` is called each time that the store fails.
   */
  async isThere({ write }: Attempt, isLost: () => boolean, onFailure: () => void): Promise<boolean | undefined> {
    while (!isLost()) {
      try {
        const stored = await this.#shared.store.find(this.#key);
        return stored !== undefined && this.#ownership.isOwn(stored.head, write.head);
      } catch {
        onFailure();
        await this.pause();
      }
    }
    return undefined;
  }

  /** Writes. Undefined: the store has accepted the write. */
  write(attempt: Attempt): MaybePromise<Outcome | undefined> {
    const { expected, write, idempotencyKey } = attempt;
    let answer: MaybePromise<StoreConflict | undefined>;
    try {
      answer =
        expected === undefined
          ? this.#shared.store.create(this.#key, write, idempotencyKey)
          : this.#shared.store.append(this.#key, expected, write);
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
    const outcome = this.#ownership.onConflict(conflict, attempt, this.#outage?.attempts ?? []);
    if (!isPromise(outcome)) return this.#onMeaning(outcome);
    return outcome.then(
      (later) => this.#onMeaning(later),
      (error: unknown) => this.#onFailure(error, attempt),
    );
  }

  #onMeaning(outcome: Outcome): Outcome {
    if (outcome.is === "recognised") this.#outage = undefined;
    return outcome;
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
