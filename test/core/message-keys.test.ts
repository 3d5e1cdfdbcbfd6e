import { expect, it } from "vitest";
import type { Arrival } from "../../src/core/state.ts";
import { MessageKeys } from "../../src/core/state.ts";

function keysFrom(first: number, count: number): (readonly [key: string, message: Arrival])[] {
  return Array.from({ length: count }, (_, index) => [`key ${first + index}`, "earlier"]);
}

it("finds each of very many messages by its key, in a copy as well", () => {
  const keys = new MessageKeys(undefined, keysFrom(0, 150_000));
  const copy = new MessageKeys(keys, keysFrom(150_000, 2));
  for (const number of [0, 65_535, 65_536, 149_999]) expect(copy.get(`key ${number}`)).toBe("earlier");
  expect(keys.get("key 150000")).toBeUndefined();
  expect([keys.size, copy.size]).toEqual([150_000, 150_002]);
  expect([...copy].map(([key]) => key)).toEqual(keysFrom(0, 150_002).map(([key]) => key));
});

it.each([
  [0, []],
  [2, ["key 3", "key 4"]],
  [3, ["key 2", "key 3", "key 4"]],
  [9, ["key 0", "key 1", "key 2", "key 3", "key 4"]],
])("gives the last %i keys, also where some are those of a copied state", (most, last) => {
  const copy = new MessageKeys(new MessageKeys(undefined, keysFrom(0, 3)), keysFrom(3, 2));
  expect(copy.last(most)).toEqual(last);
});
