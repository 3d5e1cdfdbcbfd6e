import { AsyncLocalStorage, createHook } from "node:async_hooks";
import { realPause, stopRealTimer } from "./real-time.ts";
import { callersOf, placeOf } from "./stack.ts";

/** The properties that Node's timers have. */
interface NodeTimer {
  readonly _idleTimeout?: unknown;
  readonly _repeat?: unknown;
  readonly hasRef?: () => boolean;
}

/** A timer that is set. */
interface WatchedTimer {
  readonly timer: NodeTimer;
  /** The line that set it: `booking.ts:12:5`. */
  readonly at: string | undefined;
  /**
   * Whether a web stream set it while it read ahead. The agent cannot cancel such a timer: it belongs to the stream's
   * source.
   */
  readonly isOfStream: boolean;
}

/**
 * The watch of the running code. One storage serves all watches, since each further one would slow down the whole
 * process.
 */
const watching = new AsyncLocalStorage<TimerWatch>();

/** How many watches have begun and not ended. */
let watches = 0;

/**
 * Watches the timers that certain code sets, including the code that it calls. Timers of other code that runs at the
 * same time are not seen. Timers that do not hold the process open are ignored: HTTP clients, for example, keep such
 * timers.
 */
export class TimerWatch {
  readonly #set = new Map<number, WatchedTimer>();
  readonly #onInit = (id: number, type: string, _trigger: number, resource: object): void => {
    if (type !== "Timeout" || watching.getStore() !== this) return;
    const callers = callersOf(this.#onInit);
    const isOfStream = callers.some((line) => line.includes("node:internal/webstreams"));
    this.#set.set(id, { timer: resource, at: placeOf(callers), isOfStream });
  };
  readonly #hook = createHook({
    init: this.#onInit,
    destroy: (id) => {
      this.#set.delete(id);
    },
  });

  begin(): void {
    watches += 1;
    this.#hook.enable();
  }

  /** Calls code whose timers are watched. */
  trace<T>(callback: () => T): T {
    return watching.run(this, callback);
  }

  /** Waits for timers that fire within this time, in milliseconds of the machine's time. */
  async settle(patienceMs: number): Promise<void> {
    for (let waited = 0, pause = 1; waited < patienceMs && this.#runsOutWithin(patienceMs - waited); pause *= 2) {
      await realPause(pause);
      waited += pause;
    }
  }

  /**
   * The timers that are left, each as text: `an interval of 1000 ms, set at booking.ts:12:5`. They are stopped, so that
   * they do not disturb later tests.
   */
  end(): readonly string[] {
    this.#hook.disable();
    watches -= 1;
    // Before Node 24 a storage that was used makes every promise of the process slower, until it is disabled.
    if (watches === 0) watching.disable();
    const left = this.#left;
    this.#set.clear();
    const described = left.filter(({ timer, isOfStream }) => !isOfStream || isInterval(timer)).map(describeTimer);
    for (const { timer } of left) stopRealTimer(timer);
    return described;
  }

  #runsOutWithin(milliseconds: number): boolean {
    return this.#left.some(({ timer }) => !isInterval(timer) && Number(timer._idleTimeout) <= milliseconds);
  }

  get #left(): readonly WatchedTimer[] {
    return [...this.#set.values()].filter(({ timer }) => timer.hasRef?.() ?? true);
  }
}

function describeTimer({ timer, at }: WatchedTimer): string {
  const kind = isInterval(timer) ? "an interval" : "a timer";
  const length = typeof timer._idleTimeout === "number" ? ` of ${timer._idleTimeout} ms` : "";
  return `${kind}${length}${at === undefined ? "" : `, set at ${at}`}`;
}

function isInterval({ _repeat }: NodeTimer): boolean {
  return _repeat !== null && _repeat !== undefined;
}
