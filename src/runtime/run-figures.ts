/** What happened in this process beside what the logs say. */
export interface RunsReport {
  /** Runs by status that have not ended, in this process. */
  readonly live: Readonly<Record<string, number>>;
  readonly queued: number;
  /** What agents emitted after their run had ended. */
  readonly dropped: number;
  /** Agents that did not stop within the grace period. */
  readonly hung: number;
  /** Runs that were cancelled without their `finally` blocks, since no matching code was registered. */
  readonly withoutFinally: number;
  /** Parts that durable agents emitted with another text in a replay; the history counts. */
  readonly differences: number;
}

/** Counts what happens in this process beside what the logs say. */
export class RunFigures {
  dropped = 0;
  hung = 0;
  differences = 0;
  withoutFinally = 0;
}
