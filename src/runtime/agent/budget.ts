import { checkCount, checkKeys, checkObject } from "./check.ts";

/** A limit on what a run and all runs below it may use. A run that exceeds it fails with the reason `budget_exceeded`. */
export interface BudgetOptions {
  /** How many tokens, as `usage.add` reports them: input and output, cached ones included. `Infinity`: no limit. */
  readonly totalTokens: number;
}

/** Reads a budget. Throws `invalid_argument`. */
export function readBudget(name: string, budget: BudgetOptions | undefined): number | undefined {
  if (budget === undefined) return undefined;
  checkObject(name, budget);
  checkKeys(name, budget, ["totalTokens"]);
  checkCount(`${name}.totalTokens`, budget.totalTokens);
  return budget.totalTokens;
}
