import { inBackground } from "../core/background.ts";
import type { Clock, Logger, RunKey } from "../core/ports.ts";
import { RunMap } from "../core/run-map.ts";
import type { Scope } from "../runtime/api/scope.ts";
import type { Caller } from "./caller.ts";

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
  readonly #runs = new RunMap<Presence>();

  /** `cancelAfterMs`: 0 for at once, `Infinity` for never. */
  constructor(cancelAfterMs: number, clock: Clock, logger: Logger) {
    this.#cancelAfterMs = cancelAfterMs;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** A client has started or resumed a run, and waits for it. One that may only answer cancels nothing by leaving. */
  enter({ scope, tenant, isReader }: Caller, run_id: string): Leave {
    if (isReader || this.#cancelAfterMs === Number.POSITIVE_INFINITY) return notCounted;
    const key = { tenant, run_id };
    let presence = this.#runs.get(key);
    if (presence === undefined) {
      presence = { clients: 0, stop: notCounted };
      this.#runs.set(key, presence);
    }
    return this.#count(scope, key, presence);
  }

  /** A client follows a run. It keeps the run that another client has left, and may leave it in turn. */
  follow({ scope, tenant }: Caller, run_id: string): Leave {
    const key = { tenant, run_id };
    const presence = this.#cancelAfterMs === 0 ? undefined : this.#runs.get(key);
    return presence === undefined ? notCounted : this.#count(scope, key, presence);
  }

  #count(scope: Scope, key: RunKey, presence: Presence): Leave {
    presence.clients += 1;
    presence.stop();
    let hasLeft = false;
    return (done) => {
      if (hasLeft) return;
      hasLeft = true;
      presence.clients -= 1;
      if (this.#runs.get(key) !== presence) return;
      if (done) this.#runs.delete(key);
      else if (presence.clients === 0) this.#cancelLater(scope, key, presence);
    };
  }

  #cancelLater(scope: Scope, key: RunKey, presence: Presence): void {
    const cancel = (): void => {
      this.#runs.delete(key);
      const cancelling = this.#cancel(scope, key.run_id).catch(() =>
        this.#logger.debug("A run had ended before its client's disconnect could cancel it.", { run_id: key.run_id }),
      );
      inBackground(this.#logger, cancelling);
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
