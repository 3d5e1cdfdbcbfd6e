import { CadenzaError } from "../core/errors.ts";
import type { Budget } from "../core/log.ts";
import { addUsage, left } from "../core/usage.ts";
import type { Usage } from "../protocol/extensions.ts";
import type { Execution } from "./execution.ts";
import type { RunLog } from "./run-log.ts";

/** A run with a budget. */
interface SpendingRun {
  readonly log: RunLog;
  readonly execution: Execution | undefined;
  readonly family: SpendingFamily;
  /** Cancels the sub-runs. */
  onEnd(): void;
}

interface SpendingFamily {
  /** The run that has started this one, while it follows. */
  readonly parent: SpendingRun | undefined;
  /** The sub-runs that this process executes. */
  readonly children: Iterable<SpendingRun>;
  readonly spending: Spending | undefined;
}

/**
 * What a run with a budget has used, with the runs below it. A sub-run in this process is counted at each report, one in
 * another process by what its log holds. Each run below a budget has a budget itself, at most what was left then.
 */
export class Spending {
  readonly #run: SpendingRun;
  readonly #budget: Budget;
  /** What the sub-runs without a result have used. */
  readonly #below = new Map<string, Usage>();
  #tokensBelow = 0;

  constructor(run: SpendingRun, budget: Budget) {
    this.#run = run;
    this.#budget = budget;
  }

  /** What the run has used, with the runs below it. */
  get usage(): Usage | null {
    return addUsage(this.#own, this.below);
  }

  /** What the sub-runs without a result have used. */
  get below(): Usage | null {
    let sum: Usage | null = null;
    for (const usage of this.#below.values()) sum = addUsage(sum, usage);
    return sum;
  }

  /** How many tokens are left, of the budgets above the run too. */
  get left(): number {
    const own = Math.max(0, left(this.#budget, this.#own) - this.#tokensBelow);
    return Math.min(own, this.#above?.left ?? own);
  }

  /** Notes what a sub-run has used so far. */
  note(runId: string, usage: Usage | null): void {
    this.#tokensBelow += (usage?.total_tokens ?? 0) - (this.#below.get(runId)?.total_tokens ?? 0);
    if (usage === null) this.#below.delete(runId);
    else this.#below.set(runId, usage);
  }

  /** Tells the runs above, and stops the highest of them that has exceeded its budget. */
  check(): void {
    let highest: Spending | undefined;
    let each: Spending | undefined = this;
    while (each !== undefined) {
      if (each.#isExceeded) highest = each;
      const above: Spending | undefined = each.#above;
      above?.note(each.#run.log.key.run_id, each.usage);
      each = above;
    }
    if (highest !== undefined) highest.#exceed();
  }

  /** Stops the run, and the runs below it. */
  #exceed(): void {
    const { execution } = this.#run;
    // An agent that is executed again is stopped where it was, not on the way there.
    if (execution === undefined || execution.isStopped || execution.operations.isCatchingUp) return;
    const command = { type: "exceed", at: execution.clock.now(), usage: execution.takeUsage() } as const;
    if (execution.stopBy(command)) stopBelow(this.#run);
  }

  get #isExceeded(): boolean {
    return (this.#own?.total_tokens ?? 0) + this.#tokensBelow > this.#budget.total_tokens;
  }

  get #own(): Usage | null {
    const { execution, log } = this.#run;
    return execution === undefined ? log.state.usage : execution.usage;
  }

  get #above(): Spending | undefined {
    return this.#run.family.parent?.family.spending;
  }
}

/** Stops the agents of the sub-runs at once, and not when their cancels are committed: they would use more meanwhile. */
function stopBelow(run: SpendingRun): void {
  run.onEnd();
  for (const child of run.family.children) {
    stopBelow(child);
    const { execution, log } = child;
    if (execution?.operations.isCatchingUp === false)
      execution.abort(new CadenzaError("run_cancelled", "The run was cancelled.", { run_id: log.key.run_id }));
  }
}
