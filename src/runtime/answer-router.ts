import { decide, isRefusal } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { Clock, RunKey, Store } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";
import type { RunState } from "../core/state.ts";
import type { Run } from "../protocol/run.ts";
import { foldLog } from "./fold-log.ts";
import type { LiveRun } from "./live-run.ts";
import type { Answer } from "./questions.ts";
import { isLost, refusalError } from "./refusals.ts";
import type { RunReader } from "./run-reader.ts";
import { notFound } from "./run-reader.ts";
import type { Runs } from "./runs.ts";
import { unlessLost } from "./unless-lost.ts";

/** A run that was answered. `run` is undefined if the run is not loaded here. */
export interface Answered {
  readonly run: LiveRun | undefined;
  readonly key: RunKey;
  /** The run as it was when the answer was accepted, in mode `async`. */
  readonly record: Run | undefined;
  readonly after: number;
}

/** Gives answers to runs. A run that is not loaded in this process is loaded first. */
export class AnswerRouter {
  readonly #runs: Runs;
  readonly #reader: RunReader;
  readonly #store: Store;
  readonly #clock: Clock;

  constructor(runs: Runs, reader: RunReader) {
    this.#runs = runs;
    this.#reader = reader;
    this.#store = runs.store;
    this.#clock = runs.clock;
  }

  answer(key: RunKey, answer: Answer): MaybePromise<Answered> {
    const live = this.#runs.find(key);
    if (live === undefined) return this.#answerAnywhere(key, answer);
    const answering = this.#answerLive(live, key, answer);
    if (!isPromise(answering)) return answering;
    return answering.catch((error: unknown) => {
      if (isLost(error)) return this.#answerAnywhere(key, sameQuestion(answer, error));
      throw error;
    });
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
    const after = askedAt(run.log.state, answer);
    const record = run.answer(answer);
    return isPromise(record)
      ? record.then((later) => ({ run, key, record: later, after }))
      : { run, key, record, after };
  }

  async #answerRun(key: RunKey, answer: Answer): Promise<Answered> {
    const run = this.#runs.find(key) ?? (await this.#runs.remote.load(key));
    if (run === undefined) {
      const state = await foldLog(this.#store, key, Number.POSITIVE_INFINITY);
      if (state === undefined) throw notFound(key);
      const decision = decide(state, { ...answer, type: "resume", at: this.#clock.now() });
      if (isRefusal(decision)) throw refusalError(decision, key.run_id, answer.await_id);
      if (decision.length > 0) throw this.#runs.remote.unavailable(state, await this.#reader.stored(key));
      return { run: undefined, key, record: undefined, after: askedAt(state, answer) };
    }
    return this.#answerLive(run, key, answer);
  }
}

/**
 * The number of the event with the question: of the one that is shown, or, for a repeated answer, of the one that it
 * answered.
 */
function askedAt(state: RunState, { await_id, idempotency_key }: Answer): number {
  const exchanges = state.exchanges ?? [];
  const byKey = exchanges.find((one) => idempotency_key !== null && one.idempotency_key === idempotency_key);
  if (byKey !== undefined) return byKey.event;
  const shown = state.shown?.await_id;
  const id = await_id ?? shown;
  if (id !== undefined && id === shown) return state.shown_event;
  const before = exchanges.findLast((one) => (id === undefined ? one.answer !== null : one.asked.await_id === id));
  return before?.event ?? state.events;
}

/** The answer, given again because the run has left this process. It is bound to the same question as before. */
function sameQuestion(answer: Answer, error: unknown): Answer {
  if (!CadenzaError.is(error) || error.await_id === undefined) return answer;
  return { ...answer, await_id: error.await_id };
}
