import * as z from "zod";
import { deferred } from "./registry.ts";

const timeAndZone =
  /[Tt]((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:[.,](\d+))?)?(?:[Zz]|([+-])([01]\d|2[0-3])(?::?([0-5]\d))?)?/;
/** The pattern of a date without its `^` and `$`. */
const dateTime = new RegExp(`^(${z.regexes.date.source.slice(1, -1)})${timeAndZone.source}$`);

const EXPECTED = "expected an ISO 8601 date-time such as 2026-01-31T12:00:00Z";

/**
 * A point in time: RFC 3339 in UTC, ending in `Z`, the only form that every client of ACP 1.0 reads. It is read from
 * any ISO 8601 date-time of the years 1 to 9999: an offset is converted, a missing zone is UTC, and all digits of a
 * fraction are kept.
 */
export const timestampSchema: z.ZodType<string, string> = deferred(
  { id: "Timestamp", description: "A point in time.", format: "date-time", pattern: dateTime.source },
  () =>
    z.string().transform((text, context) => {
      const time = utcTime(text);
      if (time !== undefined) return time;
      context.issues.push({ code: "custom", message: EXPECTED, input: text });
      return z.NEVER;
    }),
);

/** A date-time in UTC; undefined for a text that is none, for a leap second and for a year that clients cannot read. */
function utcTime(text: string): string | undefined {
  const match = dateTime.exec(text);
  if (match === null) return undefined;
  const [, date = "", time = "", seconds = "00", fraction, sign, hours = "0", minutes = "0"] = match;
  const rest = `:${seconds}${fraction === undefined ? "" : `.${fraction}`}Z`;
  const offset = 60 * Number(hours) + Number(minutes);
  const minute = offset === 0 ? `${date}T${time}` : shift(`${date}T${time}`, sign === "+" ? -offset : offset);
  return /^(?!0000)\d{4}-/.test(minute) ? minute + rest : undefined;
}

/**
 * A time to the minute, shifted by so many minutes. Offsets have no seconds, so seconds and fractions stay as written.
 */
function shift(minute: string, minutes: number): string {
  const moved = new Date(Date.parse(`${minute}:00Z`) + 60_000 * minutes);
  return moved.toISOString().slice(0, -":00.000Z".length);
}
