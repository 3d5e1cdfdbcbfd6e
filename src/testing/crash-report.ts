import type { CrashWay } from "./crash-trial.ts";
import type { WayResult } from "./report.ts";
import { Report } from "./report.ts";

/** One crash, and its outcome. */
export interface CrashResult extends WayResult {
  readonly kind: CrashWay["kind"];
  /** The crash in words: `crashed in step charge#1, when its work was done and its result was not stored`. */
  readonly where: string;
  /** The differences, in sentences; none if there are none. */
  readonly problems: readonly string[];
}

/** The result of `everyCrash`. As text it is the message of a failing test. */
export class CrashReport extends Report<CrashResult> {}
