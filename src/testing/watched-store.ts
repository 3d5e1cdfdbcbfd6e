import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { Clock, Expected, RunKey, RunPost, RunWrite, StoreConflict } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { initialState } from "../core/state.ts";
import { MemoryStore } from "../stores/memory/memory.ts";

/** A store in memory that reports each write when it is made, and knows the states of its runs. */
export class WatchedStore extends MemoryStore {
  readonly #onWrite: (key: RunKey, entries: readonly Entry[]) => void;
  readonly #states = new Map<string, RunState>();

  constructor(clock: Clock, onWrite: (key: RunKey, entries: readonly Entry[]) => void) {
    super({ clock });
    this.#onWrite = onWrite;
  }

  /** The states of all runs, in the order in which they were created. */
  get states(): Iterable<RunState> {
    return this.#states.values();
  }

  override create(key: RunKey, write: RunWrite, idempotencyKey: string | null): StoreConflict | undefined {
    const conflict = super.create(key, write, idempotencyKey);
    if (conflict === undefined) this.#written(key, write.entries);
    return conflict;
  }

  override append(key: RunKey, expected: Expected, write: RunWrite): ReturnType<MemoryStore["append"]> {
    const conflict = super.append(key, expected, write);
    if (conflict?.conflict === undefined) this.#written(key, write.entries);
    return conflict;
  }

  override post(key: RunKey, post: RunPost): StoreConflict | undefined {
    const conflict = super.post(key, post);
    if (conflict === undefined) this.#written(key, post.entries);
    return conflict;
  }

  #written(key: RunKey, entries: readonly Entry[]): void {
    const state = this.#states.get(key.run_id) ?? initialState(key.run_id);
    this.#states.set(key.run_id, state);
    for (const entry of entries) evolve(state, entry);
    this.#onWrite(key, entries);
  }
}
