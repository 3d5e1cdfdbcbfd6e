import type { Outcome, Process, World } from "./world.ts";

/* Calls of tests to their processes, and the outcomes. */

/** The result of a call. Throws the error of the call, or if its process died meanwhile. */
export function given<T>(outcome: Outcome<T> | undefined): T {
  if (outcome === undefined) throw new Error("The process died.");
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

/** Creates a run in a process, and gives its id once it is accepted. */
export async function create(world: World, process: Process, agent_name = "agent", input = ""): Promise<string> {
  const creating = process.runtime.createRun({ agent_name, input, mode: "async" });
  return given(await world.until(creating, process)).run_id;
}

/** Creates so many runs in a process, one after the other. */
export async function createMany(
  world: World,
  process: Process,
  count: number,
  agent_name = "agent",
): Promise<string[]> {
  const ids: string[] = [];
  for (let run = 0; run < count; run++) ids.push(await create(world, process, agent_name, `${run}`));
  return ids;
}

/** How many runs have each status. */
export async function statuses(world: World, ids: readonly string[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const run_id of ids) {
    const { status } = await world.stateOf(run_id);
    counts[status] = (counts[status] ?? 0) + 1;
  }
  return counts;
}
