import type { ProtocolError } from "../protocol/error.ts";
import { CadenzaError } from "./errors.ts";

/**
 * The error that stops the agent of a run past a deadline: that of a question or, with null, that of its active time.
 */
export function overdueError(runId: string, awaitId: string | null): CadenzaError {
  const { reason, message } = awaitId === null ? runTimeout : awaitTimeout;
  return new CadenzaError(reason, message, { run_id: runId, ...(awaitId !== null && { await_id: awaitId }) });
}

/** The same error as the run's record shows it. */
export function overdueFailure(awaitId: string | null): ProtocolError {
  const { reason, message } = awaitId === null ? runTimeout : awaitTimeout;
  return { code: "server_error", message, data: awaitId === null ? { reason } : { reason, await_id: awaitId } };
}

const runTimeout = {
  reason: "run_timeout",
  message: "The run was active for longer than its time-out allows.",
} as const;
const awaitTimeout = { reason: "await_timeout", message: "The question was not answered in time." } as const;
