import type { Entry } from "../core/log.ts";
import type { Clock, Expected, RunKey, RunPost, RunWrite, StoreConflict } from "../core/ports.ts";
import { MemoryStore } from "../stores/memory.ts";

/** A store in memory that reports each write when it is made. */
export class WatchedStore extends MemoryStore {
  readonly #onWrite: (key: RunKey, entries: readonly Entry[]) => void;

  constructor(clock: Clock, onWrite: (key: RunKey, entries: readonly Entry[]) => void) {
    super({ clock });
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

  override post(key: RunKey, post: RunPost): StoreConflict | undefined {
    const conflict = super.post(key, post);
    if (conflict === undefined) this.#onWrite(key, post.entries);
    return conflict;
  }
}
