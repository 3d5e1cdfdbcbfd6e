import type { CadenzaError } from "../core/errors.ts";

/** The signal of a run. It is created on first use, because that takes as long as the rest of a small run. */
export class RunSignal {
  #controller: AbortController | undefined;
  /** The reason, once the signal is aborted. */
  #reason: (() => CadenzaError) | undefined;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason());
    }
    return this.#controller.signal;
  }

  /** Aborts the signal. The first reason counts. */
  abort(reason: () => CadenzaError): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#controller?.abort(reason());
  }
}
