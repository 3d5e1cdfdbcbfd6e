import type { Place } from "../crash/place.ts";

/* What the driver of a trial of moves, and the processes that execute its runs, tell each other. */

export const durability = { leaseMs: 3_000, heartbeatMs: 500, scanMs: 200 } as const;

export interface MovingSettings {
  readonly name: string;
  readonly place: Place;
}

/** `body`: that of a step has begun, in the code of a version. `at`: by `machineTime`. */
export type MovingReport =
  | { readonly is: "ready" }
  | { readonly is: "body"; readonly run_id: string; readonly version: string; readonly at: number }
  | { readonly is: "said"; readonly message: string };
