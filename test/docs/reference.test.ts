import { readFileSync } from "node:fs";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { REFERENCE, referenceOf, referenceOfSources } from "../../scripts/docs/reference.ts";
import { memoryHost } from "../harness/memory-host.ts";
import { pathsOfDocs, ROOT } from "./pages.ts";

describe("the reference of the API", () => {
  const { pages, undocumented } = referenceOfSources();

  it("is what the docstrings say: `npm run generate -- reference` writes it", () => {
    expect(pathsOfDocs().filter((path) => path.startsWith(REFERENCE))).toEqual([...pages.keys()].sort());
    for (const [path, text] of pages)
      expect(readFileSync(ROOT + path, "utf8").split("\n"), path).toEqual(text.split("\n"));
  });

  it("has a docstring for each exported name", () => {
    expect(undocumented).toEqual([]);
  });
});

const files = {
  "/a.ts": `
    export { type Light, Lamp, glow } from "./lamp.js";
    export interface Bare { readonly power: number }
  `,
  "/b.ts": `export type { Light } from "./lamp.js";
    import type { Light } from "./lamp.js";
    /** A wall with a {@link Light}. */
    export interface Wall extends Light {
      /** In metres. Default: 2. */
      readonly height?: number | undefined;
      readonly color: Color;
    }
    type Color = "red" | "blue";`,
  "/lamp.ts": `
    /** Light, in a room. */
    export interface Light {
      /** In lumen. */
      readonly power: number;
    }
    /**
     * A lamp.
     *
     * @example
     * \`\`\`ts
     * new Lamp(3);
     * \`\`\`
     */
    export class Lamp {
      #isOn = false;
      private hidden = 1;
      /** Of \`power\` lumen. */
      constructor(readonly power: number) {}
      /**
       * Switches it.
       * @returns Whether it was on.
       * @throws \`no_power\` without power.
       */
      switch(on: boolean): boolean { return this.#isOn; }
    }
    /**
     * Glows.
     * @param power In lumen.
     */
    export function glow(power: number, by: Switch): Light;
    export function glow(power: number): Light;
    export function glow(power: number): Light { return { power }; }
    /** What switches. */
    interface Switch {
      /** Whether it is on. */
      readonly isOn: boolean;
    }
  `,
};

it("a page has what users see of an entry, with the parts that are not exported", () => {
  const options: ts.CompilerOptions = { noLib: true, strict: true };
  const program = ts.createProgram(["/a.ts", "/b.ts"], options, memoryHost(files));
  const { pages, undocumented } = referenceOf(
    program,
    [
      { name: "index", file: "/a.ts", about: "Lamps." },
      { name: "walls", file: "/b.ts", about: "Walls." },
    ],
    () => true,
  );

  expect(undocumented).toEqual(["cadenza: Bare"]);
  expect(pages.get(`${REFERENCE}/cadenza.md`)).toBe(`<!-- Written by \`npm run generate -- reference\`. -->

# cadenza

Lamps.

Classes: [\`Lamp\`](#lamp)

Functions: [\`glow\`](#glow)

Types: [\`Bare\`](#bare), [\`Light\`](#light)

## Bare

- \`power: number\`

## Lamp

A lamp.

\`\`\`typescript
new Lamp(power: number)
\`\`\`

Of \`power\` lumen.

- \`power: number\`
- \`switch(on: boolean): boolean\`: Switches it. Gives: Whether it was on. Throws: \`no_power\` without power.

\`\`\`typescript
new Lamp(3);
\`\`\`

## Light

Light, in a room.

- \`power: number\`: In lumen.

## glow

Glows.

\`\`\`typescript
function glow(power: number, by: Switch): Light
function glow(power: number): Light
\`\`\`

- \`power\`: In lumen.

## Parts

Types that the names above are made of. They are not exported.

### Switch

What switches.

- \`isOn: boolean\`: Whether it is on.
`);
  expect(pages.get(`${REFERENCE}/cadenza-walls.md`)).toContain(`## Wall

A wall with a \`Light\`.

With the members of \`Light\`.

- \`height?: number\`: In metres. Default: 2.
- \`color: Color\`
`);
  expect(pages.get(`${REFERENCE}/cadenza-walls.md`)).toContain("As in [`cadenza`](cadenza.md#light).");
});
