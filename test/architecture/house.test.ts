import { expect, it } from "vitest";
import type { House } from "./house.ts";
import { filesOfTheRooms, measureHouse, worseThanKnown } from "./house.ts";

it("no figure of the house is worse than it was", () => {
  expect(worseThanKnown(measureHouse(filesOfTheRooms()))).toEqual([]);
});

it("a figure of the house that is worse than it was is named", () => {
  const house = measureHouse(filesOfTheRooms());
  expect(worseThanKnown({ ...house, "boolean fields": 1_000, folders: 1 })).toEqual(["boolean fields"]);
});

const empty = "export const none = 0;";

it.each<[figure: keyof House, files: Readonly<Record<string, string>>, count: number]>([
  ["folders", { "runtime/a/a.ts": empty, "runtime/b/b.ts": empty }, 2],
  ["files in the largest folder", { "runtime/a/a.ts": empty, "runtime/a/b.ts": empty, "durable/c.ts": empty }, 2],
  [
    "longest chain of imports in the plain room",
    {
      "runtime/a/a.ts": `import type { B } from "../b/b.ts";`,
      "runtime/b/b.ts": `import { c } from "./c.ts";`,
      "runtime/b/c.ts": `import { d } from "../../durable/d.ts";`,
      "durable/d.ts": empty,
    },
    3,
  ],
  ["members of the ports", { "runtime/a.ts": "interface Journal { a: 1; b(): 2; c: { d: 3; e: 4 } }" }, 4],
  [
    "methods that pass on",
    {
      "runtime/a.ts": `class A {
        get one() { return this.#b.one; }
        two(x: 1) { this.#b.c.two(x); }
        three(x: 1) { return this.#b.three(x, 1); }
        get four() { return this.#four; }
      }`,
    },
    2,
  ],
  [
    "interfaces that one class implements",
    {
      "runtime/a.ts": "interface One {} interface Two {} interface None {}",
      "runtime/b.ts": "class A implements One, Two {} class B implements Two {} class C extends A {}",
    },
    1,
  ],
  [
    "pairs that know each other",
    {
      "runtime/a.ts":
        "class A { b: B; c = new C(() => this.b); #c: C; #d: D = new D(1); } class B { a: AHost } class C {} class D {}",
      "runtime/b.ts": "class E { f: F } class F {}",
      "runtime/c.ts": "interface AHost {} class Other implements AHost { b: Map<string, B> }",
    },
    2,
  ],
  ["boolean fields", { "runtime/a.ts": "class A { a: boolean; #b = false; c = 1; d?: boolean | undefined; }" }, 2],
  [
    "boolean parameters",
    { "durable/a.ts": "function a(b: boolean, c = true) {} const d = (e: boolean) => e; class F { g(h: boolean) {} }" },
    3,
  ],
])("the check of the house counts: %s", (figure, files, count) => {
  expect(measureHouse(new Map(Object.entries(files)))[figure]).toBe(count);
});
