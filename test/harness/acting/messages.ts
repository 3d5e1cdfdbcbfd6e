import type { Place } from "../crash/place.ts";

/* What the driver of processes that act on many runs, and these processes, tell each other. */

export const durability = { leaseMs: 2_000, heartbeatMs: 500, scanMs: 200 } as const;

export interface ActingSettings {
  readonly name: string;
  readonly place: Place;
  /** Whether it executes the agent `mail`, and not acts alone. */
  readonly executes: boolean;
}

/** To resume a tenant. */
export interface ActingOrder {
  readonly resume: string;
}

/**
 * `turn`: the longest turn of the event loop so far, in milliseconds of processor time, and how much of it the collector may
 * have taken. `began`: a run of a tenant has begun.
 */
export type ActingReport =
  | { readonly is: "ready" }
  | { readonly is: "resumed" }
  | { readonly is: "turn"; readonly ms: number; readonly collected: number }
  | { readonly is: "began"; readonly tenant: string }
  | { readonly is: "said"; readonly message: string };
