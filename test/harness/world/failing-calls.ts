import type { Method } from "../store-proxy.ts";
import { isRead } from "../store-proxy.ts";
import { comparable } from "./crash-points.ts";
import type { Played } from "./play.ts";
import { play } from "./play.ts";
import type { Scenario } from "./scenario.ts";
import type { Failure } from "./world.ts";
import { SECRET } from "./world.ts";

/* Calls of a store that fail while their process lives, one at a time, or all for a while. */

/** How a scenario is executed. In a replay the agent is called again after every commit. */
export interface Course {
  readonly late: boolean;
  readonly alwaysReplay: boolean;
}

export const courses: readonly Course[] = [false, true].flatMap((late) =>
  [false, true].map((alwaysReplay) => ({ late, alwaysReplay })),
);

/** How long an outage lasts, in milliseconds. A lease is 1,000 ms long. */
export const OUTAGES_MS = [1_500, 20_000] as const;

/** The scenarios that end in another way if they take longer, since they have deadlines. */
const TIMED = /deadline|too long|times out|run that takes|cancel|session|sleep|aborted|outruns|at the same time|race/;

/** Each call, as one that fails alone: thrown at once or rejected, and for writes with and without their effect. */
export function failurePoints(calls: readonly Method[]): Failure[] {
  return calls.flatMap((method, index) =>
    [false, true].flatMap((late) =>
      (isRead(method) ? [false] : [false, true]).map((after) => ({ call: index + 1, after, late })),
    ),
  );
}

/** An outage that begins at each call. */
export function outagePoints(calls: readonly Method[], ms: number): Failure[] {
  return calls.map((_method, index) => ({ call: index + 1, after: index % 3 === 0, late: index % 2 === 0, ms }));
}

export function playIn(scenario: Scenario, { late, alwaysReplay }: Course, failure?: Failure): Promise<Played> {
  const durability = { leaseMs: 1_000, heartbeatMs: 300, scanMs: 100, alwaysReplay };
  return play(scenario, { late, failure, runtime: { durability } });
}

/** What is wrong with a play in which calls of the store failed, compared with one in which none did. */
export async function failedOtherwise(
  scenario: Scenario,
  course: Course,
  failure: Failure,
  unfailed: Played,
): Promise<string[]> {
  const method = unfailed.world.processes[0]?.storeCalls[failure.call - 1];
  const where = `${scenario.name}, ${JSON.stringify(course)}, ${method} ${JSON.stringify(failure)}`;
  try {
    const played = await playIn(scenario, course, failure);
    const { world, ending } = played;
    const wrong = [...world.violations];
    // After a failure the calls may come in another order, or be fewer.
    if (world.processes.length !== unfailed.world.processes.length) wrong.push("a process was started");
    const isTimed = failure.ms !== undefined && TIMED.test(scenario.name);
    const [is, must] = [comparable(scenario, ending), comparable(scenario, unfailed.ending)];
    if (!isTimed && is !== must) wrong.push(`ended as ${is}, and otherwise as ${must}`);
    for (const { key, head } of await world.store.list({ tenant: "", limit: 100, offset: 0 })) {
      if (head.blocked !== null) wrong.push(`${key.run_id} is blocked: ${JSON.stringify(head.blocked)}`);
      if (JSON.stringify(await world.log(key.run_id)).includes(SECRET)) wrong.push(`a log holds what the store said`);
    }
    if (JSON.stringify(played.run).includes(SECRET)) wrong.push("a client sees what the store said");
    return wrong.map((what) => `${where}: ${what}`);
  } catch (error) {
    return [`${where}: ${error instanceof Error ? error.message.slice(0, 3_000) : String(error)}`];
  }
}
