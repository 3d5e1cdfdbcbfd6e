import type { Usage } from "../../protocol/extensions.ts";
import { badArgument, checkCount, checkKeys, checkObject } from "./check.ts";

/**
 * Reads the usage object of a model call from the AI SDK (versions 4 to 7), OpenAI's Chat Completions and Responses,
 * and Anthropic's Messages. `input_tokens` includes cached tokens. Anthropic leaves them out of its `input_tokens`, so
 * they are added.
 */
export function readUsage(value: unknown): Usage {
  if (!isRecord(value)) throw badArgument("usage", "a usage object of a model SDK", value);
  const anthropicRead = count(value["cache_read_input_tokens"]);
  const anthropicWrite = count(value["cache_creation_input_tokens"]);
  const input = first(
    total(value["inputTokens"]),
    value["promptTokens"],
    value["input_tokens"],
    value["prompt_tokens"],
  );
  const output = first(
    total(value["outputTokens"]),
    value["completionTokens"],
    value["output_tokens"],
    value["completion_tokens"],
  );
  const totalTokens = first(value["totalTokens"], value["total_tokens"]);
  if (input === undefined && output === undefined && totalTokens === undefined) {
    throw badArgument("usage", "input, output or total tokens under one of their usual names", value);
  }
  const input_tokens = (input ?? 0) + anthropicRead + anthropicWrite;
  const output_tokens = output ?? 0;
  const cached = first(
    value["cachedInputTokens"],
    value["cached_input_tokens"],
    field(value["inputTokenDetails"], "cacheReadTokens"),
    field(value["inputTokens"], "cacheRead"),
    field(value["prompt_tokens_details"], "cached_tokens"),
    field(value["input_tokens_details"], "cached_tokens"),
  );
  const written = first(
    value["cache_write_tokens"],
    field(value["inputTokenDetails"], "cacheWriteTokens"),
    field(value["inputTokens"], "cacheWrite"),
  );
  const reasoning = first(
    value["reasoningTokens"],
    value["reasoning_tokens"],
    field(value["outputTokenDetails"], "reasoningTokens"),
    field(value["outputTokens"], "reasoning"),
    field(value["completion_tokens_details"], "reasoning_tokens"),
    field(value["output_tokens_details"], "reasoning_tokens"),
  );
  return {
    input_tokens,
    output_tokens,
    total_tokens: Math.max(totalTokens ?? 0, input_tokens + output_tokens),
    cached_input_tokens: (cached ?? 0) + anthropicRead,
    cache_write_tokens: (written ?? 0) + anthropicWrite,
    reasoning_tokens: reasoning ?? 0,
  };
}

/** Newer versions of the AI SDK break a figure down: `{ total, noCache, cacheRead, … }`. */
function total(value: unknown): unknown {
  return isRecord(value) ? value["total"] : value;
}

function field(value: unknown, key: string): unknown {
  return isRecord(value) ? value[key] : undefined;
}

/** The first of the values that is a count. Providers leave an unknown count out, or send null or NaN. */
function first(...values: readonly unknown[]): number | undefined {
  return values.find((value): value is number => typeof value === "number" && value >= 0 && Number.isFinite(value));
}

function count(value: unknown): number {
  return first(value) ?? 0;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

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
