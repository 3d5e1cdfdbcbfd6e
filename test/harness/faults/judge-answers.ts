import type { Entry } from "../../../src/core/log.ts";
import type { AnswerRecord, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, UNKNOWN } from "./acknowledged.ts";
import { DEFAULT, nonceOf } from "./agents.ts";
import type { Known, RunEvidence } from "./evidence.ts";
import type { Complain } from "./judge-bodies.ts";

/*
 * Rules for answers: the agent goes on with the answer that was acknowledged; one that was refused changes nothing; and
 * no line after a question, nor the `finally` around it, runs with another answer than the one in the log.
 */

/** Refusals after which the answer is certainly not in the log. After other failures it may be there. */
const CERTAIN = new Set([
  "not_awaiting",
  "run_cancelling",
  "run_finished",
  "answer_rejected",
  "answer_conflict",
  "idempotency_conflict",
  "agent_not_found",
  "run_blocked",
  "run_blocked",
  "runtime_closed",
  "lost_ownership",
]);

/** With which answer each question of a run was settled, as its log says. */
function settled(log: readonly Entry[]): Map<string, string> {
  const answers = new Map<string, string>();
  for (const entry of log) {
    if (entry.type === "resumed") answers.set(entry.await_id, nonceOf(entry.answer));
    else if (entry.type === "timed-out" && entry.await_id !== null)
      answers.set(entry.await_id, entry.defaulted ? DEFAULT : "no answer in time");
  }
  return answers;
}

/** What the client was told of its answers. */
export function judgeAnswers(record: RunRecord, known: Known, complain: Complain): void {
  for (const answer of record.answers) judgeAnswer(answer, known, complain);
}

function judgeAnswer({ nonce, fits, question, outcomes }: AnswerRecord, known: Known, complain: Complain): void {
  const { run, key } = question.text;
  const asking = known.runs.get(run);
  const isAcknowledged = outcomes.includes(ACKNOWLEDGED);
  const answer = `answer ${nonce} to ${key} of ${run}`;
  if (!fits) {
    if (isAcknowledged) complain("invalid", `${answer} is invalid and was acknowledged`);
    if (asking !== undefined && [...settled(asking.log).values()].includes(nonce))
      complain("invalid", `${answer} is invalid and is in the log`);
    return;
  }
  if (outcomes.includes("answer_rejected"))
    complain("lost", `${answer} is valid and was rejected (${outcomes.join(", ")})`);
  if (asking === undefined) {
    if (isAcknowledged) complain("lost", `${answer} was acknowledged, and the run is not in the store`);
    return;
  }
  const taken = settled(asking.log).get(key);
  if (isAcknowledged && taken !== nonce)
    complain("lost", `${answer} was acknowledged, and the log has ${taken ?? "none"}`);
  const isRefused = outcomes.length > 0 && outcomes.every((outcome) => CERTAIN.has(outcome));
  if (isRefused && taken === nonce)
    complain("refused", `${answer} was refused (${outcomes.join(", ")}) and is in the log`);
  if (!isAcknowledged && !outcomes.includes(UNKNOWN) && outcomes.some((outcome) => outcome.includes(" ")))
    complain("lost", `${answer} was refused with an error that is none of the library's: ${outcomes.join(", ")}`);
}

/** What agents did with answers. */
export function judgeGoingOn(run: RunEvidence, complain: Complain): void {
  const answers = settled(run.log);
  const isStopped = stopped(run.log);
  for (const line of run.lines) {
    if (line.is !== "after" && line.is !== "finally") continue;
    const { key, nonce, place } = line;
    const taken = answers.get(key);
    const where = line.is === "after" ? `a line after ${key}` : `the finally around ${key}`;
    if (nonce.startsWith("threw ") || nonce === "nothing") {
      if (!isStopped && taken !== "no answer in time")
        complain(
          "refused",
          `${where} ran without an answer (${nonce}), although the run was not stopped; the log has ${taken ?? "none"}`,
          place,
        );
    } else if (nonce !== taken)
      complain("refused", `${where} ran with ${nonce}; the log has ${taken ?? "none"}`, place);
  }
}

/**
 * A cancelled run has run the `finally` around each question that it has asked. A run whose log has no `started` never
 * began: its process was killed before the first commit, so that no process runs its agent again.
 */
export function judgeFinally(run: RunEvidence, complain: Complain): void {
  if (!run.log.some((entry) => entry.type === "started")) return;
  const ended = run.log.at(-1);
  if (ended?.type !== "ended" || ended.outcome !== "cancelled") return;
  const finished = new Set(run.lines.flatMap((line) => (line.is === "finally" ? [line.key] : [])));
  const asked = new Set(run.lines.flatMap((line) => (line.is === "asking" ? [line.key] : [])));
  for (const key of asked)
    if (!finished.has(key)) complain("left out", `the finally around ${key} has not run, and the run was cancelled`);
}

/** Whether the run was stopped, or ended while questions were open. */
function stopped(log: readonly Entry[]): boolean {
  return log.some(
    (entry) =>
      entry.type === "cancel-requested" ||
      (entry.type === "timed-out" && !entry.defaulted) ||
      (entry.type === "ended" && entry.outcome !== "completed"),
  );
}
