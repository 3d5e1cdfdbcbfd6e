/*
 * An oracle of cron expressions and time zones, which shares no code with the library or the package that it uses: it goes
 * through all minutes of some years, and asks `Intl` what the clocks show.
 */

export const MINUTE_MS = 60_000;
const HALF_HOUR = 30;

/** All minutes from a moment on, by what the clocks of a zone show. */
export interface Minutes {
  readonly from: number;
  /** For each minute what the clocks show, in minutes since 1970 as if it were UTC. */
  readonly walls: Int32Array;
  /** The minutes, counted from the first one, before which the clocks were changed. */
  readonly changes: readonly number[];
}

/** Clocks are changed on full or half hours: between two that agree they do not change. */
export function minutesOf(timeZone: string, fromYear: number, toYear: number): Minutes {
  const from = Date.UTC(fromYear, 0, 1);
  const length = (Date.UTC(toYear, 0, 1) - from) / MINUTE_MS;
  const walls = new Int32Array(length);
  const changes: number[] = [];
  const format = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
  const shownAt = (minute: number): number =>
    Date.parse(`${format.format(from + minute * MINUTE_MS).replace(" ", "T")}Z`) / MINUTE_MS;
  for (let start = 0; start < length; start += HALF_HOUR) {
    const shown = shownAt(start);
    if (start > 0 && shown !== (walls[start - 1] ?? 0) + 1) changes.push(start);
    for (let minute = 0; minute < HALF_HOUR; minute++) walls[start + minute] = shown + minute;
  }
  return { from, walls, changes };
}

const ranges = [
  ...([
    [0, 59],
    [0, 23],
    [1, 31],
    [1, 12],
    [0, 6],
  ] as const),
] as const;
const monthNames = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const dayNames = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

function numberOf(text: string, field: number): number {
  const name = text.toLowerCase();
  if (field === 3 && monthNames.includes(name)) return monthNames.indexOf(name) + 1;
  if (field === 4 && dayNames.includes(name)) return dayNames.indexOf(name);
  return Number(text);
}

function valuesOf(text: string, field: number): ReadonlySet<number> {
  const [least, most] = ranges[field] ?? [0, 0];
  const values = new Set<number>();
  for (const part of text.split(",")) {
    const [range = "", step = "1"] = part.split("/");
    const [first, last = part.includes("/") ? String(most) : first] =
      range === "*" ? [String(least), String(most)] : range.split("-");
    for (let value = numberOf(first ?? "", field); value <= numberOf(last ?? "", field); value += Number(step))
      values.add(field === 4 && value === 7 ? 0 : value);
  }
  return values;
}

const DAY = 1_440;

/** Whether an expression of five fields has a minute, which is given in minutes since 1970. */
function matcherOf(expression: string): (minute: number) => boolean {
  const fields = expression.split(" ");
  const [minutes, hours, days, months, weekdays] = fields.map(valuesOf);
  const isAnyDay = fields[2]?.startsWith("*") === true;
  const isAnyWeekday = fields[4]?.startsWith("*") === true;
  const hasDate = (day: number): boolean => {
    const date = new Date(day * DAY * MINUTE_MS);
    if (months?.has(date.getUTCMonth() + 1) !== true) return false;
    const byDay = days?.has(date.getUTCDate()) === true;
    const byWeekday = weekdays?.has(date.getUTCDay()) === true;
    return isAnyDay || isAnyWeekday ? byDay && byWeekday : byDay || byWeekday;
  };
  // All minutes of years are asked for: those of a day are told once, and each day when it begins.
  const ofDay = Array.from(
    { length: DAY },
    (_, minute) => minutes?.has(minute % 60) === true && hours?.has(Math.floor(minute / 60)) === true,
  );
  let [day, isDay] = [Number.NaN, false];
  return (minute) => {
    if (ofDay[minute % DAY] !== true) return false;
    const asked = Math.floor(minute / DAY);
    if (asked !== day) [day, isDay] = [asked, hasDate(asked)];
    return isDay;
  };
}

/**
 * The times of an expression, in milliseconds: the minutes at which the clocks show one of its wall times for the first time,
 * or have skipped one since the minute before.
 */
export function timesOf(expression: string, { from, walls }: Minutes): readonly number[] {
  const has = matcherOf(expression);
  const times: number[] = [];
  let shown = (walls[0] ?? 0) - 1;
  for (let minute = 0; minute < walls.length; minute++) {
    const wall = walls[minute] ?? 0;
    let isTime = false;
    for (let passed = shown + 1; passed <= wall && !isTime; passed++) isTime = has(passed);
    if (isTime) times.push(from + minute * MINUTE_MS);
    shown = Math.max(shown, wall);
  }
  return times;
}
