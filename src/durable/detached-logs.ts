import type { Command } from "../core/decide.ts";
import { decide, isRefusal } from "../core/decide.ts";
import { evolve } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { Clock, RunKey, Store } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import { foldLog, present } from "../runtime/fold-log.ts";
import { refusalError } from "../runtime/refusals.ts";

const READ_CHUNK = 1_000;

/** Reads the whole logs of runs that are not loaded in this process, and posts to them. */
export class DetachedLogs {
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** The first `length` entries of a run. Undefined: the store has fewer. */
  async read(key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
    const all: Entry[] = [];
    while (all.length < length) {
      const chunk = await this.#store.read(key, all.length, Math.min(READ_CHUNK, length - all.length));
      if (chunk === undefined || chunk.length === 0) return undefined;
      for (const entry of chunk) all.push(entry);
    }
    return all;
  }

  /**
   * Posts the request to cancel a run, which any process may execute. Resolves with the state after the post. Throws
   * `run_finished` or `run_not_found`.
   */
  async cancel(key: RunKey): Promise<RunState> {
    for (;;) {
      const state = present(key, await foldLog(this.#store, key, Number.POSITIVE_INFINITY));
      const command: Command = { type: "cancel", at: this.#clock.now() };
      const decision = decide(state, command);
      if (isRefusal(decision)) throw refusalError(decision, key.run_id);
      if (decision.length === 0) return state;
      // For the time of a lease only a process that has the code takes the run, because it can run the `finally`
      // blocks.
      const post = { entries: decision, status: "cancelling", unblocks: true, due: "look" } as const;
      if ((await this.#store.post(key, post)) !== undefined) continue;
      for (const entry of decision) evolve(state, entry);
      return state;
    }
  }

  /** Whether a run has ended, or is not in the store. */
  async isOver(key: RunKey): Promise<boolean> {
    const stored = await this.#store.find(key);
    return stored === undefined || isFinal(stored.head.status);
  }
}
