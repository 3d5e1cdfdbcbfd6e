import type { Way } from "./crash-trial.ts";
import type { WayResult } from "./report.ts";
import { Report } from "./report.ts";

/** One crash, and what came of it. */
export interface CrashResult extends WayResult {
  readonly kind: Way["kind"];
  /** The crash in words: `crashed in step charge#1, when its work was done and its result was not stored`. */
  readonly where: string;
  /** What differed, in sentences; none if nothing did. */
  readonly problems: readonly string[];
}

/** What `everyCrash` found. As text it reads well in a failing test. */
export class CrashReport extends Report<CrashResult> {}
