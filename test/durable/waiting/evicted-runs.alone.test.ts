import { expect, it } from "vitest";
import { evictAndAnswer } from "../../harness/world/evicted-runs.ts";

/* In a process of its own: it measures memory. */

/** Fewer runs than `npm run stress -- durable` evicts. */
const RUNS = 1_500;

it("runs that wait are evicted, cost no memory, and are loaded when they are answered", async () => {
  const { heapBefore, heapEvicted, loaded, completed } = await evictAndAnswer(RUNS);
  expect(loaded).toBe(0);
  expect(completed).toBe(RUNS);
  expect(heapEvicted).toBeLessThan(1.1 * heapBefore);
});
