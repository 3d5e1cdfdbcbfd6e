import type { CadenzaError } from "../core/errors.ts";

/** The one signal of a run. It is made when it is first asked for: that costs as much as the rest of a small run. */
export class RunSignal {
  #controller: AbortController | undefined;
  /** Why the signal is aborted, if it is. */
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
