import { expect, test } from "vitest";
import { findForbiddenWords } from "../scripts/check-words.ts";

test.each<[text: string, ...words: string[]]>([
  ["// A lease that nobody renews.", "nobody"],
  [`throw new Error("Asked by someone.");`, "someone"],
  ["Everybody reads; SOMEBODY writes.", "Everybody", "SOMEBODY"],
  ["whoever asks, (anyone), `everyone`", "whoever", "anyone", "everyone"],
  ["nobody's run", "nobody"],
  ["nobody’s run", "nobody"],
  ["an anybody-may-read file", "anybody"],
  ["const nobody_answers = 1;", "nobody"],
])("%j holds %j", (text, ...words) => {
  expect(findForbiddenWords(text).map(({ word }) => word)).toEqual(words);
});

test.each(["nobodys-business", "nobodyAnswers", "asNobody", "any one of them", "no body, some bodies", ""])(
  "%j holds none",
  (text) => {
    expect(findForbiddenWords(text)).toEqual([]);
  },
);

test("a finding names its line", () => {
  expect(findForbiddenWords("one\ntwo of somebody\r\nthree\nanyone")).toEqual([
    { line: 2, word: "somebody" },
    { line: 4, word: "anyone" },
  ]);
});
