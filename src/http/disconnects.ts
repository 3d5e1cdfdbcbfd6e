import type { Clock, Logger } from "../core/ports.ts";
import type { Scope } from "../runtime/scope.ts";

/** Called when a client is done with a run, or has left it. `done`: it knows that the run rests. */
export type Leave = (done: boolean) => void;

/** That of a client whose leaving changes nothing. */
export const notCounted = (): void => {
  // The client is not counted.
};

/** The clients that wait for a run. */
interface Presence {
  clients: number;
  /** Clears the timer that runs while there is none. */
  stop: () => void;
}

/** Cancels the runs whose clients have disconnected, at once or some time later. */
export class Disconnects {
  readonly #cancelAfterMs: number;
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** The runs that a client has started or resumed, and was not told to rest. */
  readonly #runs = new Map<string, Presence>();

  /** `cancelAfterMs`: 0 for at once, `Infinity` for never. */
  constructor(cancelAfterMs: number, clock: Clock, logger: Logger) {
    this.#cancelAfterMs = cancelAfterMs;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** A client has started or resumed a run, and waits for it. */
  enter(scope: Scope, runId: string): Leave {
    if (this.#cancelAfterMs === Number.POSITIVE_INFINITY) return notCounted;
    let presence = this.#runs.get(runId);
    if (presence === undefined) {
      presence = { clients: 0, stop: notCounted };
      this.#runs.set(runId, presence);
    }
    return this.#count(scope, runId, presence);
  }

  /** A client follows a run. It keeps the run that another client has left, and may leave it in turn. */
  follow(scope: Scope, runId: string): Leave {
    const presence = this.#cancelAfterMs === 0 ? undefined : this.#runs.get(runId);
    return presence === undefined ? notCounted : this.#count(scope, runId, presence);
  }

  #count(scope: Scope, runId: string, presence: Presence): Leave {
    presence.clients += 1;
    presence.stop();
    let hasLeft = false;
    return (done) => {
      if (hasLeft) return;
      hasLeft = true;
      presence.clients -= 1;
      if (this.#runs.get(runId) !== presence) return;
      if (done) this.#runs.delete(runId);
      else if (presence.clients === 0) this.#cancelLater(scope, runId, presence);
    };
  }

  #cancelLater(scope: Scope, runId: string, presence: Presence): void {
    const cancel = (): void => {
      this.#runs.delete(runId);
      this.#cancel(scope, runId).catch(() =>
        this.#logger.debug("A run had ended before its client's disconnect could cancel it.", { run_id: runId }),
      );
    };
    if (this.#cancelAfterMs === 0) cancel();
    else presence.stop = this.#clock.setTimeout(cancel, this.#cancelAfterMs);
  }

  /** A run that waits for an answer by then is left to the client that comes back. */
  async #cancel(scope: Scope, runId: string): Promise<void> {
    if (this.#cancelAfterMs > 0 && (await scope.getRun(runId)).status === "awaiting") return;
    await scope.cancel(runId);
  }
}
