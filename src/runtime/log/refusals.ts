import type { Refusal } from "../../core/decide.ts";
import type { Issue } from "../../core/errors.ts";
import { CadenzaError, noSession, unwritableError } from "../../core/errors.ts";
import type { SessionChange, StoreConflict } from "../../core/ports.ts";
import type { RunState } from "../../core/state.ts";
import { openQuestions } from "../../core/state.ts";

/* The errors of calls that are refused. */

/** The error for a command that the rules refuse. */
export function refusalError({ refused }: Refusal, runId: string, awaitId: string | null = null): CadenzaError {
  return new CadenzaError(refused, `Run ${runId} ${refusals[refused]}`, {
    run_id: runId,
    ...(awaitId !== null && { await_id: awaitId }),
  });
}

/** How many open questions an error names. */
const MAX_NAMED = 5;

/** The error for a reply that the rules refuse. It names the open questions if the reply is for none of them. */
export function replyRefusedError(refusal: Refusal, state: RunState, awaitId: string | null): CadenzaError {
  const { run_id } = state;
  if (refusal.refused !== "not_awaiting") return refusalError(refusal, run_id, awaitId);
  const open = openQuestions(state).map(({ asked }) => asked.await_id);
  const named = `${open.slice(0, MAX_NAMED).join(", ")}${open.length > MAX_NAMED ? " and others" : ""}`;
  const what = awaitId === null ? "an answer" : `an answer to ${JSON.stringify(awaitId)}`;
  const message = `Run ${run_id} does not wait for ${what}. ${open.length === 0 ? "It has no open question." : `Its open questions: ${named}.`}`;
  return new CadenzaError("not_awaiting", message, { run_id, ...(awaitId !== null && { await_id: awaitId }) });
}

const refusals: Readonly<Record<Refusal["refused"], string>> = {
  not_awaiting: "does not wait for this answer.",
  run_cancelling: "is being cancelled.",
  run_finished: "has ended already.",
  answer_conflict: "has another answer to this question already.",
  idempotency_conflict: "has another answer or message under this idempotency key already.",
};

/** The error for an answer that fails the validation of its question. */
export function rejectedError(runId: string, awaitId: string, issues: CadenzaError["issues"] = []): CadenzaError {
  const message = `The answer to ${awaitId} of run ${runId} is invalid: ${issuesText(issues)}`;
  return new CadenzaError("answer_rejected", message, { run_id: runId, await_id: awaitId, issues });
}

/** What was wrong with a value, and where. */
export function issuesText(issues: readonly Issue[]): string {
  return issues.map(({ path, message }) => (path.length === 0 ? message : `${path.join(".")}: ${message}`)).join("; ");
}

/** The error for a call on a closed runtime. */
export function closedError(cause?: unknown): CadenzaError {
  return new CadenzaError("runtime_closed", "The runtime has been closed.", { cause });
}

/**
 * Turns a sub-run's refusal of an answer into its parent's, which has another id for the question. Other errors stay as
 * they are.
 */
export function refusedAbove(error: unknown, runId: string, awaitId: string): unknown {
  if (!CadenzaError.is(error)) return error;
  const { code, issues } = error;
  if (code === "answer_rejected") return rejectedError(runId, awaitId, issues);
  return isRefused(code) ? refusalError({ refused: code }, runId, awaitId) : error;
}

function isRefused(code: CadenzaError["code"]): code is Refusal["refused"] {
  return code in refusals;
}

/**
 * The error for a run that this process does not execute any more. `awaitId` is the question that the refused answer was
 * for.
 */
export function lostError(runId: string, why = "belongs to another process now", awaitId?: string): CadenzaError {
  return new CadenzaError("lost_ownership", `Run ${runId} ${why}.`, {
    run_id: runId,
    ...(awaitId !== undefined && { await_id: awaitId }),
  });
}

/** The error for a run that had not ended when its runtime was closed, in a store that no other process executes. */
export function notLoadedError(runId: string): CadenzaError {
  return lostError(runId, "was left by the runtime that executed it");
}

/** Whether {@link lostError} has made the error. */
export function isLost(error: unknown): error is CadenzaError {
  return CadenzaError.is(error) && error.code === "lost_ownership";
}

/**
 * The error for a new run whose idempotency key another request has used, or whose session another user has made
 * meanwhile. Undefined: it is another conflict.
 */
export function takenError(conflict: StoreConflict, session: SessionChange | undefined): CadenzaError | undefined {
  if (conflict.conflict === "unwritable") return unwritableError(conflict.reason);
  if (conflict.conflict === "foreign" && session !== undefined) return noSession(session.session_id);
  if (conflict.conflict !== "key_used") return undefined;
  const { run_id } = conflict;
  const message = "The idempotency key was used by another request at the same time.";
  return new CadenzaError("idempotency_conflict", message, { run_id });
}
