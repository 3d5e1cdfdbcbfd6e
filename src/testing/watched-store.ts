import type { Entry } from "../core/log.ts";
import type { Expected, RunKey, RunWrite, StoreConflict } from "../core/ports.ts";
import { MemoryStore } from "../stores/memory.ts";

/** A store in memory that tells what is written to it, right when it is. */
export class WatchedStore extends MemoryStore {
  readonly #onWrite: (key: RunKey, entries: readonly Entry[]) => void;

  constructor(onWrite: (key: RunKey, entries: readonly Entry[]) => void) {
    super();
    this.#onWrite = onWrite;
  }

  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): StoreConflict | undefined {
    const conflict = super.create(key, write, idempotencyKey);
    if (conflict === undefined) this.#onWrite(key, write.entries);
    return conflict;
  }

  override append(key: RunKey, expected: Expected, write: RunWrite): StoreConflict | undefined {
    const conflict = super.append(key, expected, write);
    if (conflict === undefined) this.#onWrite(key, write.entries);
    return conflict;
  }
}
