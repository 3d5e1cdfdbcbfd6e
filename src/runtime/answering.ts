import type { ReplyCommand } from "../core/decide.ts";
import { decide, isRefusal } from "../core/decide.ts";
import type { OfferedEntry } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import { goingOn, runRecord } from "../core/record.ts";
import type { Run } from "../protocol/run.ts";
import type { Answer } from "./answer.ts";
import { replyCommand } from "./answer.ts";
import type { Ask } from "./ask.ts";
import type { Execution } from "./execution.ts";
import type { ToldAbove } from "./once-committed.ts";
import { onceCommitted } from "./once-committed.ts";
import type { Ownership } from "./ownership.ts";
import { closedError, isLost, lostError, rejectedError, replyRefusedError } from "./refusals.ts";
import type { RunLog } from "./run-log.ts";
import type { Validated } from "./standard-schema.ts";

/** What answering needs from the run that is answered. */
export interface AnsweredRun extends ToldAbove {
  readonly agent: { readonly name: string };
  readonly execution: Execution | undefined;
  readonly ownership: Pick<Ownership, "whenAnswerable">;
  /** A runtime that is being closed accepts no answers. */
  readonly host: { readonly clock: Clock; readonly isClosed: boolean };
}

/** What the verdict on an offered answer needs. */
export interface OfferedRun {
  readonly log: RunLog;
  readonly execution: Execution | undefined;
  readonly clock: Clock;
  readonly isClosed: boolean;
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
  const command = replyCommand(answer, host.clock.now());
  const first = decide(log.state, command);
  if (isRefusal(first)) {
    // A refusal reveals the state, so the state is committed first.
    const committed = log.acknowledge();
    if (committed !== undefined) return committed.then(() => answerRun(run, answer));
    throw replyRefusedError(first, log.state, answer.await_id);
  }
  const [entry] = first;
  if (entry === undefined || !("await_id" in entry) || entry.await_id === null) return answeredBefore(run, command);
  if (run.host.isClosed) throw closedError();
  const bound: BoundAnswer = { ...answer, await_id: entry.await_id };
  const { execution } = run;
  if (execution === undefined) throw lostError(run_id);
  const answering = giveTo(run, execution, execution.waits.question(bound.await_id), bound);
  if (!isPromise(answering)) return answering;
  return answering.catch((error: unknown) => {
    throw bind(error, run_id, bound.await_id);
  });
}

/** A reply that is bound to one question. */
interface BoundAnswer extends Answer {
  readonly await_id: string;
}

function giveTo(run: AnsweredRun, execution: Execution, question: Ask | undefined, answer: BoundAnswer): Answered {
  if (question === undefined) return withoutQuestion(run, answer);
  const { reply } = answer;
  // To decline needs no validation.
  if ("decline" in reply) return take(run, execution, answer, declined);
  const reading = question.validate(reply.answer);
  return isPromise(reading)
    ? reading.then((later) => take(run, execution, answer, later))
    : take(run, execution, answer, reading);
}

const declined: Validated = { value: undefined };

/** This process does not hold the question any more: it is settled, or another process owns the run. */
function withoutQuestion(run: AnsweredRun, answer: BoundAnswer): Answered {
  const { log, host } = run;
  const committed = log.acknowledge();
  if (committed !== undefined) return committed.then(() => withoutQuestion(run, answer));
  const command = replyCommand(answer, host.clock.now());
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, answer.await_id);
  if (decision.length === 0) return answeredBefore(run, command);
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
  const command = replyCommand(answer, host.clock.now());
  const decision = log.decide(command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, await_id);
  const [entry] = decision;
  if (entry === undefined) return answeredBefore(run, command);
  const record = recordFor(run, answer);
  const goOn = (): void => {
    // If another process has written first, the answer was decided again, and perhaps refused.
    if (isTaken(log, command)) execution.withSlot(() => execution.deliver(entry, reading.value));
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

/** The same answer is in the log already. */
async function answeredBefore(run: AnsweredRun, command: ReplyCommand): Promise<Run> {
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

function isTaken(log: RunLog, command: ReplyCommand): boolean {
  const decision = decide(log.state, command);
  return !isRefusal(decision) && decision.length === 0;
}

function recordFor({ log }: AnsweredRun, { mode }: Answer): Run | undefined {
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

/**
 * Gives the verdict on the answers that other processes have offered. An answer that is taken is handed to the agent
 * when it is committed.
 */
export function answerOffers(run: OfferedRun): void {
  const { log, execution } = run;
  for (const offer of log.state.mail?.offers.values() ?? []) {
    const question = execution?.waits.question(offer.await_id);
    if (execution === undefined || question === undefined || !question.examines(offer.offer_id)) continue;
    const reading: MaybePromise<Validated> = offer.answer === undefined ? declined : question.validate(offer.answer);
    if (isPromise(reading)) void reading.then((later) => decideOffer(run, execution, offer, later));
    else decideOffer(run, execution, offer, reading);
  }
}

function decideOffer(run: OfferedRun, execution: Execution, offer: OfferedEntry, reading: Validated): void {
  const { log, clock } = run;
  if (log.lost || execution.over || run.isClosed) return;
  const { offer_id, await_id, answer, decline, idempotency_key, by } = offer;
  const at = clock.now();
  if ("issues" in reading) {
    const { issues } = reading;
    log.decide({ type: "refuse", entry: { type: "refused", at, offer_id, code: "answer_rejected", issues } });
    log.flush();
    return;
  }
  const reply = answer === undefined ? { decline: decline ?? {} } : { answer };
  const command = replyCommand({ await_id, reply, idempotency_key, by }, at, offer_id);
  const decision = log.decide(command);
  const entry = isRefusal(decision) ? undefined : decision[0];
  if (entry === undefined) return;
  onceCommitted(log, () => {
    if (isTaken(log, command)) execution.withSlot(() => execution.deliver(entry, reading.value));
  });
}
