import type { ProtocolError } from "../protocol/error.ts";
import { CadenzaError } from "./errors.ts";
import type { ExceededEntry, TimedOutEntry } from "./log.ts";

/** What makes a run fail: the deadline of a question has passed, or the run has exceeded its active time or its budget. */
export type Overdue = TimedOutEntry | ExceededEntry;

/** The error that stops the agent of such a run. */
export function overdueError(runId: string, overdue: Overdue): CadenzaError {
  const { reason, message } = causeOf(overdue);
  return new CadenzaError(reason, message, { run_id: runId, ...questionOf(overdue) });
}

/** The same error as the run's record shows it. */
export function overdueFailure(overdue: Overdue): ProtocolError {
  const { reason, message } = causeOf(overdue);
  return { code: "server_error", message, data: { reason, ...questionOf(overdue) } };
}

function causeOf(overdue: Overdue) {
  if (overdue.type === "exceeded") return budgetExceeded;
  return overdue.await_id === null ? runTimeout : awaitTimeout;
}

function questionOf(overdue: Overdue): { readonly await_id?: string } {
  return overdue.type === "exceeded" || overdue.await_id === null ? {} : { await_id: overdue.await_id };
}

const runTimeout = {
  reason: "run_timeout",
  message: "The run was active for longer than its time-out allows.",
} as const;
const awaitTimeout = { reason: "await_timeout", message: "The question was not answered in time." } as const;
const budgetExceeded = {
  reason: "budget_exceeded",
  message: "The run and its sub-runs have used more tokens than its budget allows.",
} as const;
