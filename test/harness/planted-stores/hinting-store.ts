import { MemoryStore } from "cadenza";
import type { Expected, RunKey, RunWrite, StoreHint } from "cadenza/store";
import type { Conflict, Written } from "./broken-store.ts";

/** A memory store that gives hints. */
export class HintingStore extends MemoryStore {
  readonly #callbacks = new Set<(hint: StoreHint) => void>();

  watch(callback: (hint: StoreHint) => void): () => void {
    this.#callbacks.add(callback);
    return () => this.#callbacks.delete(callback);
  }

  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): Conflict {
    const answer = super.create(key, write, idempotencyKey);
    if (answer === undefined) this.tell({ moved: [key], fed: write.feed !== undefined });
    return answer;
  }

  override append(key: RunKey, expected: Expected, write: RunWrite): Written {
    const answer = super.append(key, expected, write);
    if (answer === undefined)
      this.tell({ moved: [key], due: write.head.due_at !== null, fed: write.feed !== undefined });
    return answer;
  }

  protected tell(hint: StoreHint): void {
    for (const callback of this.#callbacks) this.call(callback, hint);
  }

  protected call(callback: (hint: StoreHint) => void, hint: StoreHint): void {
    try {
      callback(hint);
    } catch {
      // An error of a callback is ignored.
    }
  }
}
