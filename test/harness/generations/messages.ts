import type { Place } from "../crash/place.ts";

/** What a worker is started with. */
export interface CountingSettings {
  readonly name: string;
  readonly place: Place;
  /** How many turns the run takes, and how many of them a generation has. */
  readonly turns: number;
  readonly each: number;
  /** How many generations are kept. Null: all. */
  readonly kept: number | null;
}

/** What a worker tells. */
export type CountingReport =
  /** A turn was taken that no process had taken before, so many milliseconds after the worker was ready. */
  | { readonly is: "at work"; readonly generation: number; readonly ms: number }
  | { readonly is: "turns"; readonly count: number }
  /** A generation that this worker has executed as a whole: the milliseconds of a turn, and the memory of the process in MiB. */
  | { readonly is: "generation"; readonly generation: number; readonly ms: number; readonly mib: number };
