import type { CadenzaError } from "../core/errors.ts";

const noRuns: readonly string[] = [];

/** The runs that a run has to do with: the one that has started it, and those that it has started. */
export class RunFamily<Relative> {
  /** The run that has started this one and follows it. */
  parent: Relative | undefined;
  /** Called whenever an entry was committed, if another run has started this one. */
  onProgress: (() => void) | undefined;
  /** Why the run does not get on: its code does not match its history, or that of a sub-run does not. */
  blocked: CadenzaError | undefined;
  /** The sub-runs that this process executes. */
  readonly children = new Set<Relative>();
  /** Those that may be elsewhere, each with what looks at it. */
  readonly #sought = new Map<string, () => Promise<unknown>>();
  /** The ids of those that an earlier incarnation of the agent has begun, and that may be anywhere. */
  #before = noRuns;
  /** The sub-runs whose cancel the store does not have yet. */
  readonly #cancels = new Map<string, Promise<void>>();

  /** Sub-runs without a result that the history names: they end with this run, also if the agent does not come to them again. */
  begunBefore(ids: readonly string[]): void {
    this.#before = ids;
  }

  /** Adds a sub-run that may be elsewhere. It ends with this run, and `look` is called when an event that this run waits for has happened. */
  seek(runId: string, look: () => Promise<unknown>): void {
    this.#sought.set(runId, look);
  }

  seekNoMore(runId: string, look: () => Promise<unknown>): void {
    if (this.#sought.get(runId) === look) this.#sought.delete(runId);
  }

  /** Looks at each sub-run that may be elsewhere. */
  look(): Promise<unknown>[] {
    return [...this.#sought.values()].map((look) => look());
  }

  /** Whether the store does not have the cancels of all sub-runs yet: the run's end is written after them, since no process would cancel them later. */
  get isEndHeld(): boolean {
    return this.#cancels.size > 0;
  }

  /** Ends all sub-runs. `cancel` gives a promise while the store does not have the cancel; `onCancelled` is called when it has. */
  end(live: readonly string[], cancel: (runId: string) => undefined | Promise<void>, onCancelled: () => void): void {
    for (const runId of new Set([...live, ...this.#before, ...this.#sought.keys()])) {
      if (this.#cancels.has(runId)) continue;
      const cancelling = cancel(runId);
      if (cancelling === undefined) continue;
      this.#cancels.set(runId, cancelling);
      void cancelling.then(() => {
        this.#cancels.delete(runId);
        onCancelled();
      });
    }
    this.#before = noRuns;
  }
}
