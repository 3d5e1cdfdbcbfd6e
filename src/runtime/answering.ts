import type { ResumeCommand } from "../core/decide.ts";
import { decide, isRefusal } from "../core/decide.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { runRecord } from "../core/record.ts";
import type { Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import type { Ownership } from "./ownership.ts";
import type { Answer, OpenQuestion, PassedOnQuestion } from "./questions.ts";
import { closedError, isLost, lostError, refusalError, refusedAbove, rejectedError } from "./refusals.ts";
import type { RunLog } from "./run-log.ts";
import type { Validated } from "./standard-schema.ts";

/** What answering needs from the run that is answered. */
export interface AnsweredRun {
  readonly log: RunLog;
  readonly agent: { readonly name: string };
  readonly execution: Execution | undefined;
  readonly ownership: Pick<Ownership, "whenAnswerable">;
  /** A runtime that is being closed accepts no answers. */
  readonly host: { readonly clock: Clock; readonly isClosed: boolean };
  /**
   * Resolves when the entries of the run's ancestors are committed, or their writes have failed. Undefined: they are
   * committed.
   */
  committedAbove(): undefined | Promise<void>;
}

type Answered = MaybePromise<Run | undefined>;

/**
 * Gives a run an answer. The answer is validated by the agent's question, decided, committed, and then handed to the
 * agent. A process that does not hold the question decides nothing. The result, in mode `async` only, is the record of
 * the run before its agent goes on.
 */
export function answerRun(run: AnsweredRun, answer: Answer): Answered {
  const ready = run.ownership.whenAnswerable();
  return ready === undefined ? answerNow(run, answer) : ready.then(() => answerNow(run, answer));
}

function answerNow(run: AnsweredRun, answer: Answer): Answered {
  const { log, host } = run;
  const { run_id } = log.key;
  const command = commandOf(answer, answer.await_id, host.clock.now());
  const first = decide(log.state, command);
  if (isRefusal(first)) {
    // A refusal reveals the state, so the state is committed first.
    const committed = log.acknowledge();
    if (committed !== undefined) return committed.then(() => answerRun(run, answer));
    throw refusalError(first, run_id, answer.await_id);
  }
  const awaitId = log.state.shown?.await_id;
  if (first.length === 0 || awaitId === undefined) return answeredBefore(run, answer, command);
  if (run.host.isClosed) throw closedError();
  const bound: BoundAnswer = { ...answer, await_id: awaitId };
  const { execution } = run;
  if (execution === undefined) throw lostError(run_id);
  const asked = execution.question(awaitId);
  const answering = isPromise(asked)
    ? asked.then((question) => giveTo(run, execution, question, bound))
    : giveTo(run, execution, asked, bound);
  if (!isPromise(answering)) return answering;
  return answering.catch((error: unknown) => {
    throw bind(error, run_id, awaitId);
  });
}

/** An answer that is bound to one question. */
interface BoundAnswer extends Answer {
  readonly await_id: string;
}

function giveTo(
  run: AnsweredRun,
  execution: Execution,
  question: OpenQuestion | undefined,
  answer: BoundAnswer,
): Answered {
  if (question === undefined) return withoutQuestion(run, answer);
  if ("pass" in question) return passOn(run, answer, question);
  const reading = question.validate(answer.answer);
  return isPromise(reading)
    ? reading.then((later) => take(run, execution, answer, later))
    : take(run, execution, answer, reading);
}

/** This process does not hold the question any more: it is settled, or another process owns the run. */
function withoutQuestion(run: AnsweredRun, answer: BoundAnswer): Answered {
  const { log, host } = run;
  const committed = log.acknowledge();
  if (committed !== undefined) return committed.then(() => withoutQuestion(run, answer));
  const command = commandOf(answer, answer.await_id, host.clock.now());
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw refusalError(decision, log.key.run_id, answer.await_id);
  if (decision.length === 0) return answeredBefore(run, answer, command);
  throw lostError(log.key.run_id, undefined, answer.await_id);
}

function take(run: AnsweredRun, execution: Execution, answer: BoundAnswer, reading: Validated): Answered {
  const { log, host } = run;
  const { run_id } = log.key;
  const { await_id } = answer;
  if ("issues" in reading) throw rejectedError(run_id, await_id, reading.issues);
  // During the validation another process may have taken the run over, or the agent may be executed again.
  if (log.lost || execution.over) return withoutQuestion(run, answer);
  if (run.host.isClosed) throw closedError();
  const command = commandOf(answer, await_id, host.clock.now());
  const decision = log.decide(command);
  if (isRefusal(decision)) throw refusalError(decision, run_id, await_id);
  const [entry] = decision;
  if (entry === undefined) return answeredBefore(run, answer, command);
  const record = recordFor(run, answer);
  const goOn = (): void => {
    // If another process has written first, the answer was decided again, and perhaps refused.
    if (!isTaken(log, command)) return;
    answer.onTaken?.();
    execution.withSlot(() => execution.answered(entry, reading.value));
  };
  const acknowledged = log.acknowledge();
  if (acknowledged === undefined) {
    goOn();
    return after(run.committedAbove(), record);
  }
  // If the store fails, the caller gets an error. The agent still goes on when a retry succeeds.
  void log.commit()?.then(goOn);
  return acknowledged.then(() => {
    confirm(log, command);
    return after(run.committedAbove(), record);
  });
}

/**
 * Gives the answer to the sub-run that asks. Once the sub-run has committed it, it is logged here too. The caller gets
 * the sub-run's refusal.
 */
function passOn(run: AnsweredRun, answer: BoundAnswer, question: PassedOnQuestion): Answered {
  const { log, host } = run;
  const { run_id } = log.key;
  const command = commandOf(answer, answer.await_id, host.clock.now());
  let record: Run | undefined;
  const onTaken = (): void => {
    log.decide(command);
    record ??= recordFor(run, answer);
    answer.onTaken?.();
  };
  // The sub-run has the answer. If the write fails here, the parent reads the answer from the log of the sub-run later.
  const taken = (): Answered => after(log.acknowledge()?.catch(ignore), record);
  const refused = (error: unknown): never => {
    throw bind(refusedAbove(error, run_id, answer.await_id), run_id, answer.await_id);
  };
  let passing: MaybePromise<unknown>;
  try {
    passing = question.pass({ ...answer, mode: undefined, onTaken });
  } catch (error) {
    return refused(error);
  }
  return isPromise(passing) ? passing.catch(refused).then(taken) : taken();
}

/** The same answer is in the log already. */
async function answeredBefore(run: AnsweredRun, answer: Answer, command: ResumeCommand): Promise<Run> {
  await run.log.acknowledge();
  confirm(run.log, command);
  answer.onTaken?.();
  return run.log.record();
}

/** Throws unless the answer is in the log. After a conflict it may have been decided again, and refused. */
function confirm(log: RunLog, command: ResumeCommand): void {
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw refusalError(decision, log.key.run_id, command.await_id);
  if (decision.length > 0) throw lostError(log.key.run_id);
}

function isTaken(log: RunLog, command: ResumeCommand): boolean {
  const decision = decide(log.state, command);
  return !isRefusal(decision) && decision.length === 0;
}

function recordFor({ log }: AnsweredRun, { mode }: Answer): Run | undefined {
  return mode === "async" ? runRecord(log.state) : undefined;
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

function commandOf({ answer, idempotency_key }: Answer, await_id: string | null, at: number): ResumeCommand {
  return { type: "resume", at, await_id, answer, idempotency_key };
}
