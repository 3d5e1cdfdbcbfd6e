import type { RunKey } from "../core/ports.ts";
import { RunMap } from "../core/run-map.ts";
import { busyError } from "./errors.ts";

/** Counts the open streams, in total and for each run. */
export class Readers {
  readonly #maxReaders: number;
  readonly #maxPerRun: number;
  readonly #perRun = new RunMap<number>();
  #open = 0;

  constructor({ maxReaders, maxReadersPerRun }: { readonly maxReaders: number; readonly maxReadersPerRun: number }) {
    this.#maxReaders = maxReaders;
    this.#maxPerRun = maxReadersPerRun;
  }

  /** Counts another reader, or refuses it. */
  enter(): Reader {
    if (this.#open >= this.#maxReaders) throw busyError("maxReaders", "Too many streams are open. Try again later.");
    this.#open += 1;
    let run: RunKey | undefined;
    let left = false;
    return {
      join: (key) => {
        const count = this.#perRun.get(key) ?? 0;
        if (count >= this.#maxPerRun)
          throw busyError("maxReadersPerRun", "Too many streams of this run are open. Try again later.");
        this.#perRun.set(key, count + 1);
        run = key;
      },
      leave: () => {
        if (left) return;
        left = true;
        this.#open -= 1;
        if (run !== undefined) this.#leaveRun(run);
      },
    };
  }

  #leaveRun(key: RunKey): void {
    const count = (this.#perRun.get(key) ?? 0) - 1;
    if (count > 0) this.#perRun.set(key, count);
    else this.#perRun.delete(key);
  }
}

/** A reader that is counted. */
export interface Reader {
  /** Sets the run that is read. Refused if that run has too many readers. */
  join(key: RunKey): void;
  /** The reader is no longer counted. */
  leave(): void;
}
