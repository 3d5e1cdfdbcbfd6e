import type { RunStatus } from "../protocol/run.ts";
import type { Labels } from "./log.ts";

/** Which runs to list; those that were created last come first. */
export interface RunQuery {
  readonly tenant: string;
  readonly agent_name?: string | undefined;
  readonly session_id?: string | undefined;
  /** Only runs that this user has created, by what `userOf` gives for their principals. */
  readonly creator?: string | undefined;
  /** Only runs with one of these statuses. An empty list: no runs. */
  readonly statuses?: readonly RunStatus[] | undefined;
  /** Only runs that have all of these labels, each with this value. Without labels in it: as left out. */
  readonly labels?: Labels | undefined;
  /** Only the direct sub-runs of the runs with these ids, whether or not those runs exist. An empty list: no runs. */
  readonly parents?: readonly string[] | undefined;
  /** With true, only runs without a parent. Sub-runs are left out before the page is taken. */
  readonly roots?: boolean | undefined;
  /** Only runs that were created before the run with this id. If that run does not exist: none. */
  readonly after?: string | undefined;
  /**
   * Only runs that were created at this time or later, in milliseconds since the epoch. With one of these two times a
   * store may list the runs in the order of their times, where that is another than the order of their creation.
   */
  readonly createdAfter?: number | undefined;
  /** Only runs that were created before this time, in milliseconds since the epoch. */
  readonly createdBefore?: number | undefined;
  readonly limit: number;
  readonly offset: number;
  /**
   * How many runs a store may look at for the page. Where each of its indexes selects more, and the page is not full by
   * then, the store throws `limit_reached` with the limit `maxExaminedRuns`: it never answers a part. It reads all runs of a
   * session and of a parent, whatever the number, and a store in memory may ignore it. Left out: any number.
   */
  readonly most?: number | undefined;
}
