import { expect, it } from "vitest";
import { memoryHost } from "../harness/memory-host.ts";
import { apiOf, knownApi } from "./api.ts";

/** How many names `cadenza` exports at most, and all entries together. */
const MOST_OWN = 75;
const MOST = 223;

it("one person can hold the surface in mind: a part of an option or a result has no name of its own", () => {
  const [, all] = /^(\d+) names in \d+ entries\n/.exec(knownApi()) ?? [];
  const [, own] = /^# cadenza: (\d+)$/m.exec(knownApi()) ?? [];
  expect(Number(own)).toBeLessThanOrEqual(MOST_OWN);
  expect(Number(all)).toBeLessThanOrEqual(MOST);
});

it("what an entry exports is told as its users see it", () => {
  const files = {
    "/a.ts": `
      export { Lamp } from "./lamp.js";
      export { light as glow, type Light } from "./lamp.js";
      /** How many. */
      export const count = 3;
    `,
    "/b.ts": `export type { Light } from "./lamp.js";`,
    "/lamp.ts": `
      export interface Light { /** In lumen. */ readonly power: number }
      export class Lamp {
        #isOn = false;
        private hidden = 1;
        switch(on: boolean): void { this.#isOn = on; }
        light(): Light { return light(1, "warm"); }
      }
      export function light(power: number): Light;
      export function light(power: number, color: string): Light;
      export function light(power: number, _color = ""): Light { return { power }; }
      export const unseen = 1;
    `,
  };
  const entries = [
    ["house", "/a.ts"],
    ["house/b", "/b.ts"],
  ] as const;

  expect(
    apiOf(
      entries,
      { declaration: true, emitDeclarationOnly: true, removeComments: true, noLib: true },
      memoryHost(files),
    ),
  ).toBe(`5 names in 2 entries

# house: 4

class Lamp {
  private hidden;
  switch(on: boolean): void;
  light(): Light;
}

interface Light {
  readonly power: number;
}

const count = 3;

glow: function light(power: number): Light;
function light(power: number, color: string): Light;

# house/b: 1

Light: as in house
`);
});
