import { expect, it } from "vitest";
import { memoryHost } from "../harness/memory-host.ts";
import { undocumented } from "./docstrings.ts";

it("names what an entry exports without a docstring, and functions among its members", () => {
  const files = {
    "/a.ts": `
      export { Lamp, light as glow, type Light, bare } from "./lamp.js";
      export const count = 3;
    `,
    "/lamp.ts": `
      /** What shines. */
      export interface Light {
        readonly power: number;
        readonly dim?: ((by: number) => void) | undefined;
        /** Puts it out. */
        readonly out: () => void;
        on(): void;
      }
      /** A lamp. */
      export class Lamp {
        #light = 1;
        private hidden(): void {}
        constructor() { this.#light = 2; }
        /** Turns it. */
        turn(): void {}
        throw(): void {}
      }
      /** Makes light. */
      export function light(): void {}
      export type bare = 1;
      export const unseen = 1;
    `,
  };
  expect(undocumented(["/a.ts"], { noLib: true, strict: true }, memoryHost(files))).toEqual([
    "Lamp.throw",
    "Light.dim",
    "Light.on",
    "bare",
    "count",
  ]);
});
