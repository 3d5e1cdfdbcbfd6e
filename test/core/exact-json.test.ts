import fc from "fast-check";
import { expect, it } from "vitest";
import type { Loss } from "../../src/core/exact-json.ts";
import { exactJson } from "../../src/core/exact-json.ts";

class Refused extends Error {
  readonly loss: Loss;

  constructor(loss: Loss) {
    super("refused");
    this.loss = loss;
  }
}

function copyOf(value: unknown): unknown {
  return exactJson(value, (loss) => new Refused(loss));
}

function lossOf(value: unknown): Loss {
  try {
    copyOf(value);
  } catch (error) {
    if (error instanceof Refused) return error.loss;
    throw error;
  }
  throw new Error("nothing was refused");
}

it("a JSON value is copied as it is, sharing nothing", () => {
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
      const copy = copyOf(value);
      expect(copy).toEqual(JSON.parse(JSON.stringify(value)));
      if (typeof value === "object" && value !== null) expect(copy).not.toBe(value);
    }),
  );
});

it("a copy equals what JSON would give, and any other value is refused", () => {
  const odd = fc.anything({ withDate: true, withMap: true, withSet: true, withBigInt: true, withTypedArray: true });
  fc.assert(
    fc.property(odd, (value) => {
      let copy: unknown;
      try {
        copy = copyOf(value);
      } catch (error) {
        expect(error).toBeInstanceOf(Refused);
        return;
      }
      expect(copy).toEqual(value === undefined ? undefined : JSON.parse(JSON.stringify(value)));
    }),
    { numRuns: 500 },
  );
});

it("keys with the value undefined are left out, and the copy of undefined is undefined", () => {
  expect(copyOf({ a: 1, gone: undefined })).toStrictEqual({ a: 1 });
  expect(copyOf(undefined)).toBeUndefined();
});

it("the key `__proto__` is kept like any other", () => {
  const value: unknown = JSON.parse('{"__proto__":{"admin":true}}');
  const copy = copyOf(value) as object;
  expect(JSON.stringify(copy)).toBe('{"__proto__":{"admin":true}}');
  expect("admin" in copy).toBe(false);
});

it("a negative zero becomes zero, and the same object may occur twice", () => {
  expect(Object.is(copyOf(-0), 0)).toBe(true);
  const twice = { n: 1 };
  const copy = copyOf([twice, twice]) as object[];
  expect(copy).toEqual([{ n: 1 }, { n: 1 }]);
  expect(copy[0]).not.toBe(copy[1]);
});

class Money {
  readonly cents = 5;
}
const match: unknown = /b(?<rest>.*)/.exec("abc");
const holes = [1, 2, 3];
delete holes[1];
const loop: Record<string, unknown> = {};
loop["inner"] = { loop };

it.each<[title: string, value: unknown, path: readonly (string | number)[]]>([
  ["a date", { at: new Date(0) }, ["at"]],
  ["a map in a list", { items: [1, { found: new Map() }] }, ["items", 1, "found"]],
  ["a set", new Set(), []],
  ["bytes", { bytes: new Uint8Array(2) }, ["bytes"]],
  ["an instance of a class", [new Money()], [0]],
  ["an error", new Error("no"), []],
  ["a boxed text", Object("text"), []],
  ["NaN", [Number.NaN], [0]],
  ["Infinity", { most: Number.POSITIVE_INFINITY }, ["most"]],
  ["undefined in a list", [1, undefined], [1]],
  ["a hole in a list", holes, [1]],
  ["a key of a list beside its items", { match }, ["match", "index"]],
  ["a function", { run: () => 1 }, ["run"]],
  ["a method that says how to write it", { toJSON: () => 1 }, ["toJSON"]],
  ["a symbol", { kind: Symbol("a") }, ["kind"]],
  ["a key that is a symbol", { [Symbol("a")]: 1 }, ["Symbol(a)"]],
  ["a bigint", { n: 5n }, ["n"]],
])("%s is refused, with its path", (_title, value, path) => {
  expect(lossOf(value)).toMatchObject({ path, reason: "value" });
});

it("a cycle is refused where it closes", () => {
  expect(lossOf({ loop })).toMatchObject({ path: ["loop", "inner", "loop"], reason: "cycle" });
});

it("a value that is nested too deeply is refused before the stack overflows", () => {
  let deep: unknown = 1;
  for (let depth = 0; depth < 1_000; depth++) deep = [deep];
  expect(JSON.stringify(copyOf(deep))).toBe(JSON.stringify(deep));
  for (let depth = 0; depth < 100_000; depth++) deep = { deep };
  expect(lossOf(deep)).toMatchObject({ path: [], reason: "depth" });
});
