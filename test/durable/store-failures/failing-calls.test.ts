import { expect, it } from "vitest";
import type { Course } from "../../harness/world/failing-calls.ts";
import {
  courses,
  failedOtherwise,
  failurePoints,
  OUTAGES_MS,
  outagePoints,
  playIn,
} from "../../harness/world/failing-calls.ts";
import { scenarios } from "../../harness/world/scenarios.ts";

/** So many failures are tried here for each scenario; `npm run test:durable -- --part failures` tries all, `--part outages` too. */
const TRIED = 4;

it("a replay that reads a session through an outage is not taken for one that does not match", async () => {
  const scenario = scenarios.find(({ name }) => name === "a session with history and state");
  if (scenario === undefined) throw new Error("There is no such scenario.");
  const course: Course = { late: true, alwaysReplay: true };
  const unfailed = await playIn(scenario, course);
  const calls = unfailed.world.processes[0]?.storeCalls ?? [];
  const reads = calls.flatMap((method, index) => (method === "session" ? [index + 1] : []));
  const wrong: string[] = [];
  for (const call of reads.slice(0, 8))
    wrong.push(...(await failedOtherwise(scenario, course, { call, after: false, late: true, ms: 20_000 }, unfailed)));
  expect(wrong).toEqual([]);
});

// The parent is replayed while the sub-run that it has begun is in this process, and not in the store yet.
it("a sub-run that the store has not taken yet is not looked for in vain", async () => {
  const scenario = scenarios.find(({ name }) => name === "sub-runs that wait side by side, below a sub-run");
  if (scenario === undefined) throw new Error("There is no such scenario.");
  const course: Course = { late: false, alwaysReplay: true };
  const unfailed = await playIn(scenario, course);
  const wrong: string[] = [];
  for (let call = 14; call <= 17; call++)
    wrong.push(...(await failedOtherwise(scenario, course, { call, after: false, late: true, ms: 20_000 }, unfailed)));
  expect(wrong).toEqual([]);
});

it.each(scenarios.map((scenario, index) => ({ scenario, index, name: scenario.name })))(
  "any call of the store may fail: $name",
  async ({ scenario, index }) => {
    const course = courses[index % courses.length] as Course;
    const unfailed = await playIn(scenario, course);
    const calls = unfailed.world.processes[0]?.storeCalls ?? [];
    const points = [...failurePoints(calls), ...OUTAGES_MS.flatMap((ms) => outagePoints(calls, ms))];
    const wrong: string[] = [];
    for (let nth = 0; nth < TRIED; nth++) {
      const point = points[Math.floor(((nth + (index % 7) / 7) / TRIED) * points.length)];
      if (point !== undefined) wrong.push(...(await failedOtherwise(scenario, course, point, unfailed)));
    }
    expect(wrong).toEqual([]);
  },
);
