import type { Budget } from "../../core/log.ts";
import type { RunKey } from "../../core/ports.ts";
import { RunMap } from "../../core/run-map.ts";
import { addUsage, left } from "../../core/usage.ts";
import type { Usage } from "../../protocol/extensions.ts";

/**
 * What the runs below a run with a budget have used, and what that leaves of the budget. A sub-run in this process is
 * counted at each report, one in another process by what its log holds.
 */
export class Spending {
  readonly #budget: Budget;
  /** What the sub-runs without a result have used. */
  readonly #below = new RunMap<Usage>();
  #tokensBelow = 0;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** What the sub-runs without a result have used. */
  get below(): Usage | null {
    let sum: Usage | null = null;
    for (const usage of this.#below.values()) sum = addUsage(sum, usage);
    return sum;
  }

  /** Notes what a sub-run has used so far. */
  note(key: RunKey, usage: Usage | null): void {
    this.#tokensBelow += (usage?.total_tokens ?? 0) - (this.#below.get(key)?.total_tokens ?? 0);
    if (usage === null) this.#below.delete(key);
    else this.#below.set(key, usage);
  }

  /** How many tokens of the budget are left. `own`: what the run itself has used. */
  left(own: Usage | null): number {
    return Math.max(0, left(this.#budget, own) - this.#tokensBelow);
  }

  isExceeded(own: Usage | null): boolean {
    return (own?.total_tokens ?? 0) + this.#tokensBelow > this.#budget.total_tokens;
  }
}
