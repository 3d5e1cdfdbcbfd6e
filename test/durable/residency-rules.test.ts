import { describe, expect, it } from "vitest";
import type { Activity, ResidencyFacts, ResidencyRule } from "../../src/durable/recovery/residency-rules.ts";
import { activityOf, ruleFor } from "../../src/durable/recovery/residency-rules.ts";

const idle: ResidencyFacts = {
  isInStep: false,
  subRuns: [],
  checks: 0,
  isReplaying: false,
  isOverdue: false,
  isSettled: true,
};

describe("What a waiting run does in its process", () => {
  it.each<[what: string, facts: Partial<ResidencyFacts>, activity: Activity]>([
    ["nothing", {}, "idle"],
    ["the body of a step runs", { isInStep: true }, "working"],
    ["a sub-run is at work", { subRuns: ["idle", "at work"] }, "working"],
    ["a sub-run is at work, and another one is sought", { subRuns: ["sought", "at work"] }, "working"],
    ["a sub-run waits", { subRuns: ["idle"] }, "idle"],
    ["a sub-run is sought", { subRuns: ["sought"] }, "expecting"],
    ["what it waits for is checked", { checks: 1 }, "expecting"],
    ["its agent is replayed", { isReplaying: true }, "expecting"],
    ["its question has expired", { isOverdue: true }, "expecting"],
    ["its agent may still begin something", { isSettled: false }, "settling"],
    ["its agent may still begin something, and is replayed", { isSettled: false, isReplaying: true }, "expecting"],
    ["all of it", { isInStep: true, checks: 2, isReplaying: true, isOverdue: true, isSettled: false }, "working"],
  ])("%s", (_what, facts, activity) => {
    expect(activityOf({ ...idle, ...facts })).toBe(activity);
  });
});

describe("What is done with a waiting run", () => {
  it.each<[activity: Activity, rule: ResidencyRule]>([
    ["working", { claims: true, keeps: true, evicts: false }],
    ["expecting", { claims: false, keeps: true, evicts: false }],
    ["settling", { claims: false, keeps: true, evicts: true }],
    ["idle", { claims: false, keeps: false, evicts: true }],
  ])("that is %s", (activity, rule) => {
    expect(ruleFor(activity)).toEqual(rule);
  });
});
