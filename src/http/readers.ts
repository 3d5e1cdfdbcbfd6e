import { busyError } from "./errors.ts";

/** Counts who reads streams, in all and for each run. */
export class Readers {
  readonly #maxReaders: number;
  readonly #maxPerRun: number;
  readonly #perRun = new Map<string, number>();
  #open = 0;

  constructor({ maxReaders, maxReadersPerRun }: { readonly maxReaders: number; readonly maxReadersPerRun: number }) {
    this.#maxReaders = maxReaders;
    this.#maxPerRun = maxReadersPerRun;
  }

  /** Takes a place, or refuses. */
  enter(): Reader {
    if (this.#open >= this.#maxReaders)
      throw busyError("maxReaders", "As many streams are open as the service allows.");
    this.#open += 1;
    let run: string | undefined;
    let left = false;
    return {
      join: (runId) => {
        const count = this.#perRun.get(runId) ?? 0;
        if (count >= this.#maxPerRun)
          throw busyError("maxReadersPerRun", "As many streams of this run are open as the service allows.");
        this.#perRun.set(runId, count + 1);
        run = runId;
      },
      leave: () => {
        if (left) return;
        left = true;
        this.#open -= 1;
        if (run !== undefined) this.#leaveRun(run);
      },
    };
  }

  #leaveRun(runId: string): void {
    const count = (this.#perRun.get(runId) ?? 0) - 1;
    if (count > 0) this.#perRun.set(runId, count);
    else this.#perRun.delete(runId);
  }
}

/** A place among the readers. */
export interface Reader {
  /** Says of which run; refused when that has too many readers. */
  join(runId: string): void;
  /** Gives the place back. */
  leave(): void;
}
