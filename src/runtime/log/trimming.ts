import { inBackground } from "../../core/background.ts";
import type { Entry } from "../../core/log.ts";
import type { Clock, Logger, RunKey, Store } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { Generation, RunState } from "../../core/state.ts";
import { createdEntry } from "../../core/state.ts";
import { isOwn } from "../../core/tenants.ts";

/** How many generations are kept of the runtime's own runs. */
const KEPT_OF_OWN = 2;

/** Deletes generations that are not kept, in the background, when a run begins another one. */
export class Trimming {
  readonly #store: Store;
  readonly #clock: Pick<Clock, "turn">;
  readonly #logger: Logger;
  /** How many generations of a run are kept. */
  readonly #kept: number;
  /** The last generations of the runs that are being trimmed. */
  readonly #last = new RunMap<Generation>();

  constructor(store: Store, clock: Pick<Clock, "turn">, logger: Logger, kept: number) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
    this.#kept = kept;
  }

  /** A run has begun a generation, and the store has its first entry. A parent may read all of a sub-run. */
  onGeneration(key: RunKey, state: RunState, isClosed: () => boolean): void {
    const kept = isOwn(key.tenant) ? KEPT_OF_OWN : this.#kept;
    const { generation } = state;
    if (generation === null || generation.number <= kept || createdEntry(state).parent !== undefined) return;
    const isAtWork = this.#last.has(key);
    this.#last.set(key, generation);
    if (!isAtWork) inBackground(this.#logger, this.#trim(key, kept, isClosed));
  }

  async #trim(key: RunKey, kept: number, isClosed: () => boolean): Promise<void> {
    try {
      for (let done: Generation | undefined; this.#last.get(key) !== done && !isClosed(); ) {
        done = this.#last.get(key);
        const before = done && (await this.#beginOf(key, done.position, kept));
        while (before !== undefined && !isClosed() && (await this.#store.trim(key, before))) await this.#clock.turn();
      }
    } catch (error) {
      this.#logger.warn("The store failed to delete generations of a run. The next one tries it again.", {
        ...key,
        error,
      });
    } finally {
      this.#last.delete(key);
    }
  }

  /** Where the first generation begins that is kept, if the last one begins at a position. Undefined: those before are deleted. */
  async #beginOf(key: RunKey, last: number, kept: number): Promise<number | undefined> {
    let position: number | undefined = last;
    for (let n = 1; n < kept && position !== undefined; n++) {
      const [entry]: readonly Entry[] = (await this.#store.read(key, position, 1)) ?? [];
      position = entry?.type === "continued" && entry.position === position ? entry.previous : undefined;
    }
    return position;
  }
}
