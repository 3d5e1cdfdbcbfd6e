import type { Refusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Mismatch } from "../core/ports.ts";

/* What a caller is told whose call on a run is refused. */

/** The rules refuse the command. */
export function refusalError({ refused }: Refusal, runId: string, awaitId: string | null = null): CadenzaError {
  return new CadenzaError(refused, `Run ${runId} ${refusals[refused]}`, {
    run_id: runId,
    ...(awaitId !== null && { await_id: awaitId }),
  });
}

const refusals: Readonly<Record<Refusal["refused"], string>> = {
  not_awaiting: "does not wait for this answer.",
  run_cancelling: "is being cancelled.",
  run_finished: "has ended already.",
  answer_conflict: "has another answer to this question already.",
  idempotency_conflict: "has another answer under this idempotency key already.",
};

/** The answer is none to the question. */
export function rejectedError(runId: string, awaitId: string, issues: CadenzaError["issues"] = []): CadenzaError {
  const what = issues
    .map(({ path, message }) => (path.length === 0 ? message : `${path.join(".")}: ${message}`))
    .join("; ");
  return new CadenzaError("answer_rejected", `The answer does not fit the question: ${what}`, {
    run_id: runId,
    await_id: awaitId,
    issues,
  });
}

/** The run waits for matching code. */
export function blockedError(runId: string, agent_name: string, mismatch: Mismatch): CadenzaError {
  const { expected, asked, position } = mismatch;
  const message =
    `Run ${runId} is blocked: the registered code of ${JSON.stringify(agent_name)} does not match its history ` +
    `at entry ${position + 1} (history: ${expected}; code: ${asked}). Register matching code, or cancel the run.`;
  return new CadenzaError("run_blocked", message, { run_id: runId, agent_name });
}

/** The runtime has been closed. */
export function closedError(): CadenzaError {
  return new CadenzaError("runtime_closed", "The runtime has been closed.");
}

/** As a sub-run refuses an answer, its parent does, which shows the question under an id of its own. Other errors stay as they are. */
export function refusedAbove(error: unknown, runId: string, awaitId: string): unknown {
  if (!CadenzaError.is(error)) return error;
  const { code, issues } = error;
  if (code === "answer_rejected") return rejectedError(runId, awaitId, issues);
  return isRefused(code) ? refusalError({ refused: code }, runId, awaitId) : error;
}

function isRefused(code: CadenzaError["code"]): code is Refusal["refused"] {
  return code in refusals;
}

/** The run is not this process's any more. `awaitId`: the question that an answer to it was meant for. */
export function lostError(runId: string, why = "belongs to another process now", awaitId?: string): CadenzaError {
  return new CadenzaError("lost_ownership", `Run ${runId} ${why}.`, {
    run_id: runId,
    ...(awaitId !== undefined && { await_id: awaitId }),
  });
}

/** Whether an error is that of {@link lostError}. */
export function isLost(error: unknown): error is CadenzaError {
  return CadenzaError.is(error) && error.code === "lost_ownership";
}
