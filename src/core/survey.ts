import type { RunStatus } from "../protocol/run.ts";
import type { Entry, Labels } from "./log.ts";
import type { MaybePromise } from "./promises.ts";

/**
 * What an operator asks a store about the runs of all tenants. `Run` is a run as the store finds it, and `Key` its key.
 * No call reads all runs: where the index of a store selects too many, the answer comes in bounded pages.
 */
export interface Surveys<Run, Key> {
  /** A page of runs, those that were created last first. */
  survey(query: SurveyQuery): MaybePromise<SurveyPage<Run>>;
  /**
   * For each of the runs at most `count` last entries, in the order of the runs. Undefined: the run does not exist, or
   * one of these entries is damaged.
   */
  tails(runs: readonly Key[], count: number): MaybePromise<readonly (LogTail | undefined)[]>;
  /** How many runs have not ended, by agent, version and status, in no particular order. Of each no more than 1,001. */
  census(): MaybePromise<readonly LiveCount[]>;
  /** All owners that have a lease or a live run, in no particular order. Changes nothing. */
  workers(): MaybePromise<readonly WorkerLease[]>;
  /** The owners whose lease lasts, in no particular order. Changes nothing, and costs nothing for each run. */
  living(): MaybePromise<readonly string[]>;
}

/** Which runs to give. */
export interface SurveyQuery {
  /** Only runs of this tenant; left out: of all. */
  readonly tenant?: string | undefined;
  readonly agent_name?: string | undefined;
  /** Only runs of this version of their agent; null: of agents without one. */
  readonly version?: string | null | undefined;
  /** Only runs with one of these statuses. An empty list: no runs. */
  readonly statuses?: readonly RunStatus[] | undefined;
  /** Only runs that have all of these labels, each with this value. */
  readonly labels?: Labels | undefined;
  /** Only runs whose id begins with this text. */
  readonly idPrefix?: string | undefined;
  /** With true, only runs without a parent. */
  readonly roots?: boolean | undefined;
  /** Only runs that were created at this time or later, in milliseconds since the epoch. */
  readonly createdAfter?: number | undefined;
  /** Only runs that were created before this time, in milliseconds since the epoch. */
  readonly createdBefore?: number | undefined;
  /** Only runs behind this place: the `next` of the page before. The run that was there may be deleted since. */
  readonly after?: number | undefined;
  /** At least 1. */
  readonly limit: number;
}

/** A page of runs. */
export interface SurveyPage<Run> {
  readonly runs: readonly Run[];
  /**
   * Behind which place the next page begins; null: there are no more runs. A store looks at a bounded number of runs for
   * a page. So a page may have fewer runs than its limit, or none, and yet be followed by others.
   */
  readonly next: number | null;
}

/** The last entries of a run. */
export interface LogTail {
  /** The position of the first of them. */
  readonly from: number;
  readonly entries: readonly Entry[];
}

/** How many live runs of an agent and version have a status. */
export interface LiveCount {
  readonly agent_name: string;
  readonly version: string | null;
  readonly status: RunStatus;
  readonly runs: number;
}

/** The lease of an owner. */
export interface WorkerLease {
  readonly owner: string;
  /** When it ends, in milliseconds since the epoch, by the store's clock; null for an owner without one. */
  readonly until: number | null;
  /** Whether it has not ended. */
  readonly is_alive: boolean;
  /** How many live runs the owner has. */
  readonly runs: number;
}
