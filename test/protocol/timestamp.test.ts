import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { timestampSchema } from "../../src/protocol/timestamp.ts";
import { timestamp, utcTimestamp } from "./arbitraries.ts";
import { itAccepts, itRefuses } from "./tables.ts";

describe("a timestamp", () => {
  itAccepts(timestampSchema, [
    // As this service writes it.
    ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"],
    ["2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.5Z"],
    ["2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59.123456789Z"],
    // As other services write it.
    ["2026-11-21T22:05:10.5+00:00", "2026-11-21T22:05:10.5Z"],
    ["2026-11-21T22:05:10-00:00", "2026-11-21T22:05:10Z"],
    ["2026-11-21T22:05:10", "2026-11-21T22:05:10Z"],
    ["2026-11-21T22:05:10.123456", "2026-11-21T22:05:10.123456Z"],
    ["2026-11-21T22:05:10,123456+02:00", "2026-11-21T20:05:10.123456Z"],
    ["2026-11-21T22:05:10.1234567891-0330", "2026-11-22T01:35:10.1234567891Z"],
    ["2026-11-21T22:05+02", "2026-11-21T20:05:00Z"],
    ["2026-11-21T22:05Z", "2026-11-21T22:05:00Z"],
    ["2026-11-21t22:05:10z", "2026-11-21T22:05:10Z"],
    ["2027-01-01T00:30:00+01:00", "2026-12-31T23:30:00Z"],
    ["2024-02-28T23:30:00-01:00", "2024-02-29T00:30:00Z"],
    ["0001-01-01T00:00:00", "0001-01-01T00:00:00Z"],
    ["0099-12-31T23:30:00-01:00", "0100-01-01T00:30:00Z"],
    ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"],
  ]);
  itRefuses(
    timestampSchema,
    [
      "",
      "yesterday",
      "2026-01-31",
      "2026-01-31 12:00:00Z",
      "2026-01-31T24:00:00Z",
      "2026-01-31T12:60:00Z",
      "2026-01-31T12:00:61Z",
      "2026-01-31T12:00:00.Z",
      "2026-13-01T12:00:00Z",
      "2026-02-30T12:00:00Z",
      "2025-02-29T12:00:00Z",
      "2026-01-31T12:00:00+24:00",
      " 2026-01-31T12:00:00Z",
      "2026-01-31T12:00:00Z\n",
      // A leap second, and years that clients cannot parse.
      "2016-12-31T23:59:60Z",
      "0000-01-01T00:00:00Z",
      "0001-01-01T00:30:00+01:00",
      "9999-12-31T23:30:00-01:00",
      1_769_860_800,
      null,
    ].map((value) => [JSON.stringify(value), value, []]),
  );

  it("is the same time in the service's own form", () => {
    fc.assert(
      fc.property(timestamp, (text) => {
        const read = timestampSchema.parse(text);
        expect(read).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
        expect(Date.parse(read)).toBe(Date.parse(/(Z|[+-]\d\d:\d\d)$/.test(text) ? text : `${text}Z`));
        expect(/\.\d+/.exec(read)?.[0]).toBe(/\.\d+/.exec(text)?.[0]);
        expect(timestampSchema.parse(read)).toBe(read);
      }),
    );
  });

  it("equals the result of toISOString", () => {
    fc.assert(fc.property(utcTimestamp, (text) => timestampSchema.parse(text) === text));
  });
});
