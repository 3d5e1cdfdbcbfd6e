import { inBackground, newController, onceAborted } from "../../core/background.ts";
import type { PartSource } from "../../core/emission-source.ts";
import type { CadenzaError, CadenzaErrorCode } from "../../core/errors.ts";
import type { StepFailure } from "../../core/failure.ts";
import { errorOfStep, failureOfStep } from "../../core/failure.ts";
import { copyJson } from "../../core/json.ts";
import type { AttemptEntry, AttemptFailedEntry, Growing, StepEntry } from "../../core/log.ts";
import { nameIn } from "../../core/operation-keys.ts";
import { ignore } from "../../core/promises.ts";
import { createdEntry, generationNumber, isFinal, isStopped, isWaiting } from "../../core/state.ts";
import { isOwn } from "../../core/tenants.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { StepOptions, StepRetry, StepScope } from "../agent/agent-steps.ts";
import { readEmission } from "../agent/generator.ts";
import { recordedResult } from "../agent/recorded.ts";
import { checkResultSize } from "../log/part-size.ts";
import type { SharedByRuns } from "../log/shared-by-runs.ts";
import type { Entered } from "../log/step-limits.ts";
import { AgentPromise } from "./agent-promise.ts";
import type { AgentRun, Execution, Failing, StepBody } from "./execution.ts";
import { Bodies, isNested } from "./nested-operations.ts";
import { onceInLog } from "./operations.ts";
import { idempotencyKeyOf, keySeedOf } from "./random.ts";
import { failureAfter, pauseAfter, stepTimeoutError } from "./step-options.ts";
import { unlessAborted } from "./unless-aborted.ts";

/** Executes the bodies of a run's steps. */
export class Steps {
  readonly #run: AgentRun;
  /** The steps that have begun and have no result. */
  readonly #atWork = new Set<string>();
  /** The time limits of the attempts at work. */
  readonly #limits = new Set<TimeLimit>();
  /** What gives back what the attempts have of the limits of the runtime. */
  readonly #leaves = new Set<() => void>();
  /** How many steps wait for such a limit. */
  #limited = 0;
  readonly bodies: Bodies;
  /** How many of those at work begin in another process, or when the run is resumed. */
  #held = 0;
  /** Which generation of the run has begun them. */
  readonly #generation: number;

  constructor(run: AgentRun) {
    this.#run = run;
    this.#generation = generationNumber(run.log.state);
    this.bodies = new Bodies(run.shared.clock, run.shared.logger);
  }

  /** Whether a step has begun here and has no result yet: its body is at work, pauses, or waits for the run's slot. A held one has not. */
  get isBusy(): boolean {
    return this.#atWork.size > this.#held;
  }

  /** Whether steps wait for limits of the runtime, and no other step is at work. */
  get areLimited(): boolean {
    return this.#limited > 0 && this.#limited === this.#atWork.size;
  }

  /** Whether no body is at work, and none begins: see {@link SharedByRuns.stage}. */
  get areHeld(): boolean {
    return this.#held === this.#atWork.size;
  }

  /** The run is over, or has left this process. Its attempts are neither measured nor counted any more. */
  onOver(): void {
    for (const limit of this.#limits) limit.end();
    for (const leave of this.#leaves) leave();
  }

  /** Whether the generation that has begun them is over. Nothing of it counts any more. */
  get #areLeft(): boolean {
    return this.#generation !== generationNumber(this.#run.log.state);
  }

  /** Runs a body and gives the agent its result. Nothing is logged. The body begins only while this process may execute the run. */
  run(key: string, body: StepBody, options: StepOptions, execution: Execution): Promise<unknown> {
    this.#atWork.add(key);
    this.#run.onStepBegun();
    const given = new AgentPromise<unknown>();
    inBackground(this.#run.shared.logger, this.#runAttempts(key, body, options, execution, given));
    return given;
  }

  async #runAttempts(
    key: string,
    body: StepBody,
    options: StepOptions,
    execution: Execution,
    given: AgentPromise<unknown>,
  ): Promise<void> {
    try {
      const { retry, limit } = options;
      const attempts = retry?.attempts ?? 1;
      for (let attempt = 1; ; attempt++) {
        const slot = this.#run.takeSlotForBody();
        if (slot !== undefined) await slot;
        const entered = limit === undefined ? undefined : await this.#enter(limit);
        let until: number;
        try {
          if (entered !== undefined) await this.#untilBegun(entered);
          for (let wait = this.#untilOurs(); wait !== undefined; wait = this.#untilOurs()) {
            await this.#run.log.outlast(wait);
            if (this.#isStopped) throw this.#run.signal.reason;
          }
          // A plain agent continues by itself after its run has ended. While it is only being stopped, its `finally` blocks
          // may run steps.
          if (execution.over) throw this.#run.signal.reason;
          try {
            given.resolve(await this.#call({ key, attempt }, body, options));
            return;
          } catch (error) {
            const failed = failureAfter(error, attempt >= attempts || this.#isStopped, retry);
            if (failed !== undefined) throw failed.error;
            until = this.#run.shared.clock.now() + this.#pauseAfter({ key, attempt }, error, retry);
          }
        } finally {
          entered?.leave();
        }
        await this.#pause(until);
      }
    } catch (error) {
      execution.fail(given, error, key);
    } finally {
      this.#onOver(key);
    }
  }

  /** Resolves when to ask again whether this process may execute the run. Undefined: it may now. */
  #untilOurs(): undefined | Promise<void> {
    return this.#run.residence?.sync("before work");
  }

  /** Runs a body and logs its result. `before`: how far the log has come with the attempts. `given` is the agent's promise. */
  begin(key: string, body: StepBody, options: StepOptions, before: AttemptEntry | undefined, given: Failing): void {
    if (this.#atWork.has(key)) return;
    this.#atWork.add(key);
    this.#run.onStepBegun();
    inBackground(this.#run.shared.logger, this.#record(key, body, options, before, given));
  }

  async #record(
    key: string,
    body: StepBody,
    options: StepOptions,
    before: AttemptEntry | undefined,
    given: Failing,
  ): Promise<void> {
    const outcome =
      options.once === true && before !== undefined
        ? { error: interrupted(key) }
        : await this.#attempt(key, body, options, before);
    const { log, shared, execution } = this.#run;
    // After the run is released, the body's output is not logged, and so its result is not logged either. The agent is
    // left where it is then. An agent whose run has ended gets the failure.
    if (outcome === undefined || this.#areLeft || execution?.over === true) {
      if (outcome?.error !== undefined && isFinal(log.state.status))
        execution?.fail(given, errorOfStep(outcome.error), key);
      this.#onOver(key);
      return;
    }
    const { result, error = null } = outcome;
    const entry: StepEntry = {
      type: "step",
      at: shared.clock.now(),
      key,
      result,
      error,
      usage: execution?.takeUsage() ?? null,
    };
    log.decide({ type: "record", entry });
    onceInLog(log, entry, (committed) => {
      if (committed !== undefined) this.#run.execution?.deliver(committed);
      this.#onOver(key);
    });
  }

  /** While the run waits for something else, the agent first has a turn to use the result: it may begin more work. */
  #onOver(key: string): void {
    const { log, execution, shared } = this.#run;
    if (execution !== undefined && isWaiting(log.state))
      inBackground(
        shared.logger,
        execution.settled().then(() => this.#end(key)),
      );
    else this.#end(key);
  }

  #end(key: string): void {
    this.#atWork.delete(key);
    this.#run.onStepEnded();
  }

  /**
   * Each attempt is committed before it begins, and begins only while this process owns the run. Undefined: the run was
   * stopped before that.
   */
  async #attempt(
    key: string,
    body: StepBody,
    options: StepOptions,
    before: AttemptEntry | undefined,
  ): Promise<Outcome | undefined> {
    const { log, shared } = this.#run;
    const { retry, limit } = options;
    const { clock, settings } = shared;
    const attempts = retry?.attempts ?? 1;
    // The pause after an attempt outlives its process.
    if (before?.type === "attempt-failed" && !(await this.#mayTryAgain(before.until))) return undefined;
    for (let tried = 1; ; tried++) {
      if (shared.stage === "handing on" && this.#run.mayLeave) await this.#hold();
      // To the next process, a step with `once` that has begun was interrupted.
      const isHeld = (): boolean => this.#run.isHeld && (options.once !== true || tried === 1);
      while (isHeld()) await this.#untilResumed();
      const slot = this.#run.takeSlotForBody();
      if (slot !== undefined) await slot;
      if (limit !== undefined && this.#isStopped) return undefined;
      const entered = limit === undefined ? undefined : await this.#enter(limit).catch(ignore);
      if (limit !== undefined && entered === undefined) return undefined;
      if (isHeld()) {
        entered?.leave();
        tried -= 1;
        continue;
      }
      let until: number | undefined;
      try {
        const attempt = (before?.attempt ?? 0) + tried;
        log.decide({ type: "intend", entry: { type: "intent", at: clock.now(), key, attempt, run_id: null } });
        await log.commit();
        if (entered !== undefined) await this.#untilBegun(entered).catch(ignore);
        // Each body checks that itself, with nothing between the check and the body.
        for (let wait = this.#untilOurs(); wait !== undefined; wait = this.#untilOurs()) await log.outlast(wait);
        // Another process may have cancelled the run before the attempt was written. Then the log does not have it.
        if (this.#isStopped || isStopped(log.state)) return undefined;
        try {
          const result = await this.#call({ key, attempt }, body, options);
          return outcomeOf(key, result, settings.maxStepBytes);
        } catch (error) {
          const isLast = tried >= attempts;
          if (!isLast && this.#isStopped && !isNested(error)) return undefined;
          const failed = failureAfter(error, isLast, retry);
          if (failed !== undefined) return { error: failureOfStep(failed.error) };
          const waitMs = this.#pauseAfter({ key, attempt }, error, retry);
          const at = clock.now();
          until = waitMs > 0 ? at + waitMs : undefined;
          const entry: Growing<AttemptFailedEntry> = {
            type: "attempt-failed",
            ...{ at, key, attempt, failure: failureOfStep(error) },
          };
          if (until !== undefined) entry.until = until;
          log.decide({ type: "retry", entry });
          // Without a pause, it is written with the next attempt.
          if (until !== undefined) log.flush();
        }
      } finally {
        entered?.leave();
      }
      if (!(await this.#mayTryAgain(until))) return undefined;
    }
  }

  /**
   * Waits for a limit of the runtime. What an attempt waits is no time at work. Rejects when the run is stopped. Does not
   * resolve where another process begins the attempt.
   */
  async #enter(limit: string): Promise<Entered> {
    const run = this.#run;
    const { stepLimits } = run.shared.settings;
    const entered = await this.#limitedDuring(stepLimits.enter(limit, this.#stopping, () => run.mayLeave));
    if (entered === undefined) return this.#hold();
    this.#leaves.add(entered.leave);
    return {
      begin: () => entered.begin(),
      leave: () => {
        entered.leave();
        this.#leaves.delete(entered.leave);
      },
    };
  }

  /** Waits until the body of an attempt may begin under its limit. Rejects when the run is stopped. */
  #untilBegun(entered: Entered): Promise<void> {
    return this.#limitedDuring(unlessAborted(entered.begin(), this.#stopping));
  }

  /** The signal of the run. Undefined: the run is being stopped. A plain agent may run steps then, too. */
  get #stopping(): AbortSignal | undefined {
    const { signal } = this.#run;
    return signal.aborted ? undefined : signal;
  }

  async #limitedDuring<T>(waiting: Promise<T>): Promise<T> {
    this.#limited += 1;
    this.#run.onLimited();
    try {
      return await waiting;
    } finally {
      this.#limited -= 1;
      this.#run.onLimited();
    }
  }

  /** Never resolves: another process begins the attempt. */
  #hold(): Promise<never> {
    this.#held += 1;
    this.#run.shared.onProgress?.();
    return new Promise(ignore);
  }

  /** Does not resolve where the run has left by then, or is stopped. */
  #untilResumed(): Promise<void> {
    this.#held += 1;
    return new Promise((resolve) =>
      this.#run.hold(() => {
        this.#held -= 1;
        resolve();
      }),
    );
  }

  get #isStopped(): boolean {
    return this.#areLeft || this.#run.execution?.isStopped !== false;
  }

  /** Calls a body once. */
  #call(source: PartSource, body: StepBody, options: StepOptions): Promise<unknown> {
    const { timeoutMs = Number.POSITIVE_INFINITY, stallMs = Number.POSITIVE_INFINITY } = options;
    const limits: AttemptLimits = { timeoutMs, stallMs };
    if (Math.min(timeoutMs, stallMs) === Number.POSITIVE_INFINITY) return this.#callBody(source, body, undefined);
    const { run_id } = this.#run.log.key;
    const limit = new TimeLimit(this.#run, limits, (exceeded) =>
      stepTimeoutError(run_id, source.key, source.attempt, exceeded, limits[exceeded]),
    );
    this.#limits.add(limit);
    return limit.apply(() => this.#callBody(source, body, limit)).finally(() => this.#limits.delete(limit));
  }

  #callBody(source: PartSource, body: StepBody, limit: TimeLimit | undefined): Promise<unknown> {
    const scope = this.#scope(source, limit);
    const call = (): Promise<unknown> => this.bodies.call(() => body(scope));
    const { agent, log, shared } = this.#run;
    const wrap = shared.settings.interceptors.step;
    if (wrap === undefined || isOwn(log.key.tenant)) return call();
    const info = { ...log.key, agent_name: agent.name, name: nameIn(source.key), ...source, signal: scope.signal };
    return wrap(info, call);
  }

  #scope(source: PartSource, limit: TimeLimit | undefined): StepScope {
    const run = this.#run;
    const outer = limit ?? run;
    return {
      ...source,
      get idempotencyKey() {
        const { key, state } = run.log;
        return idempotencyKeyOf(keySeedOf(createdEntry(state), key.run_id), source.key);
      },
      get signal() {
        return outer.signal;
      },
      emit: (value) => {
        const { execution } = run;
        if (execution === undefined) return Promise.resolve();
        return execution.given(() => {
          const emission = readEmission(value);
          limit?.progress();
          // What a body emits after its time is not kept.
          return limit?.isExceeded === true ? execution.pace() : execution.emit({ ...emission, source });
        }, source.key);
      },
      progress: () => limit?.progress(),
    };
  }

  /** How long to wait after an attempt that has failed, in milliseconds. */
  #pauseAfter({ key, attempt }: PartSource, error: unknown, retry: StepRetry | undefined): number {
    return pauseAfter(attempt, error, retry, `${this.#run.log.key.run_id} ${key} ${attempt}`);
  }

  /** Waits until the time of the next attempt, if there is a pause before it. Answers whether the run was not stopped meanwhile. */
  async #mayTryAgain(until: number | undefined): Promise<boolean> {
    if (until !== undefined) await this.#pause(until).catch(ignore);
    return !this.#isStopped;
  }

  /** Waits until the time of the next attempt. Rejects when the run is stopped. */
  async #pause(until: number): Promise<void> {
    const { clock } = this.#run.shared;
    // Timers may fire a little early.
    for (let left = until - clock.now(); left > 0; left = until - clock.now()) await this.#sleep(left);
  }

  #sleep(ms: number): Promise<void> {
    const { clock, logger } = this.#run.shared;
    const { signal } = this.#run;
    if (signal.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const clear = clock.setTimeout(() => {
        unfollow();
        resolve();
      }, ms);
      const unfollow = onceAborted(logger, signal, () => {
        clear();
        reject(signal.reason);
      });
    });
  }
}

interface Outcome {
  readonly result?: JsonValue | undefined;
  readonly error?: StepFailure;
}

/**
 * The outcome of a body that has returned. A result that JSON would change, or that is too large, makes the step fail
 * without another attempt.
 */
function outcomeOf(key: string, returned: unknown, maxBytes: number): Outcome {
  try {
    const result = recordedResult(key, returned);
    checkResultSize(key, result, maxBytes);
    return { result };
  } catch (error) {
    return { error: failureOfStep(error) };
  }
}

/** The result of a step in the log, or throws an error like the one that the body threw. */
export function resultOfStep({ result, error }: StepEntry): JsonValue | undefined {
  // A copy, because the agent may change it.
  if (error === null) return copyJson(result);
  throw errorOfStep(error);
}

function interrupted(key: string): StepFailure {
  const message = `Step ${key} was interrupted by the end of its process. Its option "once" forbids another attempt.`;
  return { name: "CadenzaError", message, code: "step_interrupted" satisfies CadenzaErrorCode, data: undefined };
}

/** The limits of one attempt: see {@link StepOptions}. At least one of them is finite. */
interface AttemptLimits {
  readonly timeoutMs: number;
  readonly stallMs: number;
}

/** The time limits of one attempt at a step. When the time is over, the attempt fails, whatever its body does. */
class TimeLimit {
  readonly #run: Pick<AgentRun, "shared" | "signal">;
  readonly #limits: AttemptLimits;
  readonly #newError: (exceeded: keyof AttemptLimits) => CadenzaError;
  /** Whether the attempt has gone on since the last look. */
  #hasProgress = false;
  readonly #timers = new Map<keyof AttemptLimits, () => void>();
  #controller: AbortController | undefined;
  #error: CadenzaError | undefined;
  /** Undefined: the attempt has not begun, or is over. */
  #clear: (() => void) | undefined;
  #unfollow: (() => void) | undefined;

  constructor(
    run: Pick<AgentRun, "shared" | "signal">,
    limits: AttemptLimits,
    newError: (exceeded: keyof AttemptLimits) => CadenzaError,
  ) {
    this.#run = run;
    this.#limits = limits;
    this.#newError = newError;
  }

  /** Aborts when the time is over, and with the run's signal. It is created on first use. */
  get signal(): AbortSignal {
    this.#controller ??= this.#newController();
    return this.#controller.signal;
  }

  /** Whether the time was over before the body ended. */
  get isExceeded(): boolean {
    return this.#error !== undefined;
  }

  /** Calls a function. Rejects when the time is over. What the function gives after that is dropped. */
  apply<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#clear = () => {
        for (const clear of this.#timers.values()) clear();
      };
      const exceed = (exceeded: keyof AttemptLimits): void => {
        this.end();
        const error = this.#newError(exceeded);
        this.#error = error;
        reject(error);
        this.#controller?.abort(error);
      };
      this.#watch("timeoutMs", exceed);
      this.#watch("stallMs", exceed);
      const worked = work().finally(() => this.end());
      worked.then(resolve, reject);
    });
  }

  /** The attempt makes progress. */
  progress(): void {
    this.#hasProgress = true;
  }

  /** Starts the timer of a limit. The timer of `stallMs` starts again for as long as there is progress. */
  #watch(limit: keyof AttemptLimits, exceed: (exceeded: keyof AttemptLimits) => void): void {
    if (this.#limits[limit] === Number.POSITIVE_INFINITY) return;
    const clear = this.#run.shared.clock.setTimeout(() => {
      const goesOn = limit === "stallMs" && this.#hasProgress;
      this.#hasProgress = false;
      if (goesOn) this.#watch(limit, exceed);
      else exceed(limit);
    }, this.#limits[limit]);
    this.#timers.set(limit, clear);
  }

  /** The time is not measured any more. */
  end(): void {
    this.#clear?.();
    this.#clear = undefined;
    this.#unfollow?.();
    this.#unfollow = undefined;
  }

  #newController(): AbortController {
    const { logger } = this.#run.shared;
    const controller = newController(logger);
    const { signal } = this.#run;
    const stop = (): void => controller.abort(signal.reason);
    if (this.#error !== undefined) controller.abort(this.#error);
    else if (signal.aborted) stop();
    else if (this.#clear !== undefined) this.#unfollow = onceAborted(logger, signal, stop);
    return controller;
  }
}
