import { inBackground } from "../../core/background.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Clock, Logger } from "../../core/ports.ts";

/**
 * Detects operations that begin inside the body of a step. During the synchronous part of a body, every operation does.
 * After that JavaScript does not show where a call comes from. But a durable agent continues only when it receives a
 * result, and then for one turn of the event loop. An operation that begins at another time, while a body runs, comes
 * from that body or follows a wait that is not in the log.
 */
export class Bodies {
  readonly #clock: Clock;
  readonly #logger: Logger;
  #isCalling = false;
  #atWork = 0;
  /** How much the agent has received since it began to move. 0: nothing in this turn of the event loop, or in the last one. */
  #moves = 0;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /**
   * Whether an operation that begins now would be missing when the agent is executed again. `isPaced`: the agent continues only when it receives
   * something, as live durable agents do.
   */
  isInside(isPaced: boolean): boolean {
    return this.#isCalling || (isPaced && this.#atWork > 0 && this.#moves === 0);
  }

  async call(body: () => unknown): Promise<unknown> {
    this.#atWork += 1;
    this.moves();
    try {
      return await this.#call(body);
    } finally {
      this.#atWork -= 1;
    }
  }

  #call(body: () => unknown): unknown {
    this.#isCalling = true;
    try {
      return body();
    } finally {
      this.#isCalling = false;
    }
  }

  /** The agent receives something: a result, or its turn after it has emitted a value. */
  moves(): void {
    if (this.#atWork === 0) return;
    this.#moves += 1;
    if (this.#moves === 1) inBackground(this.#logger, this.#stopMoving());
  }

  async #stopMoving(): Promise<void> {
    for (let seen = 0; seen < this.#moves; ) {
      seen = this.#moves;
      await this.#clock.turn();
    }
    this.#moves = 0;
  }
}

/** The error for an operation that begins in the body of a step. */
export function nestedError(runId: string, what: string): CadenzaError {
  const message =
    `Run ${runId}: ${what} was called in the body of a step, or during one after a wait that is not in the log. ` +
    "It would be missing when the agent is executed again: call it before the step or after it.";
  return new CadenzaError("nested_operation", message, { run_id: runId });
}

/** Whether {@link nestedError} has made the error. */
export function isNested(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "nested_operation";
}
