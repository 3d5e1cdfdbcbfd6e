import type { ErrorCode, ProtocolError } from "../protocol/error.ts";
import type { JsonObject, JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { CadenzaErrorCode, CadenzaErrorDetails } from "./errors.ts";
import { AgentError, CadenzaError } from "./errors.ts";
import { copyJson } from "./json.ts";

const wireCodes: readonly string[] = ["server_error", "invalid_input", "not_found"] satisfies ErrorCode[];

/** An error that a step threw, as it is recorded. */
export interface StepFailure {
  readonly name: string;
  readonly message: string;
  readonly code: string | null;
  readonly data: JsonValue | undefined;
  /** Where it was thrown, with the errors behind it. For operators and agents alone. */
  readonly stack?: string;
}

/**
 * The error that the client sees when a run fails. An `AgentError` is meant for clients, and the library's own errors
 * contain no secrets. What a store says, and the message of any other error, is not: the latter is shown with `exposeErrors`.
 */
export function failureOf(error: unknown, exposeErrors: boolean): ProtocolError {
  const told = toldBy(error);
  if (told !== undefined) return agentFailure(told);
  if (CadenzaError.is(error)) {
    // A store of the host may have put into the message what its database said.
    const message = error.code === "store_failed" ? "The store failed." : error.message;
    return { code: "server_error", message, data: { reason: error.code } };
  }
  const message = exposeErrors ? messageOf(error) : "The agent failed.";
  return { code: "server_error", message, data: { reason: "agent_failed" } };
}

/** An error as the log holds it. */
export function failureOfStep(error: unknown): StepFailure {
  const message = messageOf(error);
  const told = toldBy(error);
  if (told !== undefined) return { name: "AgentError", ...told };
  if (CadenzaError.is(error)) return { name: "CadenzaError", message, code: error.code, data: detailsOf(error) };
  const failure = { name: "Error", message: message.slice(0, MAX_MESSAGE), code: null, data: undefined };
  try {
    if (!(error instanceof Error)) return failure;
    const stacks: string[] = [];
    for (let at: unknown = error; at instanceof Error && stacks.length < MAX_STACKS; at = at.cause)
      stacks.push(String(at.stack));
    return { ...failure, name: String(error.name), stack: stacks.join("\nCaused by: ").slice(0, MAX_STACK) };
  } catch {
    // The error has an accessor that throws.
    return failure;
  }
}

/** How many characters are recorded of the message of any error. */
const MAX_MESSAGE = 10_000;
/** How many errors, each the cause of the one before, are recorded with their stacks, and how many characters in all. */
const MAX_STACKS = 4;
const MAX_STACK = 4_000;

/** What is recorded of the error that ended a run. Undefined: its client sees all of it. */
export function causeOf(error: unknown): StepFailure | undefined {
  return toldBy(error) !== undefined || CadenzaError.is(error) ? undefined : failureOfStep(error);
}

/** An error like the one that a step threw. */
export function errorOfStep({ name, message, code, data, stack }: StepFailure): Error {
  // The log holds the code of a CadenzaError as a string.
  if (name === "CadenzaError")
    return new CadenzaError(code as CadenzaErrorCode, message, data as CadenzaErrorDetails | undefined);
  if (code !== null) return new AgentError(code, message, data);
  const error = new Error(message);
  error.name = name;
  if (stack !== undefined) error.stack = stack;
  return error;
}

/** The message of any thrown value, even of an object that cannot be converted to a string. */
export function messageOf(error: unknown): string {
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return "an error without a message";
  }
}

/** What an `AgentError` tells its client. Undefined: it is none, or its fields were changed to something that is no text. */
function toldBy(error: unknown): (Pick<StepFailure, "message" | "data"> & { readonly code: string }) | undefined {
  if (!AgentError.is(error)) return undefined;
  try {
    const { code, message, data }: { readonly code: unknown; readonly message: unknown; readonly data?: unknown } =
      error;
    return typeof code === "string" && typeof message === "string" ? { code, message, data: jsonOf(data) } : undefined;
  } catch {
    return undefined;
  }
}

function agentFailure({ code, message, data }: NonNullable<ReturnType<typeof toldBy>>): ProtocolError {
  const details = dataOf(data);
  if (wireCodes.includes(code)) return { code: code as ErrorCode, message, ...(details && { data: details }) };
  return { code: "server_error", message, data: { ...details, reason: code } };
}

/** The data of an error as an object. */
function dataOf(data: JsonValue | undefined): JsonObject | undefined {
  return data === undefined || isJsonObject(data) ? data : { value: data };
}

/** The data of an error. Data that is not JSON is left out, so that the error itself is not lost. */
function jsonOf(data: unknown): JsonValue | undefined {
  try {
    return copyJson(data);
  } catch {
    return undefined;
  }
}

/** The fields of a `CadenzaError` beside its message and its cause. */
function detailsOf({ agent_name, run_id, session_id, await_id, issues, limit }: CadenzaError): JsonValue | undefined {
  const details = copyJson({ agent_name, run_id, session_id, await_id, issues, limit });
  return isJsonObject(details) && Object.keys(details).length > 0 ? details : undefined;
}
