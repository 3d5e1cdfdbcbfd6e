import type { Labels } from "../core/log.ts";
import { isOwn } from "../core/tenants.ts";
import {
  badArgument,
  checkChoice,
  checkKey,
  checkOptionsOf,
  checkText,
  checkWithin,
  maxLengths,
  readTime,
} from "../runtime/agent/check.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { readInput } from "../runtime/agent/input.ts";
import { noLabels, readLabels } from "../runtime/agent/labels.ts";
import type { Named } from "./agent.ts";
import type { Definition } from "./state.ts";
import type { Calendar } from "./times.ts";
import { Zone } from "./zone.ts";

/** What a schedule creates, and when: `cron` or `everyMs`, and not both. */
export interface ScheduleDefinition {
  /** Names the schedule within its tenant: 1 to 64 characters. */
  readonly id: string;
  /** The agent whose runs are created, which this process has registered or declared. */
  readonly agent_name: string;
  /** The version of the agent. Default: the one that new runs of the name use when a run is created. */
  readonly version?: string | undefined;
  /** The input of each run. */
  readonly input: RunInput;
  /**
   * A cron expression of five fields: minute, hour, day of the month, month, day of the week. Needs the option `cron` of
   * {@link schedules}. One that no date matches is refused.
   */
  readonly cron?: string | undefined;
  /** The time from one run to the next, in milliseconds, at least 1,000. It is counted from `startAt`, or from 1970 on. */
  readonly everyMs?: number | undefined;
  /**
   * The time zone of the cron expression, such as `Europe/Berlin`. A time that its clocks skip has its run right after the
   * change, one that they show twice has one run, the first time. Default: `UTC`.
   */
  readonly timeZone?: string | undefined;
  /**
   * What becomes of a time while the run before has not ended. `skip`: it has no run. `queue`: its run is created after that
   * end. `cancel`: the run before is cancelled. Default: `skip`.
   */
  readonly overlap?: "skip" | "queue" | "cancel" | undefined;
  /**
   * What becomes of times that no process has come to for a minute. `skip`: they have no runs. `latest`: the last of them has
   * one, unless a later time has one. `all`: each has one. Default: `latest`.
   */
  readonly missed?: "skip" | "latest" | "all" | undefined;
  /** Creates each run later by up to so many milliseconds, always the same for the same id and time. Default: 0. */
  readonly jitterMs?: number | undefined;
  /** No time is earlier: a `Date`, milliseconds since 1970, or a text in ISO 8601. Default: none. */
  readonly startAt?: Date | number | string | undefined;
  /** No time is later. Default: none. */
  readonly endAt?: Date | number | string | undefined;
  /** The labels of each run. Default: none. */
  readonly labels?: Labels | undefined;
  /** The tenant of the schedule and of its runs. Default: "". */
  readonly tenant?: string | undefined;
}

const names: readonly (keyof ScheduleDefinition)[] = [
  ...([
    "id",
    "agent_name",
    "version",
    "input",
    "cron",
    "everyMs",
    "timeZone",
    "overlap",
    "missed",
    "jitterMs",
  ] as const),
  ...(["startAt", "endAt", "labels", "tenant"] as const),
];
/** The longest id of a schedule, in UTF-16 units. */
const MAX_ID = 64;
const LEAST_EVERY_MS = 1_000;
const LONGEST_JITTER_MS = 24 * 3_600_000;

/** Reads which schedule is meant: its id, and the tenant among the options. Throws `invalid_argument`. */
export function readNamed(id: string, options: { readonly tenant?: string | undefined }, known = ["tenant"]): Named {
  checkKey("id", id, MAX_ID);
  checkOptionsOf("options", options, known);
  return { id, tenant: readTenant(options.tenant) };
}

/** Reads the tenant of a schedule. Throws `invalid_argument`. */
export function readTenant(tenant = ""): string {
  if (tenant !== "") checkKey("tenant", tenant, maxLengths.tenant);
  if (isOwn(tenant)) throw badArgument("tenant", "a name that is not reserved", tenant);
  return tenant;
}

/** Reads what a schedule is to be. Throws `invalid_argument`. */
export function readDefinition(given: ScheduleDefinition, calendar: Calendar): Definition {
  checkOptionsOf("schedule", given, names);
  const { agent_name, version, cron, everyMs, overlap = "skip", missed = "latest", jitterMs = 0 } = given;
  checkText("agent_name", agent_name);
  if (version !== undefined) checkKey("version", version, maxLengths.version);
  if ((cron === undefined) === (everyMs === undefined))
    throw badArgument("schedule", "either cron or everyMs", cron === undefined ? "neither" : "both");
  return {
    ...{ agent_name, version: version ?? null, input: readInput(given.input) },
    overlap: checkChoice("overlap", overlap, ["skip", "queue", "cancel"]),
    missed: checkChoice("missed", missed, ["skip", "latest", "all"]),
    jitter_ms: checkWithin("jitterMs", jitterMs, 0, LONGEST_JITTER_MS),
    labels: readLabels("labels", given.labels) ?? noLabels,
    timing: readTiming(given, calendar),
  };
}

function readTiming(
  { cron, everyMs, timeZone = "UTC", startAt, endAt }: ScheduleDefinition,
  calendar: Calendar,
): Definition["timing"] {
  const always = {
    cron: cron ?? null,
    every_ms: everyMs === undefined ? null : checkWithin("everyMs", everyMs, LEAST_EVERY_MS, Number.MAX_SAFE_INTEGER),
    ...{ time_zone: timeZone, start_at: null, end_at: null },
  };
  const timing = {
    ...always,
    start_at: startAt === undefined ? null : readTime("startAt", startAt),
    end_at: endAt === undefined ? null : readTime("endAt", endAt),
  };
  if (timing.end_at !== null && timing.end_at < (timing.start_at ?? 0))
    throw badArgument("endAt", "a time that is not before startAt", endAt);
  try {
    new Zone(timeZone);
  } catch {
    throw badArgument("timeZone", "a time zone that Node knows, such as Europe/Berlin", timeZone);
  }
  if (cron === undefined) return timing;
  checkText("cron", cron);
  if (!calendar.tells(timing))
    throw badArgument("options.cron", "the class Cron: schedules(runtime, { cron: Cron })", undefined);
  try {
    if (calendar.timesOf(always)(0) === null) throw new RangeError("no date does");
  } catch (error) {
    const expected = `a cron expression of five fields that dates match (${(error as Error).message})`;
    throw badArgument("cron", expected, cron);
  }
  return timing;
}
