import { expect, it } from "vitest";
import { again, trial, tryAll } from "../harness/world/trials.ts";

/** A share of what `npm run test:durable` tries. */
const PROGRAMS = 240;
const seed = Number(process.env["DURABLE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

it(`random programs survive crashes, take-overs, freezes and stopped clocks of their processes (DURABLE_SEED=${seed})`, async () => {
  const { programs, troubles, wrong } = await tryAll(seed, PROGRAMS);
  expect(wrong.map((one) => `${again(one)}\n${one.wrong.join("\n")}`)).toEqual([]);
  expect(programs).toBe(PROGRAMS);
  expect(troubles).toBeGreaterThan(PROGRAMS / 2);
});

it.each([
  { seed: 78_655, trouble: "stopped clocks" },
  { seed: 93_634, trouble: "freezes" },
  { seed: 34_163, trouble: "stopped clocks" },
  { seed: 61_237, trouble: "take-overs" },
  { seed: 46_138, trouble: "freezes" },
  { seed: 99_184, trouble: "crashes" },
  { seed: 64_461, trouble: "take-overs" },
  { seed: 786_566, trouble: "freezes" },
  { seed: 8_320, trouble: "always replay" },
  { seed: 7_201, trouble: "take-overs" },
  { seed: 102_535, trouble: "stopped clocks" },
  { seed: 5_054_240, trouble: "always replay" },
] as const)("the program of seed $seed survives $trouble", async ({ seed, trouble }) => {
  expect((await trial(seed, trouble)).wrong).toEqual([]);
});
