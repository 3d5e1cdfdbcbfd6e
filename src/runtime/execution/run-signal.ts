import { newController } from "../../core/background.ts";
import type { CadenzaError } from "../../core/errors.ts";
import type { Logger } from "../../core/ports.ts";

/** The signal of a run. It is created on first use, because that takes as long as the rest of a small run. */
export class RunSignal {
  readonly #logger: Logger;
  #controller: AbortController | undefined;
  /** The reason, once the signal is aborted. */
  #reason: (() => CadenzaError) | undefined;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = newController(this.#logger);
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
