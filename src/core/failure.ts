import type { ErrorCode, ProtocolError } from "../protocol/error.ts";
import type { JsonObject } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { CadenzaErrorCode, CadenzaErrorDetails } from "./errors.ts";
import { AgentError, CadenzaError } from "./errors.ts";
import { copyJson } from "./json.ts";
import type { StepFailure } from "./log.ts";

const wireCodes: readonly string[] = ["server_error", "invalid_input", "not_found"] satisfies ErrorCode[];

/**
 * The error that the client sees when a run fails. An `AgentError` is meant for clients, and the library's own errors
 * contain no secrets. The message of any other error is shown only with `exposeErrors`.
 */
export function failureOf(error: unknown, exposeErrors: boolean): ProtocolError {
  if (AgentError.is(error)) return agentFailure(error);
  if (CadenzaError.is(error)) return { code: "server_error", message: error.message, data: { reason: error.code } };
  const message = exposeErrors ? messageOf(error) : "The agent failed.";
  return { code: "server_error", message, data: { reason: "agent_failed" } };
}

/**
 * What is recorded of the error that ended a run, for its operators. Undefined for the errors that clients see as they
 * are: an `AgentError`, and the library's own.
 */
export function causeOf(error: unknown): StepFailure | undefined {
  if (AgentError.is(error) || CadenzaError.is(error)) return undefined;
  const failure = { name: "Error", message: messageOf(error).slice(0, MAX_CAUSE), code: null, data: undefined };
  try {
    if (!(error instanceof Error)) return failure;
    const stacks: string[] = [];
    for (let at: unknown = error; at instanceof Error && stacks.length < MAX_CAUSES; at = at.cause)
      stacks.push(String(at.stack));
    return { ...failure, name: String(error.name), stack: stacks.join("\nCaused by: ").slice(0, MAX_CAUSE) };
  } catch {
    // The error has an accessor that throws.
    return failure;
  }
}

/** How many characters are recorded of a message, and of all stacks. */
const MAX_CAUSE = 4_000;
const MAX_CAUSES = 4;

/** An error like the one that a step threw. */
export function errorOfStep({ name, message, code, data }: StepFailure): Error {
  // The log holds the code of a CadenzaError as a string.
  if (name === "CadenzaError")
    return new CadenzaError(code as CadenzaErrorCode, message, data as CadenzaErrorDetails | undefined);
  if (code !== null) return new AgentError(code, message, data);
  const error = new Error(message);
  error.name = name;
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

function agentFailure({ code, message, data }: AgentError): ProtocolError {
  const details = dataOf(data);
  if (wireCodes.includes(code)) return { code: code as ErrorCode, message, ...(details && { data: details }) };
  return { code: "server_error", message, data: { ...details, reason: code } };
}

/** The data of an error as an object. Data that is not JSON is left out, so that the error itself is not lost. */
function dataOf(data: unknown): JsonObject | undefined {
  try {
    const copy = copyJson(data);
    if (copy === undefined) return undefined;
    return isJsonObject(copy) ? copy : { value: copy };
  } catch {
    return undefined;
  }
}
