import type { Entry } from "../../core/log.ts";

const noEntries: readonly Entry[] = [];

/** The readers that wait for the next commit of a run. */
export class LogReaders {
  /** The entries of the last commit. Readers that are up to date need not read them from the store. */
  batch = noEntries;
  #waiting: (() => void)[] = [];

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  add(callback: () => void): void {
    this.#waiting.push(callback);
  }

  remove(callback: () => void): void {
    this.#waiting = this.#waiting.filter((reader) => reader !== callback);
  }

  /** Calls each reader back once. */
  tell(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const reader of waiting) reader();
  }
}
