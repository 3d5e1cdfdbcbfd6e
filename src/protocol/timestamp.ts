import * as z from "zod";
import { deferred } from "./registry.ts";

const calendarDate = z.regexes.date;
const timeWithZone =
  /^[Tt](?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60)(?:[.,]\d+)?)?(?:[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)$/;
const utcDateTime = z.regexes.datetime({});

/**
 * A point in time as others write it: an ISO 8601 date-time with a zone, in any precision. It stays the string that came,
 * so that no digit of it gets lost.
 */
export const timestampSchema: z.ZodType<string, string> = deferred({ format: "date-time" }, () =>
  z
    .string()
    .refine(
      (text) => calendarDate.test(text.slice(0, 10)) && timeWithZone.test(text.slice(10)),
      "expected an ISO 8601 date-time with a zone, such as 2026-01-31T12:00:00Z",
    ),
);

/** A point in time as the service writes it: an ISO 8601 date-time in UTC that ends in `Z`, the only form that every ACP 1.0 client reads. */
export const utcTimestampSchema: z.ZodType<string, string> = deferred({ format: "date-time" }, () =>
  z
    .string()
    .refine((text) => utcDateTime.test(text), "expected an ISO 8601 date-time in UTC, such as 2026-01-31T12:00:00Z"),
);
