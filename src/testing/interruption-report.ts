import type { Interruption } from "./interruption.ts";
import type { WayResult } from "./report.ts";
import { Report } from "./report.ts";

/** One interruption, and its outcome. */
export interface InterruptionResult extends WayResult {
  readonly kind: Interruption["kind"];
  /** The number of the last thing that the agent had done before, counted from 1; 0 for none. */
  readonly yieldIndex: number;
  /** The interruption in words: `cancelled after yield 2 (part "Looking for trains…")`. */
  readonly where: string;
  /** What the agent did wrong, in sentences; none if nothing. */
  readonly problems: readonly string[];
}

/** The result of `everyInterruption`. As text it is the message of a failing test. */
export class InterruptionReport extends Report<InterruptionResult> {}
