import type { Place } from "../crash/place.ts";

/* What the driver of workers that are drained during steps beside waits, and these workers, tell each other. */

/** How many steps a run has, each beside a wait or in a sub-run. Each yields a part. */
export const STEPS = 6;
/** How many runs may work at once. */
export const MAX = 4;

export const durability = { leaseMs: 10_000, heartbeatMs: 1_000, scanMs: 200, evictAfterMs: 300 } as const;

export interface BesideSettings {
  /** The prefix of the owner's name in the runs of its runtime. */
  readonly name: string;
  readonly place: Place;
  readonly drainMs: number;
  /** How long a step takes at most, in milliseconds. */
  readonly longestMs: number;
}

/**
 * A body of a step begins, is done, or was stopped so many milliseconds after the signal to its process. `at`: by the
 * monotonic clock of the machine, in milliseconds.
 */
export type BesideReport =
  | { readonly is: "ready" }
  | { readonly is: "said"; readonly message: string }
  | (BodyReport & { readonly is: "began" })
  | (BodyReport & { readonly is: "done" })
  | (BodyReport & { readonly is: "stopped"; readonly afterMs: number });

export interface BodyReport {
  readonly run_id: string;
  readonly agent: "beside" | "child";
  readonly key: string;
  readonly attempt: number;
  readonly at: number;
}
