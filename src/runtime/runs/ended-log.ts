import type { CadenzaError } from "../../core/errors.ts";
import type { Entry } from "../../core/log.ts";
import type { RunKey, Store, StoredRun } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { LogSource } from "../log/events.ts";
import { READ_CHUNK } from "../log/fold-log.ts";

/** The log of a run that has ended. */
export class EndedLog implements LogSource {
  readonly key: RunKey;
  readonly committed: number;
  readonly lost = false;
  /** Why the log has no end. */
  readonly blocked: CadenzaError | undefined;
  readonly #store: Store;

  constructor(store: Store, { key, position }: StoredRun, blocked: CadenzaError | undefined) {
    this.#store = store;
    this.key = key;
    this.committed = position;
    this.blocked = blocked;
  }

  read(from: number): MaybePromise<readonly Entry[] | undefined> {
    return this.#store.read(this.key, from, Math.min(READ_CHUNK, this.committed - from));
  }

  watch(): void {
    // Nothing follows.
  }

  unwatch(): void {
    // Nothing follows.
  }
}
