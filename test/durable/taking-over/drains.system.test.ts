import { expect, it } from "vitest";
import { newFile } from "../../harness/crash/place.ts";
import { drainsBesideWaits } from "../../harness/drains/beside.ts";
import { share } from "../../harness/share.ts";

/** A share of what `npm run stress -- drains --part beside` tries. */
const TIMES = share(4, 2);

it("workers on a file that get SIGTERM during steps beside waits begin no step twice", {
  timeout: 180_000,
}, async () => {
  const { place, remove } = newFile();
  const { wrong, bodies } = await drainsBesideWaits({ place, seed: `${Date.now()}`, times: TIMES, drainMs: 1_500 });
  remove();
  expect(wrong).toEqual([]);
  expect(bodies).toBeGreaterThan(0);
});
