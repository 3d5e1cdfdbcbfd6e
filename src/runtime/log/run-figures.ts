/** Counts of this process that are in no log. */
export interface RunsReport {
  /** The runs in this process that have not ended, by status. */
  readonly live: Readonly<Record<string, number>>;
  /** How many runs wait for a slot. */
  readonly queued: number;
  /** How many values agents emitted after their run had ended. They are dropped. */
  readonly dropped: number;
  /** How many stopped agents did not end within `cancelGraceMs`. */
  readonly hung: number;
  /** How many runs were cancelled without their `finally` blocks, because no matching code was registered. */
  readonly withoutFinally: number;
}

/** The counters behind {@link RunsReport}. */
export class RunFigures {
  dropped = 0;
  hung = 0;
  withoutFinally = 0;
}
