import { expect, it } from "vitest";
import { matchingCode } from "../../src/core/matching-code.ts";

it.each([
  ["ask#1", "weigh#1", 'Do weigh#1 only where context.patched("…") is true, and keep ask#1 where it is false.'],
  ["ask#1", "the agent returned", 'Keep ask#1 for this run: do it where context.patched("…") is false.'],
  ["ask#1", "the agent threw: No.", 'Keep ask#1 for this run: do it where context.patched("…") is false.'],
  ["a valid answer to ask#1", "ask#1 with another schema", "Accept what the log holds as well: widen the schema"],
  ["a valid carry", "a carry with another schema", "Accept what the log holds as well: widen the schema"],
  ["ask#1", "nothing", "The code waits for something that is no operation, or takes long."],
])("a history with %s and code with %s", (expected, asked, help) => {
  expect(matchingCode({ position: 3, expected, asked }).slice(0, help.length)).toBe(help);
});

it("a log of a newer version of the library needs that version", () => {
  const mismatch = { position: 3, expected: "other of format 9", asked: "this version cannot", newer: true } as const;
  expect(matchingCode(mismatch)).toBe("Update cadenza in the processes that execute the agent.");
});
