import type { ReplyCommand } from "../../core/commands.ts";
import { copyState } from "../../core/copy-state.ts";
import { decide, isRefusal } from "../../core/decide.ts";
import { CadenzaError, isNotFound } from "../../core/errors.ts";
import { sameJson } from "../../core/json.ts";
import type { CreatedEntry, QuestionRef } from "../../core/log.ts";
import type { Clock, RunKey, Store } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise, later } from "../../core/promises.ts";
import { goingOn, runRecord } from "../../core/record.ts";
import type { Question, RunState } from "../../core/state.ts";
import { createdEntry, openQuestion, repliedWithKey, replyTo, settledQuestion } from "../../core/state.ts";
import type { Run } from "../../protocol/run.ts";
import type { Answer } from "../agent/answer.ts";
import { admitAnswer, replyCommand } from "../agent/answer.ts";
import type { Validated } from "../agent/standard-schema.ts";
import type { Execution } from "../execution/execution.ts";
import type { Ask } from "../execution/waits.ts";
import { declined, questionOf } from "../execution/waits.ts";
import { committedRecord, foldAll, foldLog } from "../log/fold-log.ts";
import { closedError, isLost, lostError, refusedAbove, rejectedError, replyRefusedError } from "../log/refusals.ts";
import type { RunLog } from "../log/run-log.ts";
import type { PostCommands } from "./committed-above.ts";
import { committedAbove, tellAbove } from "./committed-above.ts";
import type { LiveRun } from "./live-run.ts";
import { unlessLost } from "./remote-runs.ts";
import type { Runs } from "./runs.ts";

/** A run that was answered. `run` is undefined if the run is not loaded here. */
export interface Answered {
  readonly run: LiveRun | undefined;
  readonly key: RunKey;
  /** The run as it was when the answer was accepted, in mode `async`. */
  readonly record: Run | undefined;
  /** The number of the event after which the events of the answer begin. */
  readonly after: number;
  /** The first entry of the run. */
  readonly of: CreatedEntry;
  /** The question that has the answer; null: it is not known any more. */
  readonly await_id: string | null;
  /** Whether the question had the answer before. */
  readonly repeated: boolean;
  /** In mode `stream`: the state before the answer. Undefined: it is not known, or not committed. */
  readonly before?: RunState | undefined;
}

/** Gives answers to runs. A run that is not loaded in this process is loaded first. */
export class AnswerRouter {
  readonly #runs: Runs;
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(runs: Runs) {
    this.#runs = runs;
    this.#store = runs.shared.store;
    this.#clock = runs.shared.clock;
  }

  /** Gives the answer to the run that asks: the addressed run, or a sub-run whose question it shows. */
  answer(key: RunKey, answer: Answer): MaybePromise<Answered> {
    const live = this.#runs.find(key);
    if (live === undefined) return this.#answerAnywhere(key, answer);
    // The client may have seen a question that another process has written, and that this one has not read.
    const mayBeBehind = !isAsked(live.log.state, answer) && !live.log.isRetrying;
    const reading = mayBeBehind ? live.residence?.sync("after writing") : undefined;
    return reading === undefined ? this.#answerLoaded(live, key, answer) : this.#answerAfter(reading, key, answer);
  }

  async #answerAfter(reading: Promise<void>, key: RunKey, answer: Answer): Promise<Answered> {
    await reading;
    const run = this.#runs.find(key);
    return run === undefined ? this.#answerAnywhere(key, answer) : this.#answerLoaded(run, key, answer);
  }

  #answerLoaded(live: LiveRun, key: RunKey, answer: Answer): MaybePromise<Answered> {
    const below = belowOf(live.log.state, answer);
    if (below !== undefined) return this.#answerBelow(key, below, answer, live.log.state);
    const answering = this.#answerLive(live, key, answer);
    return isPromise(answering) ? this.#unlessLost(answering, key, answer) : answering;
  }

  async #unlessLost(answering: Promise<Answered>, key: RunKey, answer: Answer): Promise<Answered> {
    try {
      return await answering;
    } catch (error) {
      if (isLost(error)) return this.#answerAnywhere(key, sameQuestion(answer, error));
      throw error;
    }
  }

  /** A sub-run asks. Its answer is in its own log, and the runs above it learn of it before the caller does. */
  async #answerBelow(key: RunKey, { shown, of, awaitId }: Below, given: Answer, state: RunState): Promise<Answered> {
    await admitAnswer(state, awaitId, given);
    const answer: Answer = { ...given, admit: undefined };
    let repeated = false;
    try {
      ({ repeated } = await this.answer({ ...key, run_id: of.run_id }, { ...answer, await_id: of.await_id }));
    } catch (error) {
      if (!isNotFound(error)) throw refusedAbove(error, key.run_id, awaitId);
      await this.#checkAnswered(key, { ...answer, await_id: awaitId });
    }
    const run = this.#runs.find(key);
    const after = (run && settledQuestion(run.log.state, awaitId)?.event) ?? shown;
    const record = answer.mode === "async" ? await this.#recordAfter(key, awaitId) : undefined;
    return { run, key, record, after, of: createdEntry(state), await_id: awaitId, repeated };
  }

  /** Throws unless a run has the answer to a question of a sub-run, which the store may have deleted meanwhile. */
  async #checkAnswered(key: RunKey, answer: Answer): Promise<void> {
    const { state } = await foldAll(this.#store, key);
    const decision = decide(state, replyCommand(answer, this.#clock.now()));
    if (isRefusal(decision)) throw replyRefusedError(decision, state, answer.await_id);
  }

  /** The record of a run as it was when a question was settled in it. Undefined: it has not been. */
  async #recordAfter(key: RunKey, awaitId: string): Promise<Run | undefined> {
    const state = this.#runs.find(key)?.log.state ?? (await foldLog(this.#store, key, Number.POSITIVE_INFINITY));
    const settled = state && settledQuestion(state, awaitId);
    return settled && goingOn(await committedRecord(this.#store, key, settled.settled_position));
  }

  #answerAnywhere(key: RunKey, answer: Answer): Promise<Answered> {
    let bound = answer;
    return unlessLost(async () => {
      try {
        return await this.#answerRun(key, bound);
      } catch (error) {
        bound = sameQuestion(bound, error);
        throw error;
      }
    });
  }

  #answerLive(run: LiveRun, key: RunKey, answer: Answer): MaybePromise<Answered> {
    const { state, backlog } = run.log;
    const shown = askedAt(state, answer);
    const await_id = answer.await_id ?? idOf(state);
    const before = answer.mode === "stream" && backlog === 0 ? copyState(state) : undefined;
    const about = aboutAnswer(state, answer);
    const bound: Bound = { key, answer, await_id, shown, about, before };
    const record = answerRun(run, answer);
    return isPromise(record) ? this.#answeredLater(run, bound, record) : this.#answered(run, bound, record);
  }

  async #answeredLater(run: LiveRun, bound: Bound, record: Promise<Run | undefined>): Promise<Answered> {
    return this.#answered(run, bound, await record);
  }

  #answered(
    run: LiveRun,
    { key, answer, await_id, shown, about, before }: Bound,
    record: Run | undefined,
  ): MaybePromise<Answered> {
    const { state } = run.log;
    // Meanwhile other questions may have been settled.
    const question = await_id === null ? undefined : settledQuestion(state, await_id);
    const after = question?.event ?? shown;
    const { of, await_id: answered, repeated } = aboutEnd(about, question, answer);
    const result: Answered = { run, key, record, after, of, await_id: answered, repeated, before };
    const settling = this.#settleAbove(key, state, answer, await_id);
    return settling === undefined ? result : settling.then(() => result);
  }

  /** The caller of an answer finds the question settled in the runs above, whichever process has settled it below. */
  #settleAbove(key: RunKey, state: RunState, answer: Answer, await_id: string | null): undefined | Promise<void> {
    const { remote } = this.#runs;
    const { parent } = createdEntry(state);
    if (remote === undefined || parent === undefined) return undefined;
    const question = exchangeOf(state, { ...answer, await_id });
    if (question === undefined) return undefined;
    const post: PostCommands = (above, commands) => remote.post(above, { type: "questions", commands });
    return tellAbove(this.#runs, post, key, parent, [question]);
  }

  async #answerRun(key: RunKey, answer: Answer): Promise<Answered> {
    const { remote } = this.#runs;
    const run = this.#runs.find(key) ?? (await remote?.load(key));
    const state = run === undefined ? (await foldAll(this.#store, key)).state : run.log.state;
    const below = belowOf(state, answer);
    if (below !== undefined) return this.#answerBelow(key, below, answer, state);
    if (run !== undefined) return this.#answerLive(run, key, answer);
    const about = aboutAnswer(state, answer);
    const decision = decide(state, replyCommand(answer, this.#clock.now()));
    if (isRefusal(decision)) throw replyRefusedError(decision, state, answer.await_id);
    const shown = askedAt(state, answer);
    if (decision.length === 0) {
      await this.#settleAbove(key, state, answer, answer.await_id);
      return { run: this.#runs.find(key), key, record: undefined, after: shown, ...about };
    }
    const await_id = answer.await_id ?? idOf(state);
    await admitAnswer(state, await_id, answer);
    if (remote === undefined) throw closedError();
    const later = await remote.post(key, { type: "answer", answer: { ...answer, await_id } });
    await this.#settleAbove(key, later, answer, await_id);
    const question = await_id === null ? undefined : settledQuestion(later, await_id);
    const after = question?.event ?? shown;
    const isAsync = answer.mode === "async" && await_id !== null;
    const record = isAsync ? await this.#recordAfter(key, await_id) : undefined;
    return { run: this.#runs.find(key), key, record, after, ...aboutEnd(about, question, answer) };
  }
}

function idOf({ question }: RunState): string | null {
  return question?.asked.await_id ?? null;
}

/** Whether the question that an answer is for is open. */
function isAsked(state: RunState, { await_id }: Answer): boolean {
  return openQuestion(state, await_id) !== undefined;
}

/** A question of a sub-run that a run shows. */
interface Below {
  readonly of: QuestionRef;
  /** Its id in the run that shows it. */
  readonly awaitId: string;
  /** The number of the event that shows the first open question. */
  readonly shown: number;
}

/** The sub-run's question that an answer is for. Undefined: it is for a question of the run itself. */
function belowOf(state: RunState, { await_id, idempotency_key }: Answer): Below | undefined {
  const question = openQuestion(state, await_id);
  const of = question?.asked.of;
  if (question === undefined || of === undefined || repliedWithKey(state, idempotency_key) !== undefined)
    return undefined;
  const shown = state.question?.event ?? question.event;
  return { of, awaitId: question.asked.await_id, shown };
}

/**
 * The number of the event after which the events of the answer begin: of the one that shows the first open question or, for
 * a repeated answer, of the one that showed it then.
 */
function askedAt(state: RunState, answer: Answer): number {
  const isRepeat = repliedWithKey(state, answer.idempotency_key) !== undefined;
  const isOpen = answer.await_id === null || openQuestion(state, answer.await_id) !== undefined;
  if (!isRepeat && isOpen && state.question !== null) return state.question.event;
  return exchangeOf(state, answer)?.event ?? state.events;
}

/** An answer to a live run. `shown`: the number of the event before the events of the answer, as far as it is known. */
interface Bound {
  readonly key: RunKey;
  readonly answer: Answer;
  readonly await_id: string | null;
  readonly shown: number;
  readonly about: AboutAnswer;
  readonly before: Answered["before"];
}

type AboutAnswer = Pick<Answered, "of" | "await_id" | "repeated">;

/** Which question an answer is for, and whether it had it before: by the state before the answer. */
function aboutAnswer(state: RunState, answer: Answer): AboutAnswer {
  const repeated = repliedWithKey(state, answer.idempotency_key) !== undefined || !isAsked(state, answer);
  const await_id = repeated ? (exchangeOf(state, answer)?.asked.await_id ?? null) : (answer.await_id ?? idOf(state));
  return { of: createdEntry(state), await_id, repeated };
}

/** The same after the answer. Meanwhile another principal may have given the same one. */
function aboutEnd(about: AboutAnswer, question: Question | undefined, { by = null }: Answer): AboutAnswer {
  const { settled } = question ?? {};
  const isReply = settled?.type === "resumed" || settled?.type === "declined";
  return isReply && !sameJson(settled.by ?? null, by) ? { ...about, repeated: true } : about;
}

/** The settled question that an answer was for, if it has been given: by its key, by its question, or the last one. */
function exchangeOf(state: RunState, { await_id, idempotency_key }: Answer): Question | undefined {
  const byKey = repliedWithKey(state, idempotency_key);
  if (byKey !== undefined) return byKey;
  if (await_id !== null) return settledQuestion(state, await_id);
  return state.exchanges?.findLast((one) => replyTo(one) !== undefined);
}

/** The answer, given again because the run has left this process. It is bound to the same question as before. */
function sameQuestion(answer: Answer, error: unknown): Answer {
  if (!CadenzaError.is(error) || error.await_id === undefined) return answer;
  return { ...answer, await_id: error.await_id };
}

/**
 * Gives a run an answer. The answer is validated by the agent's question, decided, committed, and then handed to the
 * agent. A process that does not hold the question decides nothing. The result, in mode `async` only, is the record of
 * the run before its agent continues.
 */
function answerRun(run: LiveRun, answer: Answer): MaybePromise<Run | undefined> {
  const ready = run.residence?.whenAnswerable();
  return ready === undefined ? answerNow(run, answer) : later(ready, answerNow, run, answer);
}

function answerNow(run: LiveRun, answer: Answer): MaybePromise<Run | undefined> {
  const { log } = run;
  const open = openQuestion(log.state, answer.await_id);
  const isUsed = repliedWithKey(log.state, answer.idempotency_key) !== undefined;
  if (open === undefined || open.asked.of !== undefined || isUsed) return notAsked(run, answer);
  const bound: BoundAnswer = { ...answer, await_id: open.asked.await_id };
  const admitted = admitAnswer(log.state, bound.await_id, answer);
  return admitted === undefined ? giveBound(run, bound) : later(admitted, giveBound, run, bound);
}

/** The answer is refused, or was given before. */
function notAsked(run: LiveRun, answer: Answer): MaybePromise<Run | undefined> {
  const { log, shared } = run;
  const command = replyCommand(answer, shared.clock.now());
  const first = decide(log.state, command);
  if (isRefusal(first)) {
    // A refusal reveals the state, so the state is committed first.
    const committed = log.acknowledge();
    if (committed !== undefined) return later(committed, answerRun, run, answer);
    throw replyRefusedError(first, log.state, answer.await_id);
  }
  return answeredBefore(run, command);
}

function giveBound(run: LiveRun, bound: BoundAnswer): MaybePromise<Run | undefined> {
  const { log, shared, execution } = run;
  const { run_id } = log.key;
  if (shared.isClosed) throw closedError();
  if (execution === undefined) throw lostError(run_id);
  const answering = giveTo(run, execution, questionOf(execution, bound.await_id), bound);
  return isPromise(answering) ? boundTo(bound.await_id, run_id, answering) : answering;
}

/** What loses the run meanwhile names the question, so that the answer, given again, does not answer the next one. */
async function boundTo(awaitId: string, runId: string, answering: Promise<Run | undefined>): Promise<Run | undefined> {
  try {
    return await answering;
  } catch (error) {
    throw isLost(error) ? lostError(runId, undefined, awaitId) : error;
  }
}

/** A reply that is bound to one question. */
interface BoundAnswer extends Answer {
  readonly await_id: string;
}

function giveTo(
  run: LiveRun,
  execution: Execution,
  question: Ask | undefined,
  answer: BoundAnswer,
): MaybePromise<Run | undefined> {
  if (question === undefined) return withoutQuestion(run, answer);
  const { reply } = answer;
  // To decline needs no validation.
  if ("decline" in reply) return take(run, execution, answer, declined);
  const reading = question.validate(reply.answer);
  return isPromise(reading) ? takeRead(run, execution, answer, reading) : take(run, execution, answer, reading);
}

async function takeRead(
  run: LiveRun,
  execution: Execution,
  answer: BoundAnswer,
  reading: Promise<Validated>,
): Promise<Run | undefined> {
  return take(run, execution, answer, await reading);
}

/** This process does not hold the question any more: it is settled, or another process owns the run. */
function withoutQuestion(run: LiveRun, answer: BoundAnswer): MaybePromise<Run | undefined> {
  const { log, shared } = run;
  const committed = log.acknowledge();
  if (committed !== undefined) return later(committed, withoutQuestion, run, answer);
  const command = replyCommand(answer, shared.clock.now());
  const decision = decide(log.state, command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, answer.await_id);
  if (decision.length === 0) return answeredBefore(run, command);
  throw lostError(log.key.run_id, undefined, answer.await_id);
}

function take(
  run: LiveRun,
  execution: Execution,
  answer: BoundAnswer,
  reading: Validated,
): MaybePromise<Run | undefined> {
  const { log, shared } = run;
  const { run_id } = log.key;
  const { await_id } = answer;
  if ("issues" in reading) throw rejectedError(run_id, await_id, reading.issues);
  // During the validation another process may have taken the run over, or the agent may be executed again.
  if (log.lost || execution.over) return withoutQuestion(run, answer);
  if (run.shared.isClosed) throw closedError();
  const command = replyCommand(answer, shared.clock.now());
  run.holdIfPaused();
  const decision = log.decide(command);
  if (isRefusal(decision)) throw replyRefusedError(decision, log.state, await_id);
  const [entry] = decision;
  if (entry === undefined) return answeredBefore(run, command);
  const record = recordFor(run, answer);
  const acknowledged = log.acknowledge();
  // If the store fails, the caller gets an error. The agent still continues when a retry succeeds.
  execution.deliverOnceLogged(entry, reading.value);
  return acknowledged === undefined ? taken(run, record) : later(acknowledged, confirmed, run, record, command);
}

function confirmed(run: LiveRun, record: Run | undefined, command: ReplyCommand): MaybePromise<Run | undefined> {
  confirm(run.log, command);
  return taken(run, record);
}

/** The runs above learn of the answer before the caller does. */
function taken(run: LiveRun, record: Run | undefined): MaybePromise<Run | undefined> {
  const above = committedAbove(run);
  return above === undefined ? record : above.then(() => record);
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
