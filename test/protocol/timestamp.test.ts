import fc from "fast-check";
import { describe, it } from "vitest";
import { timestampSchema, utcTimestampSchema } from "../../src/protocol/timestamp.ts";
import { timestamp, utcTimestamp } from "./arbitraries.ts";
import { itAccepts, itRefuses } from "./tables.ts";

const inUtc = [
  "2026-01-31T12:00:00Z",
  "2026-01-31T12:00:00.5Z",
  "2026-01-31T12:00:00.123456789Z",
  "2024-02-29T23:59:59Z",
];

const withOtherZoneOrForm = [
  "2026-01-31T12:00:00+00:00",
  "2026-01-31T12:00:00.123456+05:30",
  "2026-01-31T12:00:00-0330",
  "2026-01-31T12:00:00+02",
  "2026-01-31T12:00Z",
  "2026-01-31T12:00:00,5Z",
  "2026-01-31t12:00:00z",
  "2016-12-31T23:59:60Z",
];

const neither = [
  "",
  "yesterday",
  "2026-01-31",
  "2026-01-31T12:00:00",
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
  1_769_860_800,
  null,
];

describe("a timestamp of others", () => {
  itAccepts(
    timestampSchema,
    [...inUtc, ...withOtherZoneOrForm].map((text) => [text, text]),
  );
  itRefuses(
    timestampSchema,
    neither.map((value) => [JSON.stringify(value), value, []]),
  );

  it("stays the string that it was", () => {
    fc.assert(fc.property(timestamp, (text) => timestampSchema.parse(text) === text));
  });
});

describe("a timestamp of the service", () => {
  itAccepts(
    utcTimestampSchema,
    inUtc.map((text) => [text, text]),
  );
  itRefuses(
    utcTimestampSchema,
    [...withOtherZoneOrForm, ...neither].map((value) => [JSON.stringify(value), value, []]),
  );

  it("is what toISOString makes", () => {
    fc.assert(fc.property(utcTimestamp, (text) => utcTimestampSchema.parse(text) === text));
  });
});
