import type { ResumeCommand } from "../core/decide.ts";
import { isRefusal } from "../core/decide.ts";
import type { Clock, Mismatch } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import { runRecord } from "../core/record.ts";
import type { Run } from "../protocol/run.ts";
import type { Execution } from "./execution.ts";
import type { Answer, OpenQuestion, PassedOnQuestion } from "./questions.ts";
import { blockedError, closedError, isLost, lostError, refusalError, refusedAbove, rejectedError } from "./refusals.ts";
import type { RunLog } from "./run-log.ts";
import type { Validated } from "./standard-schema.ts";

/** What answering needs from the run that is answered. */
export interface AnsweredRun {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly agent: { readonly name: string };
  readonly execution: Execution | undefined;
  /** Where a durable run is on its way; other runs have none. */
  readonly residencyIfAny:
    | {
        readonly ready: Promise<void> | undefined;
        readonly tryingAgain: Promise<void> | undefined;
        readonly mismatch: Mismatch | undefined;
      }
    | undefined;
  /** Whether the runtime is being closed: it takes no answers any more. */
  readonly isClosing: boolean;
  /** Resolves when what the runs above have recorded is stored, or cannot be. Undefined: it is. */
  committedAbove(): undefined | Promise<void>;
}

type Answered = MaybePromise<Run | undefined>;

/**
 * Gives a run an answer: it is validated by the question that the agent asks, decided, committed, and then handed to the agent. The record,
 * in mode `async` only, shows the run as it is then, before its agent goes on. A process that cannot validate decides nothing.
 */
export function answerRun(run: AnsweredRun, answer: Answer): Answered {
  const ready = run.residencyIfAny?.ready;
  if (ready === undefined) return answerNow(run, answer);
  // By then the agent may be run once more. One that does not catch up leaves the same promise behind.
  return ready.then(() => (run.residencyIfAny?.ready === ready ? answerNow(run, answer) : answerRun(run, answer)));
}

function answerNow(run: AnsweredRun, answer: Answer): Answered {
  const { log, clock, residencyIfAny: stay } = run;
  const { run_id } = log.key;
  if (stay?.tryingAgain !== undefined) {
    return stay.tryingAgain.then(() => {
      throw lostError(run_id);
    });
  }
  if (stay?.mismatch !== undefined) {
    // Who is told of it finds it in the store.
    if (log.writing !== undefined && !log.isRetrying) return log.writing.then(() => answerNow(run, answer));
    throw blockedError(run_id, run.agent.name, stay.mismatch);
  }
  const command = commandOf(answer, answer.await_id, clock.now());
  const first = log.preview(command);
  if (isRefusal(first)) {
    // Nothing is told of what is not committed, not by a refusal either.
    const committed = log.commit(true);
    if (committed !== undefined) return committed.then(() => answerNow(run, answer));
    throw refusalError(first, run_id, answer.await_id);
  }
  const awaitId = log.state.shown?.await_id;
  if (first.length === 0 || awaitId === undefined) return answeredBefore(run, answer, command);
  if (run.isClosing) throw closedError();
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

/** An answer to one question, whether its sender has named it or not. */
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

/** The agent does not ask the question here any more: it has been settled meanwhile, or the run has gone elsewhere, and its question with it. */
function withoutQuestion(run: AnsweredRun, answer: BoundAnswer): Answered {
  const { log, clock } = run;
  const committed = log.commit(true);
  if (committed !== undefined) return committed.then(() => withoutQuestion(run, answer));
  const command = commandOf(answer, answer.await_id, clock.now());
  const decision = log.preview(command);
  if (isRefusal(decision)) throw refusalError(decision, log.key.run_id, answer.await_id);
  if (decision.length === 0) return answeredBefore(run, answer, command);
  throw lostError(log.key.run_id, undefined, answer.await_id);
}

function take(run: AnsweredRun, execution: Execution, answer: BoundAnswer, reading: Validated): Answered {
  const { log, clock } = run;
  const { run_id } = log.key;
  const { await_id } = answer;
  if ("issues" in reading) throw rejectedError(run_id, await_id, reading.issues);
  // While the answer was read the run may have gone to another process, or its agent may be run again.
  if (log.lost || execution.over) return withoutQuestion(run, answer);
  if (run.isClosing) throw closedError();
  const command = commandOf(answer, await_id, clock.now());
  const decision = log.decide(command);
  if (isRefusal(decision)) throw refusalError(decision, run_id, await_id);
  const [entry] = decision;
  if (entry === undefined) return answeredBefore(run, answer, command);
  const record = recordFor(run, answer);
  const goOn = (): void => {
    // Another process may have written first: then the answer was decided again, and perhaps refused.
    if (!isTaken(log, command)) return;
    answer.onTaken?.();
    execution.withSlot(() => execution.answered(entry, reading.value));
  };
  const acknowledged = log.commit(true);
  if (acknowledged === undefined) {
    goOn();
    return after(run.committedAbove(), record);
  }
  // The agent goes on also if the store fails first, and the caller is told that.
  void log.commit()?.then(goOn);
  return acknowledged.then(() => {
    confirm(log, command);
    return after(run.committedAbove(), record);
  });
}

/** Gives the answer to the sub-run that asks. When it is committed there, it is the answer here too: the sub-run's refusal is the caller's. */
function passOn(run: AnsweredRun, answer: BoundAnswer, question: PassedOnQuestion): Answered {
  const { log, clock } = run;
  const { run_id } = log.key;
  const command = commandOf(answer, answer.await_id, clock.now());
  let record: Run | undefined;
  const onTaken = (): void => {
    log.decide(command);
    record ??= recordFor(run, answer);
    answer.onTaken?.();
  };
  // The sub-run has the answer. What the store does not take of it here is found in the log of the sub-run later.
  const taken = (): Answered => after(log.commit(true)?.catch(ignore), record);
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

/** The same answer came before, and counts. */
async function answeredBefore(run: AnsweredRun, answer: Answer, command: ResumeCommand): Promise<Run> {
  await run.log.commit(true);
  confirm(run.log, command);
  answer.onTaken?.();
  return run.log.record();
}

/** Throws unless the answer is in the log: what was decided may have been decided again. */
function confirm(log: RunLog, command: ResumeCommand): void {
  const decision = log.preview(command);
  if (isRefusal(decision)) throw refusalError(decision, log.key.run_id, command.await_id);
  if (decision.length > 0) throw lostError(log.key.run_id);
}

function isTaken(log: RunLog, command: ResumeCommand): boolean {
  const decision = log.preview(command);
  return !isRefusal(decision) && decision.length === 0;
}

function recordFor({ log }: AnsweredRun, { mode }: Answer): Run | undefined {
  return mode === "async" ? runRecord(log.state) : undefined;
}

function after(wait: undefined | Promise<void>, record: Run | undefined): Answered {
  return wait === undefined ? record : wait.then(() => record);
}

/** An answer that is given again wherever the run is now is for the same question, and not for the next one. */
function bind(error: unknown, runId: string, awaitId: string): unknown {
  return isLost(error) ? lostError(runId, undefined, awaitId) : error;
}

function commandOf({ answer, idempotency_key }: Answer, await_id: string | null, at: number): ResumeCommand {
  return { type: "resume", at, await_id, answer, idempotency_key };
}
