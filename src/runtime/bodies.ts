import { CadenzaError } from "../core/errors.ts";
import type { Clock } from "../core/ports.ts";

/**
 * Tells what comes from inside the body of a step. While a body is called, everything does. Later it cannot be seen; but the flow of a durable
 * agent moves only when it is given something, and then for one turn of the event loop: what it begins at another time, while a body
 * is at work, comes from inside that body, or after a wait that is in no log.
 */
export class Bodies {
  readonly #clock: Clock;
  #isCalling = false;
  #atWork = 0;
  /** The agent was given something in this turn of the event loop, or in the last one. */
  #isMoving = false;
  #moves = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the agent begins something now that no run of it from the log would begin again. `isPaced`: its flow moves only when it is given something. */
  isInside(isPaced: boolean): boolean {
    return this.#isCalling || (isPaced && this.#atWork > 0 && !this.#isMoving);
  }

  /** Calls the body of a step. */
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

  /** The agent is given something: a result, or its turn after it has shown something. */
  moves(): void {
    if (this.#atWork === 0) return;
    this.#moves += 1;
    if (this.#isMoving) return;
    this.#isMoving = true;
    void this.#stopMoving();
  }

  async #stopMoving(): Promise<void> {
    for (let seen = 0; seen < this.#moves; ) {
      seen = this.#moves;
      await this.#clock.turn();
    }
    this.#isMoving = false;
  }
}

/** What is begun in the body of a step is refused. */
export function nestedError(runId: string, what: string): CadenzaError {
  const message =
    `Run ${runId}: ${what} was called in the body of a step, or beside one after a wait that is not in the log. ` +
    "It could not be replayed: call it before the step or after it.";
  return new CadenzaError("nested_operation", message, { run_id: runId });
}

/** Whether an error is that of {@link nestedError}. */
export function isNested(error: unknown): boolean {
  return CadenzaError.is(error) && error.code === "nested_operation";
}
