import { afterAll, describe, expect, it } from "vitest";
import { newFile } from "../harness/crash/place.ts";
import { seededRandom } from "../harness/fuzz.ts";
import type { Layout } from "../harness/hostile/trial.ts";
import { alike, playHostile, removeProgram } from "../harness/hostile/trial.ts";
import { share } from "../harness/share.ts";

const parts: readonly (readonly [store: string, layout: Layout])[] = [
  ["memory", "one process"],
  ["sqlite", "front and worker"],
];

/** Of each layout. `npm run stress -- hostile` tries many more. */
const CASES = share(150, 60);

afterAll(removeProgram);

describe("hostile inputs, answers, messages, outputs and schemas", () => {
  it.each(parts)("end no process and leave no run stuck: %s, %s", async (store, layout) => {
    const seed = `${seededRandom().bits()}`;
    const place = store === "memory" ? undefined : newFile();
    const { counts, deaths, wrong } = await playHostile({ layout, place, seed, from: 0, count: CASES });
    place?.remove();
    expect(deaths).toEqual([]);
    expect(alike(wrong)).toEqual([]);
    expect([...counts.values()].reduce((sum, { cases }) => sum + cases, 0)).toBe(CASES);
  });
});
