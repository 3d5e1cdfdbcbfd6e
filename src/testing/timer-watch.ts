import { AsyncLocalStorage, createHook } from "node:async_hooks";
import { stopRealTimer } from "./real-time.ts";

/** What Node's timers say of themselves. */
interface NodeTimer {
  readonly _idleTimeout?: unknown;
  readonly _repeat?: unknown;
  readonly hasRef?: () => boolean;
}

/** Whose code it is that runs. There is one for all watches: each one more would slow down everything in the process, for good. */
const watching = new AsyncLocalStorage<TimerWatch>();

/**
 * Watches the timers that certain code sets, and the code that it calls: those of others, which run at the same time, are not seen. Timers that
 * do not hold the process open are nobody's loose end: HTTP clients, for one, keep such.
 */
export class TimerWatch {
  readonly #set = new Map<number, { readonly timer: NodeTimer; readonly at: string | undefined }>();
  readonly #hook = createHook({
    init: (id, type, _trigger, resource) => {
      if (type === "Timeout" && watching.getStore() === this) this.#set.set(id, { timer: resource, at: place() });
    },
    destroy: (id) => {
      this.#set.delete(id);
    },
  });

  begin(): void {
    this.#hook.enable();
  }

  /** Calls code whose timers are watched. */
  trace<T>(callback: () => T): T {
    return watching.run(this, callback);
  }

  /** The timers that are left, each in words: `an interval of 1000 ms, set at booking.ts:12:5`. They are stopped, so that they do not trouble what comes after. */
  end(): readonly string[] {
    this.#hook.disable();
    const left = [...this.#set.values()].filter(({ timer }) => timer.hasRef?.() ?? true);
    this.#set.clear();
    const described = left.map(({ timer, at }) => describeTimer(timer, at));
    for (const { timer } of left) stopRealTimer(timer);
    return described;
  }
}

function describeTimer({ _idleTimeout, _repeat }: NodeTimer, at: string | undefined): string {
  const isInterval = _repeat !== null && _repeat !== undefined;
  const kind = isInterval ? "an interval" : "a timer";
  const length = typeof _idleTimeout === "number" ? ` of ${_idleTimeout} ms` : "";
  return `${kind}${length}${at === undefined ? "" : `, set at ${at}`}`;
}

/** The line that set the timer: the first on the stack that is neither Node's nor this file's. */
function place(): string | undefined {
  const lines = new Error().stack?.split("\n").slice(1) ?? [];
  const line = lines.find((text) => !/node:|async_hooks|timer-watch|emitInitNative/.test(text));
  return line === undefined ? undefined : /([^/\\(\s]+:\d+:\d+)\)?$/.exec(line)?.[1];
}
