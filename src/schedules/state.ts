import { sameJson } from "../core/json.ts";
import type { Labels } from "../core/log.ts";
import type { Message } from "../protocol/message.ts";
import { namedUuid } from "../runtime/agent/uuid.ts";
import type { Calendar, Timing } from "./times.ts";
import { lastTime } from "./times.ts";

/** What a schedule creates, and when. */
export interface Definition {
  readonly timing: Timing;
  readonly agent_name: string;
  /** Null: the version that new runs of the name use. */
  readonly version: string | null;
  readonly input: readonly Message[];
  readonly overlap: "skip" | "queue" | "cancel";
  readonly missed: "skip" | "latest" | "all";
  readonly jitter_ms: number;
  readonly labels: Labels;
}

/** What a schedule is told. Each takes effect at the time at which it was sent. */
export type Command =
  | { readonly type: "put"; readonly definition: Definition }
  | { readonly type: "pause" | "resume" }
  /** `key` tells it from other triggers. */
  | { readonly type: "trigger"; readonly key: string };

/** What waits to be created: all times of a timing that are later than `after` and not later than `until`; or a trigger. */
export type Waiting =
  | { readonly timing: Timing; readonly after: number; readonly until: number }
  | { readonly trigger: string; readonly at: number };

/** The state of a schedule. It changes only by the functions below. */
export interface ScheduleState {
  readonly tenant: string;
  readonly id: string;
  /** Null before the first `put`. */
  readonly definition: Definition | null;
  readonly is_paused: boolean;
  /** Up to here it is decided of each time whether it is to have a run. It never goes back. */
  readonly decided_until: number;
  /** What is to have a run, in the order in which the runs are created. */
  readonly line: readonly Waiting[];
  /** When to try again to create the first run of the line, and after which pause; null: at once. */
  readonly again: { readonly at: number; readonly pauseMs: number } | null;
  /** The run that was created last. */
  readonly last: { readonly time: number; readonly run_id: string } | null;
  /** The last time that got no run because the run before had not ended. */
  readonly skipped: number | null;
  /** The last refusal. */
  readonly refused: Refusal | null;
  readonly put_at: number;
}

/** Why a run could not be created. */
export interface Refusal {
  readonly time: number;
  readonly code: string;
  readonly message: string;
}

/** A run that is to be created now. */
export interface Due {
  /** The time that it is for; for a trigger, when that was sent. */
  readonly time: number;
  /** Undefined: a time of the schedule. */
  readonly trigger?: string;
}

/** What became of a run that was to be created. */
export type Fired =
  | { readonly run_id: string }
  /** The run before has not ended. `queued`: the time waits for its end. */
  | { readonly before: "skipped" | "queued" }
  /** `again`: it may be created later. */
  | { readonly code: string; readonly message: string; readonly again: boolean };

/** What a schedule does next. */
export interface Next {
  /** Its state when it has decided of all times until now. */
  readonly state: ScheduleState;
  /** A run that is to be created now. */
  readonly due?: Due | undefined;
  /** When it has something to do: `Infinity` where it waits for commands alone. */
  readonly wakeAt: number;
}

/** A time is missed if the schedule comes to it later than this, in milliseconds. */
const MISSED_AFTER_MS = 60_000;
/** The pauses between two looks at a run that has not ended, or two tries to create one, in milliseconds. They double. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
const NEVER = Number.POSITIVE_INFINITY;
/** The namespace of the names by which runs are created later. It must never change. */
const JITTER = "5f0c7d0e-52b5-4a47-8d7c-6c1f3c1c9a44";

export function newSchedule(tenant: string, id: string): ScheduleState {
  return {
    ...{ tenant, id, definition: null, is_paused: false, decided_until: 0, line: [], again: null },
    ...{ last: null, skipped: null, refused: null, put_at: 0 },
  };
}

/** The state after a command that was sent at a time, and is taken now. */
export function commanded(
  calendar: Calendar,
  state: ScheduleState,
  command: Command,
  sentAt: number,
  now: number,
): ScheduleState {
  const at = Math.max(state.decided_until, Math.min(sentAt, now));
  // What came before is decided by what held before.
  return applied(decided(calendar, state, at, now), command, at);
}

/** The state after a command, when it is decided of all times before. */
export function applied(state: ScheduleState, command: Command, at: number): ScheduleState {
  const { type } = command;
  if (type === "put") return { ...state, definition: command.definition, put_at: at, again: null };
  if (type === "trigger") return { ...state, line: [...state.line, { trigger: command.key, at }] };
  return { ...state, is_paused: type === "pause" };
}

/** Decides now which of the times until a moment are to have runs. What comes while it is paused has none. */
function decided(calendar: Calendar, state: ScheduleState, until: number, now: number): ScheduleState {
  const { definition, decided_until: from } = state;
  if (until <= from) return state;
  const line =
    definition === null || state.is_paused
      ? state.line
      : lineWith(calendar, state.line, definition, { from, until, now });
  return { ...state, line, decided_until: until };
}

function lineWith(
  calendar: Calendar,
  line: readonly Waiting[],
  { timing, missed, jitter_ms }: Definition,
  { from, until, now }: { readonly from: number; readonly until: number; readonly now: number },
): readonly Waiting[] {
  const next = calendar.timesOf(timing);
  const first = next(from);
  if (first === null || first > until) return line;
  let after = from;
  const missedUntil = now - MISSED_AFTER_MS - jitter_ms;
  if (first < missedUntil && missed !== "all") {
    after = missed === "skip" ? missedUntil - 1 : (lastTime(next, from, until) ?? until) - 1;
    const kept = next(after);
    if (kept === null || kept > until) return line;
  }
  const end = line.at(-1);
  const isLonger = end !== undefined && "timing" in end && end.until === after && sameJson(end.timing, timing);
  return isLonger ? [...line.slice(0, -1), { ...end, until }] : [...line, { timing, after, until }];
}

/** What the schedule does next. */
export function decideNext(calendar: Calendar, given: ScheduleState, now: number): Next {
  const state = decided(calendar, given, now, now);
  const { definition, is_paused, decided_until, again } = state;
  if (definition === null) return { state, wakeAt: NEVER };
  const due = firstOf(calendar, state);
  const dueAt = due === undefined ? NEVER : Math.max(due.time + delayOf(state, due), again?.at ?? 0);
  if (dueAt <= now) return { state, due, wakeAt: now };
  const time = is_paused ? null : calendar.timesOf(definition.timing)(decided_until);
  return { state, wakeAt: Math.min(dueAt, time === null ? NEVER : time + delayOf(state, { time })) };
}

/** The first run of the line. While the schedule is paused, only triggers have runs. */
function firstOf(calendar: Calendar, { line, is_paused }: ScheduleState): Due | undefined {
  const first = is_paused ? line.find((one) => "trigger" in one) : line[0];
  if (first === undefined) return undefined;
  if ("trigger" in first) return { time: first.at, trigger: first.trigger };
  return { time: calendar.timesOf(first.timing)(first.after) ?? first.until };
}

/** By how much the run of a time is created later: the same for the same time, whatever process creates it. */
function delayOf({ tenant, id, definition }: ScheduleState, { time, trigger }: Due): number {
  const jitterMs = definition?.jitter_ms ?? 0;
  if (jitterMs === 0 || trigger !== undefined) return 0;
  const digits = namedUuid(JITTER, `${tenant}\n${id}\n${time}`).slice(0, 8);
  return Math.floor((Number.parseInt(digits, 16) / 2 ** 32) * (jitterMs + 1));
}

/** The state after a run was to be created, now. */
export function fired(calendar: Calendar, state: ScheduleState, due: Due, result: Fired, now: number): ScheduleState {
  const { time } = due;
  const pauseMs = Math.min(2 * (state.again?.pauseMs ?? FIRST_PAUSE_MS / 2), LONGEST_PAUSE_MS);
  const again = { at: now + pauseMs, pauseMs };
  const over = { ...without(calendar, state, due), again: null };
  if ("run_id" in result) return { ...over, last: { time, run_id: result.run_id } };
  if ("before" in result) return result.before === "queued" ? { ...state, again } : { ...over, skipped: time };
  const { code, message } = result;
  return { ...(result.again ? { ...state, again } : over), refused: { time, code, message } };
}

/** The state without a run that was the first of its line. */
function without(calendar: Calendar, state: ScheduleState, { time, trigger }: Due): ScheduleState {
  if (trigger !== undefined)
    return { ...state, line: state.line.filter((one) => !("trigger" in one && one.trigger === trigger)) };
  const [first, ...rest] = state.line;
  if (first === undefined || "trigger" in first) return state;
  const next = calendar.timesOf(first.timing)(time);
  const isOver = next === null || next > first.until;
  return { ...state, line: isOver ? rest : [{ ...first, after: time }, ...rest] };
}

/** The next times, at most `count`, of what waits and of what comes; for a paused schedule, as if it went on now. */
export function nextTimes(calendar: Calendar, state: ScheduleState, now: number, count: number): readonly number[] {
  const { definition, decided_until } = state;
  if (definition === null || !calendar.tells(definition.timing)) return [];
  const next = calendar.timesOf(definition.timing);
  const times: number[] = [];
  let time = next(Math.max(now, decided_until));
  for (; time !== null && times.length < count; time = next(time)) times.push(time);
  return times;
}
