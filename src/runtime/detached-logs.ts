import type { Command } from "../core/decide.ts";
import { decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import { evolve, replay } from "../core/evolve.ts";
import type { Entry } from "../core/log.ts";
import type { Clock, RunKey, Store } from "../core/ports.ts";
import type { RunState } from "../core/state.ts";
import { isFinal } from "../core/state.ts";
import { refusalError } from "./refusals.ts";

const READ_CHUNK = 1_000;

/** The logs of runs that are not loaded in this process: reads them whole, and posts to them. */
export class DetachedLogs {
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** The entries of a run up to a length. Undefined: the store has fewer. */
  async read(key: RunKey, length: number): Promise<readonly Entry[] | undefined> {
    const all: Entry[] = [];
    while (all.length < length) {
      const chunk = await this.#store.read(key, all.length, Math.min(READ_CHUNK, length - all.length));
      if (chunk === undefined || chunk.length === 0) return undefined;
      for (const entry of chunk) all.push(entry);
    }
    return all;
  }

  /** Posts a cancel, wherever the run is executed. Gives its state as the cancel leaves it. Throws `run_finished` or `run_not_found`. */
  async cancel(key: RunKey): Promise<RunState> {
    for (;;) {
      const state = await this.#fold(key);
      const command: Command = { type: "cancel", at: this.#clock.now() };
      const decision = decide(state, command);
      if (isRefusal(decision)) throw refusalError(decision, key.run_id);
      if (decision.length === 0) return state;
      // The process with the code takes it first, if there is one: only there the `finally` blocks run.
      const post = { entries: decision, status: "cancelling", unblocks: true, due: "look" } as const;
      if ((await this.#store.post(key, post)) !== undefined) continue;
      for (const entry of decision) evolve(state, entry);
      return state;
    }
  }

  /** Whether a run has ended, or is forgotten. */
  async isOver(key: RunKey): Promise<boolean> {
    const stored = await this.#store.find(key);
    return stored === undefined || isFinal(stored.head.status);
  }

  async #fold(key: RunKey): Promise<RunState> {
    const stored = await this.#store.find(key);
    const entries = stored && (await this.read(key, stored.position));
    if (entries !== undefined) return replay(key.run_id, entries);
    const { run_id } = key;
    throw new CadenzaError("run_not_found", `Run ${run_id} is not in the store any more.`, { run_id });
  }
}
