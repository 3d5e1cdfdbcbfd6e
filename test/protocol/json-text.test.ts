import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { checkTree, JSON_LIMITS, JsonRefusal, parseJson } from "../../src/protocol/json-text.ts";

/* The structure of a long text is checked before it is parsed. Both ways of counting agree. */

const long = " ".repeat(5_000);

function refusalOf(read: () => unknown): string | undefined {
  try {
    read();
    return undefined;
  } catch (error) {
    if (error instanceof JsonRefusal) return error.reason;
    throw error;
  }
}

/** Whether the structure of a long text is refused before it is parsed, which this text, without its end, never is. */
function refusedUnparsed(text: string, limits: typeof JSON_LIMITS): string | undefined {
  try {
    parseJson(`${long}${text}`, limits);
    return undefined;
  } catch (error) {
    return error instanceof JsonRefusal ? error.reason : undefined;
  }
}

describe("the limits on JSON", () => {
  it("are the same for the text and for the value", () => {
    const limit = fc.record({ maxDepth: fc.integer({ min: 0, max: 4 }), maxNodes: fc.integer({ min: 1, max: 12 }) });
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), limit, fc.constantFrom(undefined, 2), (value, limits, indent) => {
        const text = JSON.stringify(value, undefined, indent);
        // Of a text without its end the structure alone can be refused.
        const before = refusedUnparsed(`${text} ,]`, { ...limits, maxNodes: limits.maxNodes + 1 });
        const after = refusalOf(() => checkTree(JSON.parse(text), limits));
        return after === "forbidden_key" || (after === undefined) === (before === undefined);
      }),
      { numRuns: 5_000 },
    );
  });

  it.each([
    ["lists in lists", `${"[".repeat(2_000_000)}`, "too_deep"],
    ["objects in objects", `${'{"a":'.repeat(1_000_000)}`, "too_deep"],
    ["numbers", `[${"1,".repeat(2_000_000)}`, "too_many_values"],
    ["empty lists", `[${"[],".repeat(1_000_000)}`, "too_many_values"],
    ["empty objects", `[${"{},".repeat(1_000_000)}`, "too_many_values"],
    ["keys", `{${'"":0,'.repeat(1_000_000)}`, "too_many_values"],
    ["texts with quotes and commas", `["${'\\",[{'.repeat(1_000_000)}"]`, undefined],
  ])("%s: a text without its end is refused for what it holds", (_name, text, reason) => {
    expect(refusedUnparsed(text, JSON_LIMITS)).toBe(reason);
  });

  it("a key __proto__, however it is written, and numbers that would lose digits are refused", () => {
    for (const text of ['{"__proto__":1}', '[{"\\u005f_proto__":{}}]'])
      expect(refusalOf(() => parseJson(text, JSON_LIMITS))).toBe("forbidden_key");
    for (const text of ["12345678901234567890", '{"a":["1",9007199254740993]}', "1e400", '{"a":[-1e999]}', "[1e400]"])
      expect(refusalOf(() => parseJson(text, JSON_LIMITS))).toBe("unsafe_number");
    expect(parseJson('["12345678901234567890",1e30]', JSON_LIMITS)).toEqual(["12345678901234567890", 1e30]);
  });

  it("what is not JSON is a SyntaxError, whatever its quotes", () => {
    for (const text of ['"', '"\\"', `[${long}"`, '1234567890123456789 "', ""])
      expect(() => parseJson(text, JSON_LIMITS)).toThrow(SyntaxError);
  });
});
