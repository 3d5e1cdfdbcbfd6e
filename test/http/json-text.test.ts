import fc from "fast-check";
import { expect, it } from "vitest";
import { isLong, JsonText, jsonPieces, PIECE_LENGTH } from "../../src/http/json-text.ts";
import { codePoint } from "../harness/code-points.ts";

const long = fc
  .tuple(fc.string({ unit: codePoint, minLength: 1, maxLength: 8 }), fc.integer({ min: 1, max: 20_000 }))
  .map(([text, times]) => text.repeat(times));
const tree = fc.letrec((tie) => ({
  value: fc.oneof({ depthSize: "small" }, fc.jsonValue({ maxDepth: 1 }), long, tie("list"), tie("object")),
  list: fc.array(tie("value"), { maxLength: 4 }),
  object: fc.dictionary(fc.string(), fc.oneof(tie("value"), fc.constant(undefined)), { noNullPrototype: true }),
})).value;

it("the chunks of a value add up to its JSON", async () => {
  await fc.assert(
    fc.asyncProperty(tree, async (value) => {
      const whole = JSON.stringify(value ?? null);
      expect([...jsonPieces(value ?? null)].join("")).toBe(whole);
      const stream = new JsonText(value ?? null);
      let text = "";
      for (let read = await stream.next(); read.done !== true; read = await stream.next()) text += read.value;
      expect(text).toBe(whole);
    }),
    { numRuns: 200 },
  );
});

it("no chunk is long, whatever is long in the value", () => {
  const values = [
    "x".repeat(1_000_000),
    "\u0000".repeat(1_000_000),
    Array.from({ length: 1_000_000 }, () => 1.5),
    { output: Array.from({ length: 10_000 }, () => ({ parts: [{ content: "x".repeat(100) }] })) },
    Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`key ${index}`, index])),
  ];
  for (const value of values) {
    expect(isLong(value)).toBe(true);
    let longest = 0;
    for (const piece of jsonPieces(value)) longest = Math.max(longest, piece.length);
    expect(longest).toBeLessThan(3 * PIECE_LENGTH);
  }
});

it("a surrogate pair is never split, and a lone surrogate is escaped as by JSON", () => {
  for (const before of ["", "x"]) {
    const text = `${before}${"💥".repeat(50_000)}\ud83d`;
    expect([...jsonPieces(text)].join("")).toBe(JSON.stringify(text));
  }
});

it("no chunk is made after the reader has stopped", async () => {
  const stream = new JsonText(Array.from({ length: 100_000 }, (_, index) => `item ${index}`));
  await stream.next();
  stream.return();
  expect(await stream.next()).toEqual({ done: true, value: undefined });
});
