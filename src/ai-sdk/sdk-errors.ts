import { CadenzaError } from "../core/errors.ts";
import { messageOf } from "../core/failure.ts";

/** The symbols that mark the errors of the AI SDK, in every version and copy of it. */
const MARKERS = ["vercel.ai.error", "vercel.ai.gateway.error"].map((name) => Symbol.for(name));

/** A stream that broke off, or that reported an error which says nothing about trying again. */
export class BrokenStreamError extends Error {
  override readonly name = "BrokenStreamError";
}

/** The error of a stream that has begun. Errors of the SDK stay as they are. */
export function errorOfStream(error: unknown): unknown {
  if (isMarked(error) || CadenzaError.is(error)) return error;
  return new BrokenStreamError(`The stream broke off: ${textOfError(error)}`, { cause: error });
}

/** Whether another attempt at the model call may succeed. */
export function isRetryable(error: unknown): boolean {
  if (error instanceof BrokenStreamError) return true;
  if (CadenzaError.is(error)) return error.code === "step_timeout";
  return isMarked(error) && (error as { readonly isRetryable?: unknown }).isRetryable === true;
}

/** The pause that the response asks for, in milliseconds. */
export function retryAfter(error: unknown): number | undefined {
  if (!isMarked(error)) return undefined;
  const headers = (error as { readonly responseHeaders?: Readonly<Record<string, string>> }).responseHeaders ?? {};
  const milliseconds = numberIn(headers["retry-after-ms"]);
  if (milliseconds !== undefined) return milliseconds;
  const after = headers["retry-after"];
  const seconds = numberIn(after);
  if (seconds !== undefined) return seconds * 1_000;
  // A date is compared with the response's own, so that the clocks of two machines are not.
  const pause = Date.parse(after ?? "") - Date.parse(headers["date"] ?? "");
  return Number.isNaN(pause) ? undefined : Math.max(0, pause);
}

/** The error as the AI SDK gets it: without the mark by which the SDK would try again by itself. */
export function withoutMark(error: unknown): unknown {
  if (!isMarked(error)) return error;
  const plain = new Error(textOfError(error), { cause: error });
  plain.name = (error as Error).name;
  return plain;
}

/** The message of whatever was thrown, as the AI SDK shows it to the model. */
export function textOfError(error: unknown): string {
  if (error instanceof Error || typeof error === "string") return messageOf(error);
  try {
    return JSON.stringify(error) ?? String(error);
  } catch {
    return String(error);
  }
}

function isMarked(error: unknown): boolean {
  return typeof error === "object" && error !== null && MARKERS.some((marker) => marker in error);
}

function numberIn(text: string | undefined): number | undefined {
  const value = Number(text?.trim() || Number.NaN);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
}
