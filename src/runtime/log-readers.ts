import type { Entry } from "../core/log.ts";

const noEntries: readonly Entry[] = [];

/** The readers that wait for the next commit of a run. */
export class LogReaders {
  /** What was committed last: readers at the live edge need not ask the store for it. */
  batch = noEntries;
  #waiting: (() => void)[] = [];
  #unfollow: (() => void) | undefined;

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  add(callback: () => void): void {
    this.#waiting.push(callback);
  }

  remove(callback: () => void): void {
    this.#waiting = this.#waiting.filter((reader) => reader !== callback);
  }

  /** Calls each of them back, once. */
  tell(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const reader of waiting) reader();
  }

  /** Another process may write to the run: the store is asked, as long as there are readers. `follow` gives what ends that. */
  follow(follow: () => () => void): void {
    if (this.isEmpty) this.unfollow();
    else this.#unfollow ??= follow();
  }

  unfollow(): void {
    this.#unfollow?.();
    this.#unfollow = undefined;
  }
}
