import type { ReplyCommand } from "../../core/commands.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import { goingOn, runRecord } from "../../core/record.ts";
import type { Run } from "../../protocol/run.ts";
import type { Answer } from "../agent/answer.ts";
import { admitAnswer, replyCommand } from "../agent/answer.ts";
import type { Validated } from "../agent/standard-schema.ts";
import type { Ask } from "../execution/ask.ts";
import { questionOf } from "../execution/ask.ts";
import type { Execution } from "../execution/execution.ts";
import { declined } from "../execution/offered-answers.ts";
import { onceInLog } from "../execution/once-committed.ts";
import { closedError, isLost, lostError, rejectedError, replyRefusedError } from "../log/refusals.ts";
import type { RunLog } from "../log/run-log.ts";
import { committedAbove } from "./committed-above.ts";
import type { LiveRun } from "./live-run.ts";

type Answered = MaybePromise<Run | undefined>;

/**
 * Gives a run an answer. The answer is validated by the agent's question, decided, committed, and then handed to the
 * agent. A process that does not hold the question decides nothing. The result, in mode `async` only, is the record of
 * the run before its agent goes on.
 */
export function answerRun(run: LiveRun, answer: Answer): Answered {
  const ready = run.residence?.whenAnswerable();
  return ready === undefined ? answerNow(run, answer) : ready.then(() => answerNow(run, answer));
}

function answerNow(run: LiveRun, answer: Answer): Answered {
  const { log, shared } = run;
  const command = replyCommand(answer, shared.clock.now());
  const first = decide(log.state, command);
  if (isRefusal(first)) {
    // A refusal reveals the state, so the state is committed first.
    const committed = log.acknowledge();
    if (committed !== undefined) return committed.then(() => answerRun(run, answer));
    throw replyRefusedError(first, log.state, answer.await_id);
  }
  const [entry] = first;
  if (entry === undefined || !("await_id" in entry) || entry.await_id === null) return answeredBefore(run, command);
  const bound: BoundAnswer = { ...answer, await_id: entry.await_id };
  const admitted = admitAnswer(log.state, bound.await_id, answer);
  return admitted === undefined ? giveBound(run, bound) : admitted.then(() => giveBound(run, bound));
}

function giveBound(run: LiveRun, bound: BoundAnswer): Answered {
  const { log, shared, execution } = run;
  const { run_id } = log.key;
  if (shared.isClosed) throw closedError();
  if (execution === undefined) throw lostError(run_id);
  const answering = giveTo(run, execution, questionOf(execution, bound.await_id), bound);
  if (!isPromise(answering)) return answering;
  return answering.catch((error: unknown) => {
    throw bind(error, run_id, bound.await_id);
  });
}

/** A reply that is bound to one question. */
interface BoundAnswer extends Answer {
  readonly await_id: string;
}

function giveTo(run: LiveRun, execution: Execution, question: Ask | undefined, answer: BoundAnswer): Answered {
  if (question === undefined) return withoutQuestion(run, answer);
  const { reply } = answer;
  // To decline needs no validation.
  if ("decline" in reply) return take(run, execution, answer, declined);
  const reading = question.validate(reply.answer);
  return isPromise(reading)
    ? reading.then((later) => take(run, execution, answer, later))
    : take(run, execution, answer, reading);
}

/** This process does not hold the question any more: it is settled, or another process owns the run. */
function withoutQuestion(run: LiveRun, answer: BoundAnswer): Answered {
  const { log, shared } = run;
  const committed = log.acknowledge();
  if (committed !== undefined) return committed.then(() => withoutQuestion(run, answer));
  const command = replyCommand(answer, shared.clock.now());
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, answer.await_id);
  if (decision.length === 0) return answeredBefore(run, command);
  throw lostError(log.key.run_id, undefined, answer.await_id);
}

function take(run: LiveRun, execution: Execution, answer: BoundAnswer, reading: Validated): Answered {
  const { log, shared } = run;
  const { run_id } = log.key;
  const { await_id } = answer;
  if ("issues" in reading) throw rejectedError(run_id, await_id, reading.issues);
  // During the validation another process may have taken the run over, or the agent may be executed again.
  if (log.lost || execution.over) return withoutQuestion(run, answer);
  if (run.shared.isClosed) throw closedError();
  const command = replyCommand(answer, shared.clock.now());
  const decision = log.decide(command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, await_id);
  const [entry] = decision;
  if (entry === undefined) return answeredBefore(run, command);
  const record = recordFor(run, answer);
  const acknowledged = log.acknowledge();
  // If the store fails, the caller gets an error. The agent still goes on when a retry succeeds.
  onceInLog(log, entry, (committed) => {
    if (committed !== undefined) execution.withSlot(() => execution.deliver(committed, reading.value));
  });
  if (acknowledged === undefined) return after(committedAbove(run), record);
  return acknowledged.then(() => {
    confirm(log, command);
    return after(committedAbove(run), record);
  });
}

/** The same answer is in the log already. */
async function answeredBefore(run: LiveRun, command: ReplyCommand): Promise<Run> {
  await run.log.acknowledge();
  confirm(run.log, command);
  return run.log.record();
}

/** Throws unless the answer is in the log. After a conflict it may have been decided again, and refused. */
function confirm(log: RunLog, command: ReplyCommand): void {
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, command.await_id);
  if (decision.length > 0) throw lostError(log.key.run_id);
}

function recordFor({ log }: LiveRun, { mode }: Answer): Run | undefined {
  return mode === "async" ? goingOn(runRecord(log.state)) : undefined;
}

function after(wait: undefined | Promise<void>, record: Run | undefined): Answered {
  return wait === undefined ? record : wait.then(() => record);
}

/**
 * Adds the question to an error after which the answer is given again, so that it does not answer the next question.
 */
function bind(error: unknown, runId: string, awaitId: string): unknown {
  return isLost(error) ? lostError(runId, undefined, awaitId) : error;
}
