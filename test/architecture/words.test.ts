import { expect, it } from "vitest";
import { findPersons, findRiddles } from "./words.ts";

it.each<[text: string, ...words: string[]]>([
  ["// A lease that nobody renews.", "nobody"],
  [`throw new Error("Asked by someone.");`, "someone"],
  ["Everybody reads; SOMEBODY writes.", "Everybody", "SOMEBODY"],
  ["whoever asks, (anyone), `everyone`", "whoever", "anyone", "everyone"],
  ["nobody's run", "nobody"],
  ["nobody’s run", "nobody"],
  ["an anybody-may-read file", "anybody"],
  ["const nobody_answers = 1;", "nobody"],
])("in %j the words for persons are %j", (text, ...words) => {
  expect(findPersons(text).map(({ word }) => word)).toEqual(words);
});

it.each(["nobodys-business", "nobodyAnswers", "asNobody", "any one of them", "no body, some bodies", ""])(
  "%j holds no word for a person",
  (text) => {
    expect(findPersons(text)).toEqual([]);
  },
);

it("a finding names its line", () => {
  expect(findPersons("one\ntwo of somebody\r\nthree\nanyone")).toEqual([
    { line: 2, word: "somebody" },
    { line: 4, word: "anyone" },
  ]);
});

it.each<[text: string, ...riddles: string[]]>([
  ["/** Its fields, and those of its parent. */", "those of"],
  ["// Readers are told. The run goes on.", "are told", "goes on"],
  ["/** Undefined: there\n * is none. */", "there\n * is none"],
  ["// What it does Beside that\n// of the other", "Beside", "that\n// of"],
])("in %j the riddles are %j", (text, ...riddles) => {
  expect(findRiddles(text).map(({ word }) => word)).toEqual(riddles);
});

it.each(["besides", "What is retold goes onto a page.", "that is none of it"])("%j holds no riddle", (text) => {
  expect(findRiddles(text)).toEqual([]);
});
