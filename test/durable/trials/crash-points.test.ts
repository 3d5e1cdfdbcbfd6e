import { describe, expect, it } from "vitest";
import { textsOf } from "../../harness/runtimes.ts";
import { share } from "../../harness/share.ts";
import { crashedOtherwise, crashPoints } from "../../harness/world/crash-points.ts";
import { play } from "../../harness/world/play.ts";
import { scenarios } from "../../harness/world/scenarios.ts";
import type { World } from "../../harness/world/world.ts";

/** One of so many crashes is tried here, on stores of each kind; `npm run stress -- durable` tries all. */
const SHARE = { atOnce: 10, late: 25 };
/** And at most about so many of a scenario: a run that takes a minute makes 845 calls, most of them to look for work. */
const MOST = share(20, 8);

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
    const step = Math.max(late ? SHARE.late : SHARE.atOnce, Math.ceil(points.length / MOST));
    const wrong: string[] = [];
    for (const [index, point] of points.entries()) {
      if (index % step === 0) wrong.push(...(await crashedOtherwise(scenario, [point], uncrashed, late)));
    }
    expect(wrong).toEqual([]);
  });
});

it("a process may die between the commit of a sub-run and that of its parent", async () => {
  const scenario = scenarios.find(({ name }) => name === "a sub-run that asks");
  if (scenario === undefined) throw new Error("There is no such scenario.");
  const uncrashed = await play(scenario, { late: true });
  let between = 0;
  for (const crash of crashPoints(uncrashed.world.processes[0]?.storeCalls ?? [])) {
    let isLookedAt = false;
    const look = async (world: World): Promise<void> => {
      if (isLookedAt || world.processes[0]?.state !== "dead") return;
      isLookedAt = true;
      const states = await Promise.all(
        (await world.store.list({ tenant: "", limit: 10, offset: 0 })).map(({ key }) => world.stateOf(key.run_id)),
      );
      const child = states.find(({ created }) => created?.parent !== undefined);
      const parent = states.find(({ created }) => created !== null && created.parent === undefined);
      if (child !== undefined && parent !== undefined && child.question !== null && parent.question === null)
        between += 1;
    };
    const { run, world } = await play(scenario, { late: true, crashes: [crash], disturb: (world) => void look(world) });
    expect([run.status, world.violations]).toEqual(["completed", []]);
  }
  expect(between).toBeGreaterThan(0);
});
