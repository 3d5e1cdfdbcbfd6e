import type { Entry, RunHead } from "cadenza/store";
import { describe, expect, it } from "vitest";
import type {
  Activity,
  ResidencyFacts,
  ResidencyRule,
  Situation,
} from "../../../src/durable/recovery/keeping-owners.ts";
import { activities, activityOf, situations } from "../../../src/durable/recovery/keeping-owners.ts";
import type { HeadFacts } from "../../../src/durable/recovery/leased-head.ts";
import { LeasedHead } from "../../../src/durable/recovery/leased-head.ts";
import type { Mismatch } from "../../harness/internals.ts";
import { asked, created, ended, fold, logs, part, received, resumed, started, T0 } from "../../harness/logs.ts";

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
    ["only a newer version can read a sub-run", { subRuns: ["unreadable"] }, "idle"],
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
    expect(activities[activity]).toEqual(rule);
  });
});

const ME = "this-process";
const TAKEN = T0 + 5;
const DEADLINE = T0 + 1_000;
const START = T0 + 500;
const mismatch: Mismatch = { position: 1, expected: "ask#1", asked: "the agent returned" };

const atWork: HeadFacts = {
  isIdle: false,
  isAtWork: false,
  hasSubRuns: false,
  slot: undefined,
  mayLeave: false,
  decided: 0,
  deadline: DEADLINE,
};
const idleHere: Partial<HeadFacts> = { isIdle: true, mayLeave: true };
const queued = { isQueued: true, hasQueuedBodies: false, isKept: false };
const slot = { ...queued, isQueued: false };
const kept = { ...slot, isKept: true };

const mine: RunHead = {
  status: "in-progress",
  epoch: 4,
  owner: ME,
  due_at: TAKEN,
  blocked: null,
  holds_slot: false,
  finished_at: null,
  takeovers: 0,
};
const holding: RunHead = { ...mine, holds_slot: true };
const unowned: RunHead = { ...mine, status: "awaiting", owner: null, due_at: DEADLINE };

const emits: Entry = { type: "emitted", at: T0 + 20, kind: "part", part: part("text") };
const begins: Entry = { type: "intent", at: T0 + 20, key: "step#1", attempt: 1, run_id: null };
const startsLater = created({ start_at: START });

interface Write {
  /** The whole log; of it, so many entries from its end are written. */
  readonly log: readonly Entry[];
  readonly written: number;
  readonly before: RunHead | undefined;
  readonly facts?: Partial<HeadFacts>;
  readonly is?: undefined | readonly ("full" | "releasing" | "taken over" | "sound" | "release")[];
  readonly blocked?: Mismatch;
}

/** The owner, `due_at`, the slot and the epoch of the head that the write leaves. `-`: the head stays the same. */
type Left = readonly [owner: "me" | "none", due_at: number | null, holds_slot: boolean, epoch: number] | "-";

const rows: readonly (readonly [Situation, what: string, Write, Left])[] = [
  ["ended", "with its owner", { log: logs.completed, written: 1, before: mine }, ["none", null, false, 5]],
  ["ended", "with a slot", { log: logs.failed, written: 1, before: holding, facts: { slot } }, ["none", null, false, 5]],
  ["ended", "without an owner", { log: logs.cancelled, written: 1, before: unowned }, ["none", null, false, 6]],
  ["ended", "in its first write", { log: [created(), started, ended("completed")], written: 3, before: undefined }, ["none", null, false, 1]],
  ["blocked", "while it works", { log: logs["in-progress"], written: 0, before: holding, facts: { slot }, blocked: mismatch }, ["none", null, false, 5]],
  ["blocked", "while it waits", { log: logs.awaiting, written: 0, before: unowned, facts: idleHere, blocked: mismatch }, ["none", null, false, 5]],
  ["blocked", "in the queue", { log: logs["in-progress"], written: 0, before: mine, facts: { slot: queued }, blocked: mismatch }, ["none", null, false, 5]],
  ["asking", "at its begin", { log: logs.created, written: 1, before: undefined, facts: { slot: queued } }, ["me", null, true, 0]],
  ["asking", "to go on", { log: [...logs.awaiting, resumed("ask#1")], written: 1, before: unowned, facts: { slot: queued } }, ["me", null, true, 5]],
  ["asking", "for a step beside a question", { log: logs.awaiting, written: 0, before: mine, facts: { slot: { ...queued, hasQueuedBodies: true } } }, ["me", TAKEN, true, 4]],
  ["working", "with more to write before it waits", { log: logs["in-progress"], written: 1, before: mine, facts: { ...idleHere, decided: 99 } }, "-"],
  ["inLine", "with more to write before it leaves", { log: logs["in-progress"], written: 0, before: mine, facts: { slot: queued, mayLeave: true, decided: 99 }, is: ["full"] }, "-"],
  ["inLine", "with a step at work", { log: logs["in-progress"], written: 0, before: mine, facts: { slot: queued }, is: ["full"] }, "-"],
  ["queueing", "with nothing at work", { log: logs["in-progress"], written: 0, before: mine, facts: { slot: queued, mayLeave: true }, is: ["full"] }, ["none", null, false, 5]],
  ["queueing", "with entries", { log: [...logs["in-progress"], emits], written: 1, before: mine, facts: { slot: queued, mayLeave: true }, is: ["full"] }, ["none", null, false, 4]],
  ["queueing", "whatever it waits for", { log: logs.awaiting, written: 0, before: { ...mine, status: "awaiting" }, facts: { slot: { ...queued, hasQueuedBodies: true }, mayLeave: true }, is: ["full"] }, ["none", null, false, 5]],
  ["later", "when it is accepted", { log: [startsLater], written: 1, before: undefined }, ["none", START, false, 0]],
  ["released", "while it works", { log: logs["in-progress"], written: 0, before: mine, is: ["releasing", "release"] }, ["none", null, false, 5]],
  ["released", "with its slot", { log: logs["in-progress"], written: 0, before: holding, facts: { slot }, is: ["releasing", "release"] }, ["none", null, true, 5]],
  ["released", "while it waits", { log: logs.awaiting, written: 0, before: mine, facts: idleHere, is: ["releasing", "release"] }, ["none", DEADLINE, false, 5]],
  ["released", "in the queue", { log: logs["in-progress"], written: 0, before: mine, facts: { slot: queued }, is: ["releasing", "release"] }, ["none", null, false, 5]],
  ["released", "before it begins", { log: [startsLater], written: 0, before: { ...mine, status: "created" }, is: ["releasing", "release"] }, ["none", START, false, 5]],
  ["released", "when it has no owner", { log: logs.awaiting, written: 0, before: unowned, is: ["releasing"] }, "-"],
  ["waiting", "when it asks", { log: logs.awaiting, written: 1, before: mine, facts: idleHere }, ["none", DEADLINE, false, 4]],
  ["waiting", "with nothing to write", { log: logs.awaiting, written: 0, before: { ...mine, status: "awaiting" }, facts: idleHere }, ["none", DEADLINE, false, 5]],
  ["waiting", "and asks more without an owner", { log: [...logs.awaiting, asked("ask#2")], written: 1, before: unowned, facts: idleHere }, ["none", DEADLINE, false, 5]],
  ["waiting", "without an owner", { log: logs.awaiting, written: 0, before: unowned, facts: { ...idleHere, hasSubRuns: true } }, "-"],
  ["waiting", "and gives its slot back", { log: logs.awaiting, written: 1, before: holding, facts: { ...idleHere, slot } }, ["none", DEADLINE, false, 4]],
  ["waiting", "and keeps its slot", { log: logs.awaiting, written: 1, before: holding, facts: { ...idleHere, slot: kept } }, ["none", DEADLINE, true, 4]],
  ["waiting", "for sub-runs alone", { log: [...logs["in-progress"], begins], written: 1, before: mine, facts: { ...idleHere, deadline: null } }, ["none", null, false, 4]],
  ["working", "from its begin", { log: logs.created, written: 1, before: undefined }, ["me", null, false, 0]],
  ["working", "and gets a message before its start", { log: [startsLater, received("payment", 1, "key-1")], written: 1, before: { ...unowned, status: "created" } }, ["me", null, false, 5]],
  ["working", "and waits, when a message is taken into its log", { log: [...logs.awaiting, received("payment", 1, "key-1")], written: 1, before: { ...mine, status: "awaiting" }, facts: idleHere }, "-"],
  ["waiting", "and gets a message without an owner", { log: [...logs.awaiting, received("payment", 1, "key-1")], written: 1, before: unowned, facts: idleHere }, ["none", DEADLINE, false, 5]],
  ["working", "and emits", { log: [...logs["in-progress"], emits], written: 1, before: mine }, "-"],
  ["working", "with its slot", { log: [...logs["in-progress"], emits], written: 1, before: holding, facts: { slot } }, "-"],
  ["working", "beside a question", { log: logs.awaiting, written: 1, before: holding, facts: { slot, isAtWork: true } }, ["me", TAKEN, true, 4]],
  ["working", "and waits, with nothing at work", { log: logs.awaiting, written: 1, before: holding, facts: { slot } }, ["me", TAKEN, false, 4]],
  ["working", "with a result that its agent has yet to get", { log: [...logs.awaiting, asked("ask#2"), resumed("ask#1")], written: 1, before: unowned, facts: idleHere }, ["me", null, false, 5]],
  ["working", "and may replace a wake of its sub-runs", { log: [...logs.awaiting, asked("ask#2")], written: 1, before: unowned, facts: { ...idleHere, hasSubRuns: true } }, ["me", null, false, 5]],
  ["working", "and claims a run of another process", { log: [...logs["in-progress"], emits], written: 1, before: { ...mine, owner: null, due_at: null } }, ["me", null, false, 5]],
  ["working", "until it is released", { log: [...logs.awaiting, asked("ask#2")], written: 1, before: { ...mine, status: "awaiting" }, facts: idleHere, is: ["releasing"] }, "-"],
  ["working", "for the first time since it was taken over", { log: [...logs["in-progress"], begins], written: 1, before: { ...mine, takeovers: 2 }, is: ["taken over"] }, ["me", TAKEN, false, 5]],
]; // biome-ignore format: a table is read in columns

/** The head that the write leaves. */
function headOf({ log, written, before, facts, is = [], blocked }: Write): RunHead {
  const head = new LeasedHead(ME, { ...atWork, ...facts });
  if (is.includes("full")) head.waitsForSlot = "full";
  if (is.includes("releasing")) head.isReleased = true;
  if (is.includes("taken over")) head.isTakenOver = true;
  if (is.includes("sound")) head.isSound = true;
  if (blocked !== undefined) head.blocked = blocked;
  return head.headFor(
    fold(...log),
    log.slice(log.length - written),
    before,
    is.includes("release") ? "release" : undefined,
  );
}

describe("How a write leaves a run", () => {
  it("has a row for each situation", () => {
    expect(new Set(rows.map(([situation]) => situation))).toEqual(new Set(Object.keys(situations)));
  });

  it.each(rows)("that is %s %s", (_situation, _what, write, left) => {
    const head = headOf(write);
    if (left === "-") {
      expect(head).toBe(write.before);
      return;
    }
    const [owner, due_at, holds_slot, epoch] = left;
    const { status, ended: end } = fold(...write.log);
    expect(head).toEqual({
      ...{ status, epoch, due_at, holds_slot },
      owner: owner === "me" ? ME : null,
      blocked: write.blocked ?? null,
      finished_at: end?.at ?? null,
      takeovers: write.before?.takeovers ?? 0,
    });
  });

  it.each<[what: string, entry: Entry | undefined, is: Write["is"], takeovers: number]>([
    ["nothing", undefined, [], 2],
    ["an attempt at a step", begins, [], 2],
    ["a part of the agent", emits, [], 0],
    ["an answer", resumed("ask#1"), [], 0],
    ["nothing, but is sound", undefined, ["sound"], 0],
  ])("counts take-overs after %s", (_what, entry, is, takeovers) => {
    const log = entry === undefined ? logs.awaiting : [...logs.awaiting, entry];
    const before: RunHead = { ...mine, status: "awaiting", takeovers: 2 };
    const write: Write = { log, written: log.length - logs.awaiting.length, before, is };
    expect(headOf(write).takeovers).toBe(takeovers);
  });
});
