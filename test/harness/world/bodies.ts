import type { AgentContext, StepScope } from "cadenza";
import type { Player } from "../program-player.ts";
import { markOf } from "../tenants.ts";
import type { Process } from "./world.ts";
import { atOnce } from "./world.ts";

/** The body of a step: checks that it may run, takes some time, and gives a value. */
export async function body<T>(
  process: Process,
  context: Pick<AgentContext, "run_id">,
  { key, attempt }: Pick<StepScope, "key" | "attempt">,
  value: T,
  ms = 5,
  tenant = "",
): Promise<T> {
  const { world } = process;
  if (process.state === "dead") return new Promise<T>(() => {});
  const runKey = { tenant, run_id: context.run_id };
  const owner = atOnce(world.store.find(runKey))?.head.owner ?? null;
  const running = { process: process.name, run_id: `${markOf(tenant || undefined)}${context.run_id}`, key, attempt };
  world.bodies.began({ ...running, owner, log: atOnce(world.store.read(runKey, 0, 1_000_000)) });
  // It renews no lease meanwhile. A process that was just frozen still finishes its turn.
  if (process.clockStands || process.state === "frozen") world.bodies.left(process.name);
  process.bodies += 1;
  if (ms > 0) await process.wait(ms);
  process.bodies -= 1;
  world.bodies.ended(running);
  return value;
}

/** Performs programs in a process. */
export function playerIn(process: Process): Player {
  return {
    work: ({ run_id, tenant, ms, ...step }) => body(process, { run_id }, step, undefined, ms, tenant),
    pause: (ms) => process.wait(ms),
    got: ({ run_id, tenant, key }) =>
      process.world.bodies.got({ process: process.name, run_id: `${markOf(tenant)}${run_id}`, key }),
  };
}
