import type { Entry } from "cadenza/store";
import type { RunState } from "../internals.ts";
import { foldEntries, isFinal } from "../internals.ts";
import type { World } from "./world.ts";

/** A run as it is in the store. */
export interface Member {
  readonly log: readonly Entry[];
  readonly state: RunState;
}

/** A run and its sub-runs, as they are in the store. */
export class Family {
  readonly #world: World;
  readonly #rootId: string;
  readonly #tenant: string;
  readonly #members = new Map<string, Member>();

  constructor(world: World, rootId: string, tenant: string) {
    this.#world = world;
    this.#rootId = rootId;
    this.#tenant = tenant;
  }

  /** The run, and after it its sub-runs. */
  get members(): readonly Member[] {
    return [...this.#members.values()];
  }

  get root(): Member {
    return this.get(this.#rootId);
  }

  get(run_id: string): Member {
    const member = this.#members.get(run_id);
    if (member === undefined) throw new Error(`The run ${run_id} is not in the store.`);
    return member;
  }

  /** Reads what has changed. */
  async look(): Promise<void> {
    if (!(await this.#lookAt(this.#rootId))) throw new Error("An acknowledged run is gone.");
  }

  async #lookAt(run_id: string): Promise<boolean> {
    const stored = await this.#world.find(run_id, this.#tenant);
    const known = this.#members.get(run_id);
    if (stored === undefined && known === undefined) return false;
    // Of a run that has been deleted the world has the log as it was then.
    const isOld =
      stored === undefined ? !isFinal(this.get(run_id).state.status) : stored.position !== known?.log.length;
    if (isOld) {
      const log = await this.#world.log(run_id, this.#tenant);
      this.#members.set(run_id, { log, state: foldEntries(run_id, log) });
    }
    for (const entry of this.get(run_id).log)
      if (entry.type === "intent" && entry.run_id !== null) await this.#lookAt(entry.run_id);
    return true;
  }
}
