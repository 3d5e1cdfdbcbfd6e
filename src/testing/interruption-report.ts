import type { Interruption } from "./interruption.ts";
import type { WayResult } from "./report.ts";
import { Report } from "./report.ts";

/** One interruption, and what came of it. */
export interface InterruptionResult extends WayResult {
  readonly kind: Interruption["kind"];
  /** The number of the last thing that the agent had done before, counted from 1; 0 for none. */
  readonly yield_index: number;
  /** The interruption in words: `cancelled after yield 2 (part "Looking for trains…")`. */
  readonly where: string;
  /** What the agent did not keep, in sentences; none if all is well. */
  readonly problems: readonly string[];
}

/** What `everyInterruption` found. As text it reads well in a failing test. */
export class InterruptionReport extends Report<InterruptionResult> {}
