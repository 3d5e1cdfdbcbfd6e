import { sameJson } from "../core/json.ts";
import type { Labels } from "../core/log.ts";
import { encoded } from "../core/tenants.ts";
import type { Message } from "../protocol/message.ts";
import { SeededRandom } from "../runtime/execution/random.ts";
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

/** All times of a timing that are later than `after` and not later than `until`. */
export interface Span {
  readonly timing: Timing;
  readonly after: number;
  readonly until: number;
}

/** The state of a schedule. It changes only by the functions below. */
export interface ScheduleState {
  readonly tenant: string;
  readonly id: string;
  /** Null before the first `put`. */
  readonly definition: Definition | null;
  readonly is_paused: boolean;
  /** Up to here it is decided of each time whether it is to have a run. It never goes back. */
  readonly decided_until: number;
  /** Which times are to have runs, in their order. */
  readonly times: readonly Span[];
  /** Which triggers are to have runs, in the order in which they were sent. */
  readonly triggers: readonly { readonly key: string; readonly at: number }[];
  /** When to try again to create the run that is due first, and after which pause; null: at once. */
  readonly again: { readonly at: number; readonly pauseMs: number } | null;
  /** The run that was created last. */
  readonly last: { readonly time: number; readonly run_id: string } | null;
  /** The last time that got no run because the run before had not ended. */
  readonly skipped: number | null;
  /** The last refusal, unless a run was created since. */
  readonly refused: Refusal | null;
  readonly put_at: number;
}

/** Why a run could not be created. */
export interface Refusal {
  readonly time: number;
  readonly code: string;
  readonly message: string;
}

/** A run that is to be created. */
export interface Due {
  /** The time that it is for; for a trigger, when that was sent. */
  readonly time: number;
  /** The key of the trigger. Undefined: a time of the schedule. */
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

export function newSchedule(tenant: string, id: string): ScheduleState {
  return {
    ...{ tenant, id, definition: null, is_paused: false, decided_until: 0, times: [], triggers: [], again: null },
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

/** The state after a command, when it is decided of all times before. What it has already changes nothing. */
export function applied(state: ScheduleState, command: Command, at: number): ScheduleState {
  if (command.type === "trigger") return { ...state, triggers: [...state.triggers, { key: command.key, at }] };
  if (command.type !== "put") return { ...state, is_paused: command.type === "pause" };
  const { definition } = command;
  return sameJson(state.definition, definition) ? state : { ...state, definition, put_at: at, again: null };
}

/** Decides now which of the times until a moment are to have runs. What comes while it is paused has none. */
function decided(calendar: Calendar, state: ScheduleState, until: number, now: number): ScheduleState {
  const { definition, decided_until: after, is_paused, times } = state;
  if (until <= after) return state;
  const isOff = definition === null || is_paused;
  return {
    ...state,
    times: isOff ? times : timesWith(calendar, times, definition, { after, until }, now),
    decided_until: until,
  };
}

/** Times that are not missed have runs, whatever `missed` says. */
function timesWith(
  calendar: Calendar,
  times: readonly Span[],
  { timing, missed, jitter_ms }: Definition,
  { after: from, until }: Omit<Span, "timing">,
  now: number,
): readonly Span[] {
  const next = calendar.timesOf(timing);
  const isIn = (time: number | null): time is number => time !== null && time <= until;
  const first = next(from);
  if (!isIn(first)) return times;
  let after = from;
  const missedBefore = now - MISSED_AFTER_MS - jitter_ms;
  if (first < missedBefore && missed !== "all") {
    after = missedBefore - 1;
    if (!isIn(next(after))) {
      if (missed === "skip") return times;
      after = (lastTime(next, from, until) ?? until) - 1;
    }
  }
  const end = times.at(-1);
  const isLonger = end !== undefined && end.until === after && sameJson(end.timing, timing);
  return isLonger ? [...times.slice(0, -1), { ...end, until }] : [...times, { timing, after, until }];
}

/** What the schedule does next. */
export function decideNext(calendar: Calendar, given: ScheduleState, now: number): Next {
  const state = decided(calendar, given, now, now);
  const { definition, is_paused, decided_until, again } = state;
  if (definition === null) return { state, wakeAt: NEVER };
  const { due, at } = firstOf(calendar, state);
  const dueAt = Math.max(at, again?.at ?? 0);
  if (dueAt <= now) return { state, due, wakeAt: now };
  const time = is_paused ? null : calendar.timesOf(definition.timing)(decided_until);
  return { state, wakeAt: Math.min(dueAt, laterBy(state, time)) };
}

/** The run that is due first. A trigger does not wait for times that are still to come. While paused, only triggers have runs. */
function firstOf(calendar: Calendar, state: ScheduleState): { readonly due?: Due; readonly at: number } {
  const [trigger] = state.triggers;
  const [span] = state.is_paused ? [] : state.times;
  const time = span === undefined ? null : (calendar.timesOf(span.timing)(span.after) ?? span.until);
  const at = laterBy(state, time);
  if (trigger !== undefined && trigger.at < at)
    return { due: { time: trigger.at, trigger: trigger.key }, at: trigger.at };
  return time === null ? { at } : { due: { time }, at };
}

/** When the run of a time is created: always as much later for the same time, whatever process creates it. */
function laterBy({ tenant, id, definition }: ScheduleState, time: number | null): number {
  const jitterMs = definition?.jitter_ms ?? 0;
  if (time === null) return NEVER;
  if (jitterMs === 0) return time;
  return time + Math.floor(new SeededRandom(encoded(tenant, id, String(time))).number() * (jitterMs + 1));
}

/** The state after a run was to be created, now. */
export function fired(calendar: Calendar, state: ScheduleState, due: Due, result: Fired, now: number): ScheduleState {
  const { time } = due;
  const pauseMs = Math.min(2 * (state.again?.pauseMs ?? FIRST_PAUSE_MS / 2), LONGEST_PAUSE_MS);
  const later = { ...state, again: { at: now + pauseMs, pauseMs } };
  const over = { ...without(calendar, state, due), again: null };
  if ("run_id" in result) return { ...over, last: { time, run_id: result.run_id }, refused: null };
  if ("before" in result) return result.before === "queued" ? later : { ...over, skipped: time };
  const { code, message, again } = result;
  return { ...(again ? later : over), refused: { time, code, message } };
}

/** The state without the run that was due first. */
function without(calendar: Calendar, state: ScheduleState, { time, trigger }: Due): ScheduleState {
  if (trigger !== undefined) return { ...state, triggers: state.triggers.slice(1) };
  const [span, ...rest] = state.times;
  if (span === undefined) return state;
  const next = calendar.timesOf(span.timing)(time);
  const isOver = next === null || next > span.until;
  return { ...state, times: isOver ? rest : [{ ...span, after: time }, ...rest] };
}

/** The next times, at most `count`; for a paused schedule, as if it went on now. */
export function nextTimes(
  calendar: Calendar,
  { definition, decided_until }: ScheduleState,
  now: number,
  count: number,
): readonly number[] {
  const times: number[] = [];
  if (definition === null) return times;
  const next = calendar.timesOf(definition.timing);
  let time = next(Math.max(now, decided_until));
  for (; time !== null && times.length < count; time = next(time)) times.push(time);
  return times;
}
