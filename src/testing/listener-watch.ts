import { getEventListeners } from "node:events";

/**
 * Watches the abort listeners on the signals that agents take. A listener that is added to a signal which has aborted is never called: it is no
 * loose end, and libraries add such when a run is cancelled early.
 */
export class ListenerWatch {
  /** For each signal what was listening when it aborted; undefined: it has not. */
  readonly #atAbort = new Map<AbortSignal, ReadonlySet<unknown> | undefined>();
  readonly #own = new WeakMap<AbortSignal, () => void>();

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
    this.#own.set(signal, note);
    // The first listener is the first that is called: all others are still there.
    signal.addEventListener("abort", note, { once: true });
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
