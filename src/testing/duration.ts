import { badArgument } from "../runtime/agent/check.ts";

/** A length of time: milliseconds, or a number with its unit, such as `"250ms"`, `"90s"`, `"1.5h"` or `"24h"`. */
export type Duration = number | `${number}${DurationUnit}`;

type DurationUnit = keyof typeof millisecondsOf;

/** A point in time: a date, milliseconds since the epoch, or a text that `Date.parse` reads. */
export type Instant = Date | number | string;

const millisecondsOf = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** The length of time in milliseconds. Throws `invalid_argument` for an invalid one. */
export function readDuration(name: string, duration: unknown): number {
  const expected = 'milliseconds from 0 on, or a text such as "250ms", "90s", "5m", "24h" or "7d"';
  if (typeof duration === "number" && duration >= 0) return duration;
  const match = typeof duration === "string" ? /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(duration) : null;
  if (match === null) throw badArgument(name, expected, duration);
  const [, amount, unit] = match;
  return Number(amount) * millisecondsOf[unit as DurationUnit];
}

/** The point in time in milliseconds since the epoch. Throws `invalid_argument` for an invalid one. */
export function readInstant(name: string, instant: unknown): number {
  const time =
    instant instanceof Date ? instant.getTime() : typeof instant === "string" ? Date.parse(instant) : instant;
  if (typeof time === "number" && Number.isFinite(time)) return time;
  throw badArgument(name, "a valid date, milliseconds since the epoch, or a date as text", instant);
}

/** A length of time with its unit: `24h`, `1.5s`, `20ms`. */
export function writeDuration(milliseconds: number): string {
  const { ms, s, m, h, d } = millisecondsOf;
  const units: readonly (readonly [unit: string, size: number])[] = [
    ["d", d],
    ["h", h],
    ["m", m],
    ["s", s],
  ];
  for (const [unit, size] of units) {
    // "24h" reads better than "1d", and "90s" better than "1.5m".
    const isClear = milliseconds % size === 0 && milliseconds / size >= (unit === "d" ? 2 : 1);
    if (isClear) return `${milliseconds / size}${unit}`;
  }
  return milliseconds >= s ? `${milliseconds / s}s` : `${milliseconds / ms}ms`;
}
