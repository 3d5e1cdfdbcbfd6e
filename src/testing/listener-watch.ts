import { getEventListeners } from "node:events";

/**
 * Watches the abort listeners on the signals of agents. A listener that is added to an aborted signal is never called.
 * It is not counted as left, since libraries add such listeners when a run is cancelled early.
 */
export class ListenerWatch {
  /** For each signal the listeners at the time of its abort; undefined if it has not aborted. */
  readonly #atAbort = new Map<AbortSignal, ReadonlySet<unknown> | undefined>();
  readonly #own = new WeakMap<AbortSignal, unknown>();

  add(signal: AbortSignal): void {
    if (this.#atAbort.has(signal)) return;
    if (signal.aborted) {
      this.#atAbort.set(signal, new Set());
      return;
    }
    const note = (): void => {
      this.#atAbort.set(signal, new Set(getEventListeners(signal, "abort")));
    };
    this.#atAbort.set(signal, undefined);
    // The first listener is called first, while all others are still registered.
    signal.addEventListener("abort", note, { once: true });
    // The signal of a run registers a function of its own for each listener.
    this.#own.set(signal, getEventListeners(signal, "abort").at(-1));
  }

  /** Whether an agent has taken a signal. */
  get isUsed(): boolean {
    return this.#atAbort.size > 0;
  }

  /** How many listeners are left. */
  get left(): number {
    let count = 0;
    for (const [signal, atAbort] of this.#atAbort) {
      const own = this.#own.get(signal);
      for (const listener of getEventListeners(signal, "abort"))
        if (listener !== own && atAbort?.has(listener) !== false) count += 1;
    }
    return count;
  }
}
