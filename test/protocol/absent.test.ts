import { describe, expect, expectTypeOf, it } from "vitest";
import * as z from "zod";
import { omitAbsent, orNull, withDefault } from "../../src/protocol/absent.ts";

describe("omitAbsent", () => {
  const omit = omitAbsent("a", "b");

  it("leaves out the given keys that hold null or undefined", () => {
    expect(omit({ a: null, b: undefined, c: null })).toStrictEqual({ c: null });
  });

  it("keeps what is false, zero or empty, and the order of the keys", () => {
    expect(Object.keys(omit({ c: 1, b: 0, a: null, d: 2 }))).toEqual(["c", "b", "d"]);
    expect(omit({ a: false, b: "" })).toStrictEqual({ a: false, b: "" });
  });

  it("returns the same object if there is nothing to leave out", () => {
    const object = { a: 1, c: undefined };
    expect(omit(object)).toBe(object);
  });

  it("has the type of the remaining keys", () => {
    const rest = omit({ a: 1 } as { a?: number | null; b?: string | undefined; c?: null });
    expectTypeOf(rest).toEqualTypeOf<{ a?: number; b?: string; c?: null }>();
  });
});

describe("withDefault and orNull", () => {
  const schema = z.object({ a: withDefault(z.string(), "x"), b: orNull(z.string()) });

  it.each([{}, { a: null, b: null }, { a: undefined, b: undefined }])("read %o as absent", (written) => {
    expect(schema.parse(written)).toStrictEqual({ a: "x", b: null });
  });

  it("keep a value, also an empty one", () => {
    expect(schema.parse({ a: "", b: "" })).toStrictEqual({ a: "", b: "" });
  });
});
