import type { SubRunActivity } from "../../runtime/log/ownership.ts";

/** What keeps a waiting run busy in this process. */
export interface ResidencyFacts {
  /** Whether the body of a step is running. */
  readonly isInStep: boolean;
  /** What the sub-runs do whose results the agent does not have. */
  readonly subRuns: Iterable<SubRunActivity>;
  /** How many checks of what the run waits for elsewhere are pending. */
  readonly checks: number;
  readonly isReplaying: boolean;
  /** Whether the question that is shown has expired, so that the agent is about to go on. */
  readonly isOverdue: boolean;
  /** Whether the agent has had its turn with all results that it received. */
  readonly isSettled: boolean;
}

/**
 * `working`: a step or a sub-run is at work. `expecting`: it may go on at once, because it is replayed, checks what it
 * waits for, or has an expired question. `settling`: the agent may still begin something. `idle`: it only waits.
 */
export type Activity = "working" | "expecting" | "settling" | "idle";

/** What is done with a waiting run. */
export interface ResidencyRule {
  /** Whether this process claims the run if it has no owner. */
  readonly claims: boolean;
  /** Whether this process keeps the run if it is the owner. */
  readonly keeps: boolean;
  /** Whether the run may be evicted from memory, if it has no owner. */
  readonly evicts: boolean;
}

const table = {
  working:   { claims: true,  keeps: true,  evicts: false },
  expecting: { claims: false, keeps: true,  evicts: false },
  settling:  { claims: false, keeps: true,  evicts: true },
  idle:      { claims: false, keeps: false, evicts: true },
} as const satisfies Record<Activity, ResidencyRule>; // biome-ignore format: a table is read in columns

/** What a waiting run does. */
export function activityOf(facts: ResidencyFacts): Activity {
  let isSought = false;
  for (const subRun of facts.subRuns) {
    if (subRun === "at work") return "working";
    isSought ||= subRun === "sought";
  }
  if (facts.isInStep) return "working";
  if (isSought || facts.checks > 0 || facts.isReplaying || facts.isOverdue) return "expecting";
  return facts.isSettled ? "idle" : "settling";
}

/** What the table says. */
export function ruleFor(activity: Activity): ResidencyRule {
  return table[activity];
}
