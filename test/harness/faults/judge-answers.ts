import type { AnswerRecord, RunRecord } from "./acknowledged.ts";
import { ACKNOWLEDGED, UNKNOWN } from "./acknowledged.ts";
import { nonceOf } from "./agents.ts";
import type { Known, RunEvidence } from "./evidence.ts";
import type { Complain } from "./judge-bodies.ts";
import { resultsOf } from "./judge-waits.ts";

/*
 * Rules for replies: the run that asks has the reply that was acknowledged, and so have the runs that show its question.
 * One that was refused changes nothing.
 */

/** Refusals after which the request has certainly changed nothing. After other failures it may have. */
const CERTAIN = new Set([
  "not_awaiting",
  "run_not_found",
  "run_cancelling",
  "run_finished",
  "answer_rejected",
  "answer_conflict",
  "idempotency_conflict",
  "ambiguous",
  "agent_not_found",
  "run_blocked",
  "runtime_closed",
  "lost_ownership",
]);

/** Whether a request was refused each time that it was made, and has certainly changed nothing. */
export function isRefused(outcomes: readonly string[]): boolean {
  return outcomes.length > 0 && outcomes.every((outcome) => CERTAIN.has(outcome));
}

/** Whether a request was refused with an error that is none of the library's. */
export function isForeign(outcomes: readonly string[]): boolean {
  if (outcomes.includes(ACKNOWLEDGED) || outcomes.includes(UNKNOWN)) return false;
  return outcomes.some((outcome) => outcome.includes(" "));
}

/** What the client was told of its answers. */
export function judgeAnswers(record: RunRecord, known: Known, complain: Complain): void {
  for (const answer of record.answers) judgeAnswer(answer, known, complain);
}

function judgeAnswer({ nonce, is, question, outcomes }: AnswerRecord, known: Known, complain: Complain): void {
  const { run, key } = question.text;
  const asking = known.runs.get(run);
  const isAcknowledged = outcomes.includes(ACKNOWLEDGED);
  const answer = `${is === "decline" ? "decline" : "answer"} ${nonce} to ${key} of ${run}`;
  if (is === "invalid") {
    if (isAcknowledged) complain("invalid", `${answer} is invalid and was acknowledged`);
    if (asking !== undefined && [...resultsOf(asking.log).values()].includes(nonce))
      complain("invalid", `${answer} is invalid and is in the log`);
    return;
  }
  if (outcomes.includes("answer_rejected"))
    complain("lost", `${answer} is valid and was rejected (${outcomes.join(", ")})`);
  if (asking === undefined) {
    if (isAcknowledged) complain("lost", `${answer} was acknowledged, and the run is not in the store`);
    return;
  }
  const taken = resultsOf(asking.log).get(key);
  if (isAcknowledged && taken !== nonce)
    complain("lost", `${answer} was acknowledged, and the log has ${taken ?? "none"}`);
  if (isRefused(outcomes) && taken === nonce)
    complain("refused", `${answer} was refused (${outcomes.join(", ")}) and is in the log`);
  if (isForeign(outcomes))
    complain("lost", `${answer} was refused with an error that is none of the library's: ${outcomes.join(", ")}`);
}

/** What a run shows of the questions of its sub-runs: those that they ask, with the replies that they have got. */
export function judgeShown({ log }: RunEvidence, known: Known, complain: Complain): void {
  for (const entry of log) {
    if ((entry.type !== "awaited" && entry.type !== "settled") || entry.of === undefined) continue;
    const { run_id, await_id } = entry.of;
    const asking = known.runs.get(run_id);
    const question = `${await_id} of ${run_id}`;
    if (!asking?.log.some((one) => one.type === "awaited" && one.await_id === await_id))
      complain("changed", `shows ${question}, which that run has not asked`);
    else if (entry.type === "settled") {
      const result = resultsOf(asking.log).get(await_id);
      const { answer, decline } = entry;
      const shown = answer === undefined ? decline?.reason : nonceOf(answer);
      if (shown !== undefined && shown !== result)
        complain("changed", `shows ${shown} as the reply to ${question}, which has ${result ?? "none"}`);
    }
  }
}
