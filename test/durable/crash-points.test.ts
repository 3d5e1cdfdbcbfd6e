import { describe, expect, it } from "vitest";
import { textsOf } from "../harness/runtimes.ts";
import { crashedOtherwise, crashPoints } from "../harness/world/crash-points.ts";
import { play } from "../harness/world/play.ts";
import { scenarios } from "../harness/world/scenarios.ts";

/** One of so many crashes on a store that answers later is tried here; `npm run test:durable` tries all. */
const LATE_SHARE = 4;

describe.each([
  { store: "a store that answers at once", late: false },
  { store: "a store that answers later", late: true },
])("on $store", ({ late }) => {
  it.each(scenarios)("a process may die at any call of its store: $name", async (scenario) => {
    const uncrashed = await play(scenario, { late });
    expect(uncrashed.world.violations).toEqual([]);
    expect(`${uncrashed.run.status}: ${textsOf(uncrashed.run).join(" # ")}`).toBe(scenario.ends);

    const points = crashPoints(uncrashed.world.processes[0]?.storeCalls ?? []);
    expect(points.length).toBeGreaterThan(5);
    const wrong: string[] = [];
    for (const [index, point] of points.entries()) {
      if (!late || index % LATE_SHARE === 0)
        wrong.push(...(await crashedOtherwise(scenario, [point], uncrashed, late)));
    }
    expect(wrong).toEqual([]);
  });
});
