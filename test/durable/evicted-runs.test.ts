import { expect, it } from "vitest";
import { sleepAndWake } from "./evicted-runs.ts";

/** A share of what `npm run test:durable` puts to sleep. */
const SLEEPERS = 1_500;

it("runs that wait cost no memory, and are all there when they are answered", async () => {
  const { heapBefore, heapAsleep, awake, completed } = await sleepAndWake(SLEEPERS);
  expect(awake).toBe(0);
  expect(completed).toBe(SLEEPERS);
  expect(heapAsleep).toBeLessThan(1.1 * heapBefore);
});
