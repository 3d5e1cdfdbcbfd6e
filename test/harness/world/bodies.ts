import type { AgentContext, StepScope } from "cadenza";
import { isFinal } from "../internals.ts";
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
  const log = atOnce(world.store.read(runKey, 0, 1_000_000));
  const stored = atOnce(world.store.find(runKey));
  const say = (what: string): void =>
    void world.violations.push(`${process.name}, ${markOf(tenant || undefined)}${key}, attempt ${attempt}: ${what}`);
  if (log?.some((entry) => entry.type === "step" && entry.key === key)) say("has a result, and runs again");
  if (!log?.some((entry) => entry.type === "intent" && entry.key === key && entry.attempt === attempt))
    say("runs without an intent in the log");
  if (stored?.head.owner !== process.name) say(`runs, and the run belongs to ${stored?.head.owner}`);
  if (stored !== undefined && isFinal(stored.head.status)) say("runs, and the run has ended");
  process.bodies += 1;
  if (ms > 0) await process.wait(ms);
  process.bodies -= 1;
  return value;
}

/** Performs programs in a process. */
export function playerIn(process: Process): Player {
  return {
    work: ({ run_id, tenant, ms, ...step }) => body(process, { run_id }, step, undefined, ms, tenant),
    pause: (ms) => process.wait(ms),
  };
}
