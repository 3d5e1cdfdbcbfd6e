import { AgentError, CadenzaError } from "../core/errors.ts";
import { copyJson } from "../core/json.ts";
import type { ErrorCode, ProtocolError } from "../protocol/error.ts";
import type { JsonObject } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";

const wireCodes: readonly string[] = ["server_error", "invalid_input", "not_found"] satisfies ErrorCode[];

/**
 * What the client is shown of the error that ended a run. An `AgentError` is meant for it, and the library's own errors hold nothing
 * secret. Of any other error nothing is shown, unless `exposeErrors` is set: then its message.
 */
export function failureOf(error: unknown, exposeErrors: boolean): ProtocolError {
  if (AgentError.is(error)) return agentFailure(error);
  if (CadenzaError.is(error)) return { code: "server_error", message: error.message, data: { reason: error.code } };
  const message = exposeErrors ? messageOf(error) : "The agent failed.";
  return { code: "server_error", message, data: { reason: "agent_failed" } };
}

/** The text of anything that can be thrown, an object that cannot be made a text among them. */
export function messageOf(error: unknown): string {
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return "an error without a text";
  }
}

function agentFailure({ code, message, data }: AgentError): ProtocolError {
  const details = dataOf(data);
  if (wireCodes.includes(code)) return { code: code as ErrorCode, message, ...(details && { data: details }) };
  return { code: "server_error", message, data: { ...details, reason: code } };
}

/** On the wire data is an object. What is not JSON after all is left out: an error must not be lost over its details. */
function dataOf(data: unknown): JsonObject | undefined {
  try {
    const copy = copyJson(data);
    if (copy === undefined) return undefined;
    return isJsonObject(copy) ? copy : { value: copy };
  } catch {
    return undefined;
  }
}
