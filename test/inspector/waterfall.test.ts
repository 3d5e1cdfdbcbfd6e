import { expect, it } from "vitest";
import type { AdminRun } from "../../src/admin/records.ts";
import type { QuestionItem, StepItem, SubRunItem, TimelineItem } from "../../src/admin/timeline.ts";
import type { Told } from "../../src/inspector-page/waterfall/rows.ts";
import { ownSpans, rowsOf } from "../../src/inspector-page/waterfall/rows.ts";
import { moved, placeIn, ticksIn, zoomed } from "../../src/inspector-page/waterfall/scale.ts";
import { flattened, spansOf, timesOf } from "../../src/inspector-page/waterfall/spans.ts";

const BEGIN = Date.parse("2026-05-01T10:00:00.000Z");
const at = (ms: number): string => new Date(BEGIN + ms).toISOString();
const busy = { name: "Error", message: "busy", code: null, data: null };

function step(position: number, from: number, to: number | null, rest: Partial<StepItem> = {}): StepItem {
  const attempts = [{ attempt: 1, started_at: at(from), ended_at: to === null ? null : at(to), error: null }];
  return {
    ...{ type: "step", position, last_position: position, at: at(from), ended_at: to === null ? null : at(to) },
    ...{ key: `s#${position}`, name: "s", of: "agent", status: "running", attempts, error: null, usage: null },
    ...{ waits_for: null, retry_at: null, ...rest },
  };
}

function question(position: number, key: string, from: number, to: number | null): QuestionItem {
  return {
    ...{
      type: "question",
      position,
      last_position: position,
      at: at(from),
      ended_at: to === null ? null : at(to),
      key,
    },
    ...{ name: "Sure?", kind: "input", parts: [], schema: null, expires_at: null, how: null, answer: null },
    ...{ reason: null, by: null, of: key.includes("/") ? { run_id: "below", await_id: "ask#1" } : null },
  };
}

function subRun(position: number, from: number, to: number | null): SubRunItem {
  return {
    ...{ type: "sub_run", position, last_position: position, at: at(from), ended_at: to === null ? null : at(to) },
    ...{ key: "run:a/b#1", agent_name: "a/b", run_id: "below", status: null, error: null, usage: null },
  };
}

function run(run_id: string, ms: number | null): AdminRun {
  return {
    ...{ tenant: "", run_id, status: ms === null ? "in-progress" : "completed", position: 9, epoch: 1, worker: null },
    ...{ takeovers: 0, due_at: null, finished_at: ms === null ? null : at(ms), blocked: null },
    created: {
      ...{ at: at(0), agent_name: "top", version: null, durable: true, session_id: run_id, labels: {}, metadata: null },
      ...{ parent_run_id: null, origin: null },
    },
  };
}

const begun: readonly TimelineItem[] = [
  { type: "created", position: 0, last_position: 0, at: at(0), input: [] },
  { type: "started", position: 1, last_position: 1, at: at(500) },
];

/** The rows at a time after the begin. */
function rowsAt(ms: number, root: Told, below: ReadonlyMap<string, Told> = new Map(), turned: readonly string[] = []) {
  return rowsOf(root, below, new Set(turned), flattened(ownSpans(root), BEGIN, BEGIN + ms));
}

/** Spans as texts: kind, begin, end. */
function told(
  spans: readonly { readonly kind: string; readonly from: number; readonly to: number | null }[],
): string[] {
  return spans.map(({ kind, from, to }) => `${kind} ${from - BEGIN}-${to === null ? "" : to - BEGIN}`);
}

it("the attempts of a step are spans, with the queues and pauses between them", () => {
  const attempts = [
    { attempt: 1, started_at: at(1_000), ended_at: at(2_000), error: busy, queued_ms: 400 },
    { attempt: 2, started_at: at(5_000), ended_at: at(6_000), error: busy, queued_ms: 1_000 },
    { attempt: 3, started_at: at(7_000), ended_at: at(9_000), error: null },
  ];
  expect(told(spansOf(step(2, 1_000, 9_000, { attempts })))).toEqual([
    ...["slot 600-1000", "failed 1000-2000", "pause 2000-4000", "slot 4000-5000", "failed 5000-6000"],
    ...["pause 6000-7000", "work 7000-9000"],
  ]);
});

it("an attempt that its process did not survive is interrupted, until the next one", () => {
  const attempts = [
    { attempt: 1, started_at: at(1_000), ended_at: null, error: null },
    { attempt: 2, started_at: at(5_000), ended_at: null, error: null },
  ];
  expect(told(spansOf(step(2, 1_000, null, { attempts })))).toEqual(["lost 1000-5000", "work 5000-"]);
});

it("a step that pauses now does so until its next attempt, whenever that is", () => {
  const attempts = [{ attempt: 1, started_at: at(1_000), ended_at: at(2_000), error: busy }];
  const item = step(2, 1_000, null, { attempts, retry_at: at(60_000) });
  expect(told(spansOf(item))).toEqual(["failed 1000-2000", "pause 2000-"]);
});

it("a sub-run is at work but for the time in which it waits for people, whose question is no line of its parent", () => {
  const items = [...begun, subRun(2, 1_000, 9_000), question(3, "run:a/b#1/ask#1", 2_000, 5_000)];
  const rows = rowsAt(9_000, { run: run("top", 9_000), items });
  expect(rows.map(({ name, level, isOpen }) => [name, level, isOpen])).toEqual([
    ["top", 1, null],
    ["a/b", 2, false],
  ]);
  expect(told(rows[1]?.spans ?? [])).toEqual(["work 1000-2000", "work 5000-9000", "people 2000-5000"]);
  expect(told(rows[0]?.spans ?? [])).toEqual(["slot 0-500", "work 500-2000", "people 2000-5000", "work 5000-9000"]);
});

it("an open sub-run has its lines below it, and its queue in its own line", () => {
  const items = [...begun, subRun(2, 0, 9_000)];
  const child = {
    run: run("below", 9_000),
    items: [...begun, step(2, 500, 9_000), question(3, "ask#1", 3_000, 4_000)],
  };
  const rows = rowsAt(9_000, { run: run("top", 9_000), items }, new Map([["below", child]]), ["top:2"]);
  expect(rows.map(({ name, level, isOpen }) => [name, level, isOpen])).toEqual([
    ["top", 1, null],
    ["a/b", 2, true],
    ["s", 3, null],
    ["Sure?", 3, null],
  ]);
  expect(told(rows[1]?.spans ?? [])).toContain("slot 0-500");
});

it("what had not ended when the run ended, ended with it", () => {
  const rows = rowsAt(4_000, { run: run("top", 4_000), items: [...begun, step(2, 1_000, null)] });
  expect(told(rows[1]?.spans ?? [])).toEqual(["work 1000-4000"]);
});

it("generations are lines, of which the last one is open", () => {
  const mark: TimelineItem = {
    type: "continued",
    position: 3,
    last_position: 3,
    at: at(3_000),
    generation: 2,
    carry: 1,
  };
  const told = { run: run("top", null), items: [...begun, step(2, 1_000, 3_000), mark, step(4, 3_000, null)] };
  const names = (turned: readonly string[]) =>
    rowsAt(5_000, told, new Map(), turned).map(({ name, level }) => `${name} ${level}`);
  expect(names([])).toEqual(["top 1", "generation 1 2", "generation 2 2", "s 3"]);
  expect(names(["top:g1", "top:g2"])).toEqual(["top 1", "generation 1 2", "s 3", "generation 2 2"]);
});

it("each moment of a run counts once, as what matters most", () => {
  const spans = [
    { kind: "work", from: 1_000, to: 3_000 },
    { kind: "people", from: 2_000, to: 6_000 },
    { kind: "sleep", from: 5_000, to: null },
  ] as const;
  const all = flattened(spans, 0, 10_000);
  expect(all.map(({ kind, from, to }) => `${kind} ${from}-${to}`)).toEqual([
    ...["work 0-3000", "people 3000-6000", "sleep 6000-10000"],
  ]);
  expect(timesOf(all)).toEqual([
    ["sleep", 4_000],
    ["work", 3_000],
    ["people", 3_000],
  ]);
});

it("a frame is zoomed around a place, moved, and stays within the whole", () => {
  const all = { from: 0, to: 1_000 };
  expect(zoomed(all, 0.5, 0, all)).toEqual({ from: 0, to: 500 });
  expect(zoomed({ from: 500, to: 600 }, 2, 0.5, all)).toEqual({ from: 450, to: 650 });
  expect(zoomed({ from: 0, to: 800 }, 2, 0.5, all)).toEqual(all);
  expect(zoomed({ from: 0, to: 6 }, 0.5, 0, all)).toEqual({ from: 0, to: 5 });
  expect(moved({ from: 800, to: 900 }, 3, all)).toEqual({ from: 900, to: 1_000 });
  expect(moved({ from: 100, to: 200 }, -3, all)).toEqual({ from: 0, to: 100 });
  expect(placeIn({ from: 100, to: 200 }, 150)).toBe(50);
});

it("the lines of a frame are at round distances from the begin, and few", () => {
  expect(ticksIn({ from: 7, to: 1_007 }, 7, 8)).toEqual([7, 207, 407, 607, 807, 1_007]);
  expect(ticksIn({ from: 120, to: 180 }, 0, 8)).toEqual([120, 130, 140, 150, 160, 170, 180]);
  for (const length of [1, 1e4, 1e8, 1e12]) expect(ticksIn({ from: 0, to: length }, 0, 8).length).toBeLessThan(10);
});
