/** A limit on executing runs, over all processes, whatever agents they are of. It has `max`, `rate` or both. */
export interface Slot {
  /** The runs with one key share the limit. */
  readonly key: string;
  /** How many runs hold it at a time, at least 1. Left out: any number. */
  readonly max?: number | undefined;
  /** How often it is given. Left out: at any time. */
  readonly rate?: Rate | undefined;
}

/** At most `count` in any `perMs` milliseconds, by the store's clock: a sliding window, counted when it is given. */
export interface Rate {
  /** At least 1. */
  readonly count: number;
  readonly perMs: number;
}

/** How a run is queued, as its agent said when it was created. It never changes. */
export interface Queued {
  /** The limits that it shares with other runs, besides the `concurrency` of its agent. Left out: none. */
  readonly slots?: readonly Slot[];
  /** Left out: 0. */
  readonly priority?: number;
  /** With whose runs it takes turns. Left out: with those of its tenant. */
  readonly fair?: string;
}
