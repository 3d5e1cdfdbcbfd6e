import { expect, it } from "vitest";
import type { StepItem, TimelineItem } from "../../src/admin/timeline.ts";
import { pairsOf, stretchesOf } from "../../src/inspector-page/comparison/pairs.ts";

const at = "2026-05-01T10:00:00.000Z";
let position = 0;

function step(key: string, result: string): StepItem {
  position += 1;
  return {
    ...{ type: "step", position, last_position: position, at, ended_at: at, key, name: key, of: "agent" },
    ...{ status: "completed", attempts: [], error: null, usage: null, waits_for: null, retry_at: null, result },
  };
}

function output(text: string): TimelineItem {
  return { type: "output", position, last_position: position, at, text, count: 1, objects: [], source: null };
}

/** Pairs as texts: the key, and a mark. */
function told(left: readonly TimelineItem[], right: readonly TimelineItem[]): string[] {
  return pairsOf(left, right).map((pair) => {
    const mark = pair.isSame ? "=" : pair.left === null ? ">" : pair.right === null ? "<" : "≠";
    return `${pair.key} ${mark}`;
  });
}

it("pairs what two runs did by its key, and says what differs", () => {
  const left = [step("a#1", "1"), output("x"), step("b#1", "1"), step("c#1", "1"), output("y")];
  const right = [step("a#1", "1"), output("x"), step("b#1", "2"), step("d#1", "1"), output("z")];
  expect(told(left, right)).toEqual(["a#1 =", "output#1 =", "b#1 ≠", "d#1 >", "c#1 <", "output#2 ≠"]);
  expect(told(left, left).every((line) => line.endsWith("="))).toBe(true);
  expect(told([], right)).toHaveLength(5);
});

it("another order is no difference by itself", () => {
  const [a, b, c] = [step("a#1", "1"), step("b#1", "1"), step("c#1", "1")];
  expect(told([a, b, c], [b, c, a])).toEqual(["a#1 =", "b#1 =", "c#1 ="]);
  expect(told([a, c], [c, b, a])).toEqual(["a#1 =", "c#1 =", "b#1 >"]);
});

it("a long stretch of equal lines is one, but for the last two", () => {
  const same = Array.from({ length: 9 }, (_, n) => step(`s#${n}`, "1"));
  const pairs = pairsOf([...same, step("t#1", "1")], [...same, step("t#1", "2")]);
  const sizes = stretchesOf(pairs).map((stretch) => ("equal" in stretch ? stretch.equal.length : "different"));
  expect(sizes).toEqual([7, 1, 1, "different"]);
});
