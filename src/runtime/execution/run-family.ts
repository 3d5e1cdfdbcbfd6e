import { inBackground } from "../../core/background.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { Logger, RunKey } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import type { Spending } from "./spending.ts";

const noRuns: readonly RunKey[] = [];

/** The relatives of a run: its parent, and its sub-runs. */
export class RunFamily<Relative> {
  /** The parent, which follows this run. */
  parent: Relative | undefined;
  /** Of a run with a budget whose agent has been called. */
  spending: Spending | undefined;
  /** Called after each commit, if this run is a sub-run. */
  onProgress: (() => void) | undefined;
  /** The error of the run if it is blocked, or if one of its sub-runs is. */
  blocked: CadenzaError | undefined;
  /** The keys of the sub-runs that are about to be executed here. */
  readonly beginning = new Set<string>();
  /** The sub-runs that this process executes. */
  readonly children = new Set<Relative>();
  /** The sub-runs that other processes may execute, each with the function that checks it. */
  readonly #sought = new RunMap<{ readonly key: RunKey; readonly check: () => Promise<unknown> }>();
  /** The sub-runs that an earlier execution of the agent has begun, and that any process may execute. */
  #before = noRuns;
  /** The sub-runs whose cancel the store does not have yet. */
  readonly #cancels = new RunMap<Promise<void>>();

  /** Whether a sub-run is being started, is executed here, or may be executed by another process. */
  get hasSubRuns(): boolean {
    return this.beginning.size > 0 || this.children.size > 0 || this.#sought.size > 0;
  }

  /**
   * Sets the sub-runs without a result in the log. They end with this run, even if the agent does not reach them
   * again.
   */
  begunBefore(keys: readonly RunKey[]): void {
    this.#before = keys;
  }

  /**
   * Adds a sub-run that another process may execute. It ends with this run. `check` is called when this run is woken.
   */
  seek(key: RunKey, check: () => Promise<unknown>): void {
    this.#sought.set(key, { key, check });
  }

  seekNoMore(key: RunKey, check: () => Promise<unknown>): void {
    if (this.#sought.get(key)?.check === check) this.#sought.delete(key);
  }

  /** Checks each sub-run that another process may execute. */
  look(): Promise<unknown>[] {
    return [...this.#sought.values()].map(({ check }) => check());
  }

  /**
   * Whether the cancel of a sub-run is not committed yet. The run's end is written after it, because no process would
   * cancel the sub-run later.
   */
  get isEndHeld(): boolean {
    return this.#cancels.size > 0;
  }

  /**
   * Cancels all sub-runs. `cancel` returns a promise if the cancel has to be committed. `onCancelled` is called when it
   * is.
   */
  end(
    live: readonly RunKey[],
    cancel: (key: RunKey) => undefined | Promise<void>,
    onCancelled: () => void,
    logger: Logger,
  ): void {
    const all = new RunMap<RunKey>();
    const sought = Array.from(this.#sought.values(), ({ key }) => key);
    for (const key of [...live, ...this.#before, ...sought]) all.set(key, key);
    for (const key of all.values()) {
      if (this.#cancels.has(key)) continue;
      const cancelling = cancel(key);
      if (cancelling === undefined) continue;
      this.#cancels.set(key, cancelling);
      const cancelled = cancelling.then(() => {
        this.#cancels.delete(key);
        onCancelled();
      });
      inBackground(logger, cancelled);
    }
    this.#before = noRuns;
  }
}
