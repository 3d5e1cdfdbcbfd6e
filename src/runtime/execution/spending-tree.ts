import type { Command } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { Clock } from "../../core/ports.ts";
import { addUsage } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";
import type { RunLog } from "../log/run-log.ts";
import type { RunFamily } from "./run-family.ts";

/** A run whose usage counts for a budget, its own or one above it. */
export interface SpendingRun {
  readonly log: RunLog;
  readonly family: RunFamily<SpendingRun>;
  /** The agent at work on the run: see `Execution`. */
  readonly execution: SpendingAgent | undefined;
  /** The run is about to end: its sub-runs end first. */
  onEnd(): void;
}

interface SpendingAgent {
  readonly usage: Usage | null;
  readonly isStopped: boolean;
  /** Whether the agent does again what the log holds. */
  readonly isCatchingUp: boolean;
  readonly clock: Clock;
  takeUsage(): Usage | null;
  stopBy(command: Command): boolean;
  abort(reason: CadenzaError): void;
}

// Each run below a run with a budget has a budget itself, at most what was left then.

/** How many tokens are left now, of the budgets of a run and of those above it. */
export function tokensLeft(run: SpendingRun): number {
  const { spending, parent } = run.family;
  if (spending === undefined) return Number.POSITIVE_INFINITY;
  const own = spending.left(ownUsage(run));
  return parent === undefined ? own : Math.min(own, tokensLeft(parent));
}

/** What a run has used, with the runs below it. */
export function usageOf(run: SpendingRun): Usage | null {
  return addUsage(ownUsage(run), run.family.spending?.below ?? null);
}

/** Tells the runs above what a run with a budget has used, and stops the highest of them that has exceeded its budget. */
export function checkSpending(run: SpendingRun): void {
  let highest: SpendingRun | undefined;
  let each: SpendingRun | undefined = run;
  while (each?.family.spending !== undefined) {
    if (each.family.spending.isExceeded(ownUsage(each))) highest = each;
    const above: SpendingRun | undefined = each.family.parent;
    above?.family.spending?.note(each.log.key, usageOf(each));
    each = above;
  }
  if (highest !== undefined) exceed(highest);
}

/** Stops a run, and the runs below it. */
function exceed(run: SpendingRun): void {
  const { execution } = run;
  // An agent that is executed again is stopped where it was, not on the way there.
  if (execution === undefined || execution.isStopped || execution.isCatchingUp) return;
  const command = { type: "exceed", at: execution.clock.now(), usage: execution.takeUsage() } as const;
  if (execution.stopBy(command)) stopBelow(run);
}

/** Stops the agents of the sub-runs at once, and not when their cancels are committed: they would use more meanwhile. */
function stopBelow(run: SpendingRun): void {
  run.onEnd();
  for (const child of run.family.children) {
    stopBelow(child);
    const { execution, log } = child;
    if (execution?.isCatchingUp === false)
      execution.abort(new CadenzaError("run_cancelled", "The run was cancelled.", { run_id: log.key.run_id }));
  }
}

function ownUsage({ execution, log }: SpendingRun): Usage | null {
  return execution === undefined ? log.state.usage : execution.usage;
}
