import type { Retention, Store, StoreConflict } from "../../src/core/ports.ts";

/** A store with one fault, a mistake that somebody who writes a store might make, and the check that has to find it. */
export interface BrokenStore {
  readonly fault: string;
  readonly caughtBy: string;
  open(): Store | { readonly first: Store; readonly second: Store };
}

export type Conflict = StoreConflict | undefined;

export function broken(fault: string, caughtBy: string, Faulty: new () => Store): BrokenStore {
  return { fault, caughtBy, open: () => new Faulty() };
}

export const keepEverything: Retention = {
  maxRuns: Number.POSITIVE_INFINITY,
  endedBefore: Number.NEGATIVE_INFINITY,
  sessionsBefore: Number.NEGATIVE_INFINITY,
};
