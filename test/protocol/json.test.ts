import { runInNewContext } from "node:vm";
import type { JsonObject, JsonValue } from "cadenza";
import { describe, expect, expectTypeOf, it } from "vitest";
import type { DeepReadonly } from "../../src/protocol/json.ts";
import { isJsonObject, jsonObjectSchema } from "../../src/protocol/json.ts";
import { itAccepts, itRefuses } from "./tables.ts";

describe("a JSON object", () => {
  itAccepts(jsonObjectSchema, [
    ["an empty object", {}],
    ["nested contents with nulls", { a: [1, null, { b: null }] }],
    ["keys that have a meaning for prototypes", { constructor: 1, prototype: 2, toString: 3 }],
  ]);

  itRefuses(jsonObjectSchema, [
    ["null", null, []],
    ["nothing", undefined, []],
    ["a list", [], []],
    ["a string", "{}", []],
    ["a number", 1, []],
    ["a date", new Date(0), []],
    ["a map", new Map(), []],
    ["a function", () => 1, []],
  ]);

  it("is returned as the same object", () => {
    const object = JSON.parse('{ "__proto__": { "isAdmin": true }, "a": null }');
    const parsed = jsonObjectSchema.parse(object);
    expect(parsed).toBe(object);
    expect(Object.getPrototypeOf(parsed)).toBe(Object.prototype);
    expect(parsed["isAdmin"]).toBeUndefined();
  });

  it("may come from another realm", () => {
    expect(isJsonObject(runInNewContext("({ a: 1 })"))).toBe(true);
    expect(isJsonObject(Object.create(null))).toBe(true);
    expect(isJsonObject(Object.create({ a: 1 }))).toBe(false);
  });

  it("may be nested as deeply as a parser of JSON allows", () => {
    const depth = 50_000;
    const object = JSON.parse(`{ "a": ${"[".repeat(depth)}${"]".repeat(depth)} }`);
    expect(jsonObjectSchema.parse(object)).toBe(object);
  });
});

describe("the types", () => {
  it("hold JSON and nothing else", () => {
    expectTypeOf<{ a: string; b: (number | null)[] }>().toExtend<JsonObject>();
    expectTypeOf<JsonObject>().toExtend<JsonValue>();
    expectTypeOf<undefined>().not.toExtend<JsonValue>();
    expectTypeOf<Date>().not.toExtend<JsonValue>();
  });

  it("make everything read-only, and keep functions as they are", () => {
    type Loose = { a: { b: string[] }; c?: [number, { d: 1 }]; f: (x: string[]) => void };
    type Tight = {
      readonly a: { readonly b: readonly string[] };
      readonly c?: readonly [number, { readonly d: 1 }];
      readonly f: (x: string[]) => void;
    };
    expectTypeOf<DeepReadonly<Loose>>().toEqualTypeOf<Tight>();
  });
});
