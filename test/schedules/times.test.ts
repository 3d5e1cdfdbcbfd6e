import { Cron } from "croner";
import { describe, expect, it } from "vitest";
import { Calendar } from "../../src/schedules/times.ts";
import { oneOf } from "../harness/share.ts";
import type { Minutes } from "./oracle.ts";
import { MINUTE_MS, minutesOf, timesOf } from "./oracle.ts";

/* The times of cron expressions in time zones, compared with an oracle over all minutes of two years. */

const [FROM_YEAR, TO_YEAR] = [2025, 2027];
const DAY_MS = 86_400_000;
/** Up to so many times of an expression are compared one by one; of others those around each change of the clocks. */
const MOST = 3_000;

const zones = [
  { zone: "America/New_York", changes: 4, why: "an hour, at 2 o'clock" },
  { zone: "Australia/Lord_Howe", changes: 4, why: "half an hour" },
  { zone: "Africa/Cairo", changes: 4, why: "at midnight" },
  { zone: "Europe/Dublin", changes: 4, why: "an hour, at 1 o'clock" },
  { zone: "Asia/Kolkata", changes: 0, why: "none, half an hour off" },
];

const minutes = ["*", "0", "30", "*/15", "59", "7,37", "0-9", "5-59/20"];
const hours = ["*", "0", "1", "2", "1-3", "*/2", "23", "0,1,2,3"];
const dates = [
  "* * *",
  "* * 0",
  "1 * *",
  "13 * 5",
  "* mar,apr,oct,nov *",
  "29 2 *",
  "25-31 * sun",
  "* * 1-5",
  "31 * *",
  "*/2 * *",
];

/** A hundred expressions, of which each part is in ten or more. */
const expressions = Array.from(
  { length: 100 },
  (_, index) => `${minutes[index % 8]} ${hours[(index * 3 + Math.floor(index / 8)) % 8]} ${dates[index % 10]}`,
);

function windowsOf(all: Minutes, times: readonly number[]): readonly (readonly [from: number, until: number])[] {
  const until = all.from + all.walls.length * MINUTE_MS;
  if (times.length <= MOST) return [[all.from, until]];
  const middles = [...all.changes.map((change) => all.from + change * MINUTE_MS), all.from + 200 * DAY_MS];
  return middles.map((at) => [at - DAY_MS / 2, at + DAY_MS / 2] as const);
}

describe.each(zones)("$zone, whose clocks are changed by $why", ({ zone, changes }) => {
  const all = minutesOf(zone, FROM_YEAR, TO_YEAR);
  const calendar = new Calendar();
  calendar.cron = Cron;

  it("is a zone as it is described", () => {
    expect(all.changes).toHaveLength(changes);
  });

  it("has a time for each minute of the oracle, and no other", () => {
    expect(new Set(expressions).size).toBe(100);
    for (const cron of oneOf(4, expressions)) {
      const times = timesOf(cron, all);
      const next = calendar.timesOf({ cron, every_ms: null, time_zone: zone, start_at: null, end_at: null });
      for (const [from, until] of windowsOf(all, times)) {
        const found: number[] = [];
        for (let time = next(from - 1); time !== null && time < until; time = next(time)) found.push(time);
        const wanted = times.filter((time) => time >= from && time < until);
        expect([cron, found.map(text)]).toEqual([cron, wanted.map(text)]);
      }
    }
  });

  it("has the same next time from each minute around a change", () => {
    const cron = "*/10 0-3 * * *";
    const times = timesOf(cron, all);
    const next = calendar.timesOf({ cron, every_ms: null, time_zone: zone, start_at: null, end_at: null });
    for (const change of all.changes)
      for (let minute = change - 200; minute < change + 200; minute++) {
        const at = all.from + minute * MINUTE_MS + 17;
        expect([text(at), text(next(at) ?? 0)]).toEqual([text(at), text(times.find((time) => time > at) ?? 0)]);
      }
  });
});

it("has times on both sides of a day that a zone skips", () => {
  const calendar = new Calendar();
  calendar.cron = Cron;
  const next = calendar.timesOf({
    cron: "0 12 * * *",
    every_ms: null,
    time_zone: "Pacific/Apia",
    start_at: null,
    end_at: null,
  });
  const first = next(Date.parse("2011-12-29T00:00:00Z"));
  expect(text(first ?? 0)).toBe("2011-12-29T22:00:00.000Z");
  const second = next(first ?? 0);
  // The 30th was skipped: its time is the begin of the 31st.
  expect(text(second ?? 0)).toBe("2011-12-30T10:00:00.000Z");
  expect(text(next(second ?? 0) ?? 0)).toBe("2011-12-30T22:00:00.000Z");
});

function text(at: number): string {
  return new Date(at).toISOString();
}
