import type { Plant } from "../planted-faults.ts";
import type { Method } from "../store-proxy.ts";
import type { Ending, Played } from "./play.ts";
import { play } from "./play.ts";
import type { Scenario } from "./scenario.ts";
import type { Crash } from "./world.ts";

const writes: ReadonlySet<Method> = new Set(["create", "append", "post", "claim", "putSession", "makeSession"]);
/** Calls that a process repeats while it waits. Only the first two crashes at each of them are tried. */
const habits: ReadonlySet<Method> = new Set(["take", "moved", "renew", "find", "owned"]);
const MAX_HABITS = 3;

/** The crashes of a process with these calls to its store: before and after each write, and at each other call. */
export function crashPoints(calls: readonly Method[]): Crash[] {
  const points: Crash[] = [];
  let habit = 0;
  calls.forEach((method, index) => {
    const call = index + 1;
    habit = habits.has(method) ? habit + 1 : 0;
    if (writes.has(method)) points.push({ call, after: false }, { call, after: true });
    else if (habit <= MAX_HABITS) points.push({ call, after: false });
  });
  return points;
}

/** What is wrong with a play in which the first process died at this crash, compared with one without a crash. */
export async function crashedOtherwise(
  scenario: Scenario,
  crashes: readonly Crash[],
  uncrashed: Played,
  late: boolean,
  plant?: Plant,
): Promise<string[]> {
  const { world, ending } = await play(scenario, { crashes, late, plant });
  const where = JSON.stringify(crashes);
  const wrong = world.violations.map((violation) => `${where}: ${violation}`);
  if (comparable(scenario, ending) !== comparable(scenario, uncrashed.ending))
    wrong.push(`${where}: ended as ${JSON.stringify(ending)}`);
  return wrong;
}

/** An ending as text, without an order where there is none. */
export function comparable({ isUnordered }: Scenario, ending: Ending): string {
  return JSON.stringify(isUnordered ? { ...ending, history: [...ending.history].sort() } : ending);
}
