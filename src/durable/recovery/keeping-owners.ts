import type { SubRunActivity } from "../../runtime/log/run-write.ts";

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

/** What is done with a waiting run. */
export interface ResidencyRule {
  /** Whether this process claims the run if it has no owner. */
  readonly claims: boolean;
  /** Whether this process keeps the run if it is the owner. */
  readonly keeps: boolean;
  /** Whether the run may be evicted from memory, if it has no owner. */
  readonly evicts: boolean;
}

/**
 * `working`: a step or a sub-run is at work. `expecting`: it may go on at once, because it is replayed, checks what it
 * waits for, or has an expired question. `settling`: the agent may still begin something. `idle`: it only waits.
 */
export type Activity = keyof typeof activities;

export const activities = {
  working:   { claims: true,  keeps: true,  evicts: false },
  expecting: { claims: false, keeps: true,  evicts: false },
  settling:  { claims: false, keeps: true,  evicts: true },
  idle:      { claims: false, keeps: false, evicts: true },
} as const satisfies Record<string, ResidencyRule>; // biome-ignore format: a table is read in columns

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

/**
 * How a write finds the run. `asking`: the agent cannot go on without a slot, and the run has none. No slot is free for
 * the next two: `inLine` waits for one under its owner, `queueing` leaves to wait for one in any process. `later`: it was
 * just accepted, and has a start time. `released`: this process leaves it. `waiting`: it waits, and needs no process.
 */
export type Situation = keyof typeof situations;

/**
 * How a write leaves the run. The owner is this process (`self`) or none. `due_at` says when a run without an owner is
 * due `next`, by its deadline or start, or when this process has `taken` the run. `keep`: as long as the run needs it.
 */
type HeadRule = readonly [owner: "self" | null, due_at: "taken" | "next" | null, slot: "take" | "keep" | "give"];

export const situations = {
  //           owner   due_at   slot
  ended:     [ null,   null,    "give" ],
  blocked:   [ null,   null,    "give" ],
  asking:    [ "self", "taken", "take" ],
  inLine:    [ "self", "taken", "give" ],
  queueing:  [ null,   null,    "give" ],
  later:     [ null,   "next",  "keep" ],
  released:  [ null,   "next",  "keep" ],
  waiting:   [ null,   "next",  "keep" ],
  working:   [ "self", "taken", "keep" ],
} as const satisfies Record<string, HeadRule>; // biome-ignore format: a table is read in columns
