import { CadenzaError } from "../../core/errors.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { StepOptions, StepRetry } from "../agent/agent-steps.ts";
import { badArgument, checkAmount, checkKeys, checkObject, checkText } from "../agent/check.ts";
import { isNested } from "./nested-operations.ts";
import { SeededRandom } from "./random.ts";

/** The names that the keys of other operations begin with. */
const reservedNames = /^(?:(?:ask|await|sleep)$|(?:ask|sleep|run|receive):|session\.)/;

const DEFAULT_FACTOR = 2;
const DEFAULT_MAX_BACKOFF_MS = 60_000;

/** Throws `invalid_argument` for a name that a step cannot have. */
export function checkStepName(name: unknown): asserts name is string {
  checkText("step name", name);
  if (!reservedNames.test(name)) return;
  const expected =
    "a name other than ask, await and sleep that does not begin with ask:, sleep:, run:, receive: or session., " +
    "since the keys of other operations have these forms";
  throw badArgument("step name", expected, name);
}

/** Throws `invalid_argument` for unknown or invalid options of a step. `limits`: those that the runtime declares. */
export function checkStepOptions(options: StepOptions, limits: readonly string[]): void {
  checkObject("options", options);
  checkKeys("options", options, ["once", "timeoutMs", "stallMs", "retry", "limit"]);
  const { limit } = options;
  if (limit !== undefined && !limits.includes(limit)) {
    const declared = limits.length === 0 ? "there are none" : `there are ${limits.join(", ")}`;
    throw badArgument("options.limit", `one of the runtime's stepLimits (${declared})`, limit);
  }
  if (options.timeoutMs !== undefined) checkAmount("options.timeoutMs", options.timeoutMs);
  if (options.stallMs !== undefined) checkAmount("options.stallMs", options.stallMs);
  if (options.retry !== undefined) checkRetry(options.retry);
}

function checkRetry(retry: StepRetry): void {
  checkObject("options.retry", retry);
  checkKeys("options.retry", retry, ["attempts", "backoffMs", "factor", "maxBackoffMs", "when", "pauseMs"]);
  const { attempts, backoffMs, factor, maxBackoffMs, when, pauseMs } = retry;
  if (!(Number.isInteger(attempts) && attempts >= 1))
    throw badArgument("options.retry.attempts", "a whole number from 1 on", attempts);
  if (backoffMs !== undefined && !(Number.isFinite(backoffMs) && backoffMs >= 0))
    throw badArgument("options.retry.backoffMs", "a finite number from 0 on", backoffMs);
  if (factor !== undefined && !(Number.isFinite(factor) && factor >= 1))
    throw badArgument("options.retry.factor", "a finite number from 1 on", factor);
  if (maxBackoffMs !== undefined) checkAmount("options.retry.maxBackoffMs", maxBackoffMs);
  if (when !== undefined && typeof when !== "function") throw badArgument("options.retry.when", "a function", when);
  if (pauseMs !== undefined && typeof pauseMs !== "function")
    throw badArgument("options.retry.pauseMs", "a function", pauseMs);
}

/**
 * The pause after an attempt that failed with this error, in whole milliseconds. Where the error asks for none, it lies
 * between half and the whole of what the options say, so that steps that failed together do not try again together. The
 * place between is computed from `seed`, which differs for each run, step and attempt.
 */
export function pauseAfter(attempt: number, error: unknown, retry: StepRetry | undefined, seed: string): number {
  const { backoffMs = 0, factor = DEFAULT_FACTOR } = retry ?? {};
  const maxBackoffMs = retry?.maxBackoffMs ?? Math.max(backoffMs, DEFAULT_MAX_BACKOFF_MS);
  const asked = askedPause(error, retry);
  if (asked !== undefined) return Math.round(Math.min(maxBackoffMs, asked));
  if (backoffMs === 0) return 0;
  const whole = Math.min(maxBackoffMs, backoffMs * factor ** (attempt - 1));
  return Math.round((whole * (1 + new SeededRandom(seed).number())) / 2);
}

/** The pause that an error asks for; undefined for none, and for what is no time. */
function askedPause(error: unknown, retry: StepRetry | undefined): number | undefined {
  try {
    const asked: unknown = retry?.pauseMs?.(error);
    // Nothing waits for a promise.
    if (isPromise(asked)) asked.then(ignore, ignore);
    return typeof asked === "number" && asked >= 0 ? asked : undefined;
  } catch {
    return undefined;
  }
}

/** The error with which a step fails after an attempt has failed. Undefined: there is another attempt. */
export function failureAfter(
  error: unknown,
  isLast: boolean,
  retry: StepRetry | undefined,
): { readonly error: unknown } | undefined {
  if (isLast || isNested(error)) return { error };
  try {
    return retry?.when === undefined || isRetried(retry.when(error)) ? undefined : { error };
  } catch (thrown) {
    return { error: thrown };
  }
}

/** A promise is true whatever it resolves with, so it is refused. */
function isRetried(answer: unknown): boolean {
  if (!isPromise(answer)) return Boolean(answer);
  answer.then(ignore, ignore);
  throw badArgument("options.retry.when", "a function that returns true or false", answer);
}

/** The error of an attempt that took longer than its `timeoutMs`, or was silent for its `stallMs`. */
export function stepTimeoutError(
  runId: string,
  key: string,
  attempt: number,
  exceeded: "timeoutMs" | "stallMs",
  limitMs: number,
): CadenzaError {
  const what = exceeded === "timeoutMs" ? "took longer than" : "emitted nothing for longer than";
  const message = `Step ${key}: attempt ${attempt} ${what} its ${exceeded} (${limitMs}).`;
  return new CadenzaError("step_timeout", message, { run_id: runId });
}
