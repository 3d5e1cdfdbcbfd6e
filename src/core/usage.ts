import type { Usage } from "../protocol/extensions.ts";
import type { Budget, ResultEntry } from "./log.ts";
import type { RunState } from "./state.ts";
import { settledQuestion } from "./state.ts";

/** How many tokens of a budget are left. */
export function left(budget: Budget, usage: Usage | null): number {
  return Math.max(0, budget.total_tokens - (usage?.total_tokens ?? 0));
}

/** The usage that the log holds with the result of an operation: in its entry or, for a question, where it was asked. */
export function usageWith(result: ResultEntry, state: RunState): Usage | null {
  if (result.type === "step") return result.usage;
  if (result.type === "taken" || result.await_id === null) return null;
  return settledQuestion(state, result.await_id)?.asked.usage ?? null;
}

/** The sum of two usages. A missing one counts as zero. */
export function addUsage(a: Usage | null, b: Usage | null): Usage | null {
  if (a === null) return b;
  if (b === null) return a;
  return {
    input_tokens: a.input_tokens + b.input_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    total_tokens: a.total_tokens + b.total_tokens,
    cached_input_tokens: a.cached_input_tokens + b.cached_input_tokens,
    cache_write_tokens: a.cache_write_tokens + b.cache_write_tokens,
    reasoning_tokens: a.reasoning_tokens + b.reasoning_tokens,
  };
}

/** What counts for the budget of a run: each generation has the whole one, but what limits a sub-run is above it. */
export function usageOfGeneration({ created, generation, usage }: RunState, all = usage): Usage | null {
  const before = created?.parent === undefined ? generation?.used : null;
  return all === null || before == null ? all : (subtractUsage(all, before) ?? null);
}

/** A usage minus a part of it; undefined if it does not contain the part. */
export function subtractUsage(whole: Usage, part: Usage): Usage | undefined {
  const rest = {
    input_tokens: whole.input_tokens - part.input_tokens,
    output_tokens: whole.output_tokens - part.output_tokens,
    total_tokens: whole.total_tokens - part.total_tokens,
    cached_input_tokens: whole.cached_input_tokens - part.cached_input_tokens,
    cache_write_tokens: whole.cache_write_tokens - part.cache_write_tokens,
    reasoning_tokens: whole.reasoning_tokens - part.reasoning_tokens,
  };
  return Object.values(rest).some((count) => count < 0) ? undefined : rest;
}
