import { expect, it } from "vitest";
import { matchingCode } from "../../src/core/matching-code.ts";

it.each([
  ["ask#1", "weigh#1", 'Do weigh#1 only where context.patched("…") is true, and keep ask#1 where it is false.'],
  ["the result of find#1", "seek#1", 'Do seek#1 only where context.patched("…") is true, and keep find#1 where it'],
  ["the result of find#1", "the agent returned", "Keep find#1 for this run: do it where"],
  ['the text "b"', "weigh#1", 'Do weigh#1 only where context.patched("…") is true, and keep the text "b" where it'],
  ['the text "b"', "work#2.1, a b#1", 'Do work#2.1, a b#1 only where context.patched("…") is true'],
  ['the text "b"', "the agent threw: Lost #1", 'Emit the text "b" for this run: do it where'],
  ['the text "b"', 'the text "a#1"', 'Emit the text "b" for this run: do it where'],
  ["ask#1", "the agent returned", 'Keep ask#1 for this run: do it where context.patched("…") is false.'],
  ["ask#1", "the agent threw: No.", 'Keep ask#1 for this run: do it where context.patched("…") is false.'],
  ["a valid answer to ask#1", "ask#1 with another schema", "Accept what the log holds as well: widen the schema"],
  ["a valid carry", "a carry with another schema", "Accept what the log holds as well: widen the schema"],
  [
    "ask#1",
    'the agent threw: The input does not match the schema of agent "order".',
    "Accept what the log holds as well: widen the schema.",
  ],
  [
    "ask#1",
    "the agent threw: The receive a#1 got a message that does not match its schema: a",
    "Accept what the log holds",
  ],
  ["ask#1 after 1 emitted values", "ask#1 after 3", "Emit as many values before it as the log holds where"],
  [
    'the text "b"',
    "ask#1",
    'Emit the text "b" for this run: do it where context.patched("…") is false. If the code emits it later, do ask#1 only',
  ],
  ["an object", "the agent returned", "Emit an object for this run:"],
  ["ask#1", "nothing", "The code waits for something that is no operation, or takes long."],
])("a history with %s and code with %s", (expected, asked, help) => {
  expect(matchingCode({ position: 3, expected, asked }).slice(0, help.length)).toBe(help);
});

it("a log of a newer version of the library needs that version", () => {
  const mismatch = { position: 3, expected: "other of format 9", asked: "this version cannot", newer: true } as const;
  expect(matchingCode(mismatch)).toBe("Update cadenza in the processes that execute the agent.");
});
