import type { ProtocolError } from "../protocol/error.ts";
import { CadenzaError } from "./errors.ts";

/** The error of a run that is out of time: for the answer to a question or, with null, as a whole. Its agent is stopped with it. */
export function overdueError(runId: string, awaitId: string | null): CadenzaError {
  const { reason, message } = awaitId === null ? runTimeout : awaitTimeout;
  return new CadenzaError(reason, message, { run_id: runId, ...(awaitId !== null && { await_id: awaitId }) });
}

/** The same error as the record of the run shows it. */
export function overdueFailure(awaitId: string | null): ProtocolError {
  const { reason, message } = awaitId === null ? runTimeout : awaitTimeout;
  return { code: "server_error", message, data: awaitId === null ? { reason } : { reason, await_id: awaitId } };
}

const runTimeout = {
  reason: "run_timeout",
  message: "The run was active for longer than its time-out allows.",
} as const;
const awaitTimeout = { reason: "await_timeout", message: "The question was not answered in time." } as const;
