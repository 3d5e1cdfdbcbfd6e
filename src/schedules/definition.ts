import type { Labels } from "../core/log.ts";
import { OPERATORS } from "../core/tenants.ts";
import {
  badArgument,
  checkCount,
  checkKey,
  checkKeys,
  checkObject,
  checkText,
  maxLengths,
  readTime,
} from "../runtime/agent/check.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { readInput } from "../runtime/agent/input.ts";
import { noLabels, readLabels } from "../runtime/agent/labels.ts";
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
   * {@link schedules}.
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
   * one. `all`: each has one. Default: `latest`.
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

/** Throws `invalid_argument`. */
export function checkId(id: unknown): asserts id is string {
  checkKey("id", id, MAX_ID);
}

/** Reads the tenant of a schedule. Throws `invalid_argument`. */
export function readTenant(tenant: unknown = ""): string {
  if (tenant !== "") checkKey("tenant", tenant, maxLengths.tenant);
  if (tenant === OPERATORS) throw badArgument("tenant", "a name that is not reserved", tenant);
  return tenant as string;
}

/** Reads what a schedule is to be. Throws `invalid_argument`. */
export function readDefinition(given: ScheduleDefinition, calendar: Calendar): Definition {
  checkNames("schedule", given, names);
  const { agent_name, version, cron, everyMs, timeZone = "UTC", overlap = "skip", missed = "latest" } = given;
  const { jitterMs = 0, startAt, endAt } = given;
  checkText("agent_name", agent_name);
  if (version !== undefined) checkKey("version", version, maxLengths.version);
  if ((cron === undefined) === (everyMs === undefined))
    throw badArgument("schedule", "either cron or everyMs", { cron, everyMs });
  if (cron !== undefined) checkText("cron", cron);
  if (everyMs !== undefined) checkWhole("everyMs", everyMs, LEAST_EVERY_MS);
  checkWhole("jitterMs", jitterMs, 0, LONGEST_JITTER_MS);
  checkChoice("overlap", overlap, ["skip", "queue", "cancel"]);
  checkChoice("missed", missed, ["skip", "latest", "all"]);
  const definition: Definition = {
    ...{ agent_name, version: version ?? null, input: readInput(given.input), overlap, missed, jitter_ms: jitterMs },
    labels: readLabels("labels", given.labels) ?? noLabels,
    timing: {
      ...{ cron: cron ?? null, every_ms: everyMs ?? null, time_zone: timeZone },
      start_at: startAt === undefined ? null : readTime("startAt", startAt),
      end_at: endAt === undefined ? null : readTime("endAt", endAt),
    },
  };
  if (!calendar.tells(definition.timing))
    throw badArgument("cron", "none without schedules(runtime, { cron: Cron })", cron);
  try {
    new Zone(timeZone);
    calendar.timesOf(definition.timing)(0);
  } catch (error) {
    const expected = `a cron expression of five fields, and a time zone (${(error as Error).message})`;
    throw badArgument("schedule", expected, { cron, timeZone });
  }
  return definition;
}

/** Throws `invalid_argument` unless a value is an object without unknown names. */
export function checkNames(name: string, value: object, known: readonly string[]): void {
  checkObject(name, value);
  checkKeys(name, value, known);
}

/** Throws `invalid_argument`. */
export function checkWhole(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  checkCount(name, value, least);
  if (value > most) throw badArgument(name, `a whole number from ${least} to ${most}`, value);
}

function checkChoice(name: string, value: string, choices: readonly string[]): void {
  if (!choices.includes(value)) throw badArgument(name, `one of ${choices.join(", ")}`, value);
}
