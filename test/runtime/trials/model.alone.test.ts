import { describe, expect, it } from "vitest";
import { explain, playAll } from "../../harness/model/run.ts";
import { share } from "../../harness/share.ts";

/* In a process of its own: it takes long, and should begin first. */

/** `npm run stress -- model` plays 200,000, with other seeds each time. */
const FIRST_SEED = 1;

describe("In any order of actions of callers, agents, the clock and the store, the rules hold", () => {
  it.each([
    ["at once", share(2_000, 800)],
    ["late", share(1_000, 400)],
    ["failing", share(1_000, 400)],
  ] as const)("over a store that answers %s", { timeout: 300_000 }, async (store, count) => {
    const { schedules, failures } = await playAll({ from: FIRST_SEED, count, stores: [store] });
    const [first] = failures;
    if (first !== undefined) expect.fail(await explain(first.seed, { stores: [store] }));
    expect(schedules).toBe(count);
  });
});
