import type { Entry } from "../core/log.ts";
import type { Clock, RunKey } from "../core/ports.ts";
import type { SeenRun, SeenWrite } from "./crash-point.ts";
import { RunView } from "./run-view.ts";
import { WatchedStore } from "./watched-store.ts";

/** What outlives a crash: the store, and the observed writes to it. */
export class Disk {
  readonly store: WatchedStore;
  readonly writes: SeenWrite[] = [];
  /** The run of the agent under test; undefined before it is created. */
  view: RunView | undefined;
  readonly #runs = new Map<string, SeenRun>();

  constructor(clock: Clock) {
    this.store = new WatchedStore(clock, (key, entries) => this.#onWrite(key, entries));
  }

  /** The run that a write belongs to. */
  runOf({ run_id }: RunKey, [first]: readonly Entry[]): SeenRun {
    let run = this.#runs.get(run_id);
    if (run === undefined) {
      run = { path: "", agent_name: "" };
      if (first?.type === "created") {
        const { parent, agent_name } = first;
        run = { path: parent === undefined ? "" : `${this.pathOf(parent.run_id)}/${parent.key}`, agent_name };
      }
      this.#runs.set(run_id, run);
    }
    return run;
  }

  /** The keys that lead to a run; empty for the run of the agent under test. */
  pathOf(runId: string): string {
    return this.#runs.get(runId)?.path ?? "";
  }

  #onWrite(key: RunKey, entries: readonly Entry[]): void {
    const run = this.runOf(key, entries);
    this.writes.push({ run, entries });
    if (run.path !== "") return;
    this.view ??= new RunView(key.run_id);
    for (const entry of entries) this.view.add(entry, undefined);
  }
}
