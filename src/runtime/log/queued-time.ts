import type { Entry } from "../../core/log.ts";

/** How long one run was in queues, for its slot or for limits of its steps, while it waited for nothing else. */
export class QueuedTime {
  /** As far as its log does not say so, in milliseconds. */
  #ms = 0;
  /** Since when that is so again, in milliseconds since 1970. Undefined: it is not so now. */
  #from: number | undefined;

  /** How long that is which the log does not say. `from`: `now` if the run is in a queue from now on, and waits for nothing else. */
  measure(now: number, from: number | undefined): number {
    if (this.#from !== undefined) this.add(now - this.#from);
    this.#from = from;
    return this.#ms;
  }

  /** The run was in a queue for so long. */
  add(ms: number): void {
    this.#ms += Math.max(0, ms);
  }

  /** These entries were decided. */
  onRecorded(entries: readonly Entry[]): void {
    if (entries.some((entry) => "queued_ms" in entry)) this.#ms = 0;
  }
}
