import { expect, it } from "vitest";
import type { Body } from "./beside.ts";
import { judgeBodies } from "./beside.ts";
import { MAX } from "./beside-messages.ts";

/* The judge of steps beside waits finds each fault in what workers have reported. */

const drained = { drainMs: 1_000, at: new Map([["first", 50]]) };

function body(
  worker: string,
  run_id: string,
  from: number,
  to: number,
  ending: Partial<NonNullable<Body["ended"]>> = {},
): Body {
  const its = { run_id, agent: "beside", key: "work 0#1", attempt: 1 } as const;
  const ended = { is: "done", ...its, at: to, ...ending } as NonNullable<Body["ended"]>;
  return { worker, began: { ...its, at: from }, ended };
}

it("a step that ends during the drain, and one that is stopped at its end and begins elsewhere, are right", () => {
  const bodies = [
    body("first", "one", 0, 100),
    body("first", "two", 10, 1_060, { is: "stopped", afterMs: 1_010 }),
    body("second", "two", 1_100, 1_200),
  ];
  expect(judgeBodies(bodies, drained)).toEqual({ bodies: 3, drained: 2, stopped: 1, most: 2, wrong: [] });
});

it("a step that ends after its drain may begin elsewhere, since its result may be lost", () => {
  const bodies = [body("first", "one", 0, 1_060), body("second", "one", 1_100, 1_200), body("first", "two", 0, 1_070)];
  expect(judgeBodies(bodies, drained).wrong).toEqual([]);
});

it.each<[fault: string, bodies: readonly Body[], says: RegExp]>([
  ["begins again while it is at work", [body("first", "one", 0, 100), body("second", "one", 60, 90)], /began 2 times/],
  [
    "never ends",
    [{ ...body("first", "one", 0, 100), ended: undefined }, body("second", "one", 60, 90)],
    /began 2 times/,
  ],
  [
    "is stopped and begins nowhere else",
    [body("first", "one", 0, 1_060, { is: "stopped", afterMs: 1_010 })],
    /began 1 times/,
  ],
  [
    "is stopped before the end of the drain",
    [body("first", "one", 0, 80, { is: "stopped", afterMs: 30 }), body("second", "one", 90, 99)],
    /was stopped by first 30 ms after/,
  ],
  [
    "is at work beside too many others",
    Array.from({ length: MAX + 1 }, (_, n) => body("second", `${n}`, n, 50)),
    /5 runs are at work/,
  ],
])("a step that %s is wrong", (_fault, bodies, says) => {
  expect(judgeBodies(bodies, drained).wrong.join()).toMatch(says);
});
