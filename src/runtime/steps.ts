import type { CadenzaErrorCode, CadenzaErrorDetails } from "../core/errors.ts";
import { AgentError, CadenzaError } from "../core/errors.ts";
import { copyJson } from "../core/json.ts";
import type { IntentEntry, PartSource, StepEntry, StepFailure } from "../core/log.ts";
import type { Clock } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore } from "../core/promises.ts";
import type { JsonValue } from "../protocol/json.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { StepOptions, StepScope } from "./agent-context.ts";
import { Bodies, isNested } from "./bodies.ts";
import type { Execution } from "./execution.ts";
import { recordedResult } from "./recorded.ts";
import type { RunLog } from "./run-log.ts";
import { readEmission } from "./yields.ts";

/** What the steps of a run need from it. */
export interface StepsHost {
  readonly log: RunLog;
  readonly clock: Clock;
  readonly durable: boolean;
  readonly signal: AbortSignal;
  /** The execution that the results go to: a body may outlive the one that began it. */
  readonly execution: Execution | undefined;
  /** Some work has been done: the run may need no owner any more. */
  settleOwner(): void;
  /** Resolves when it is certain that the run still belongs to this process; stays open if it does not. */
  ensureOwner(): undefined | Promise<void>;
  /** Keeps the process from ending until the answer is called. */
  hold(): () => void;
}

type Body = (step: StepScope) => MaybePromise<unknown>;

/** The bodies of a run's steps that are at work. */
export class Steps {
  readonly #host: StepsHost;
  readonly #atWork = new Set<string>();
  readonly #bodies: Bodies;

  constructor(host: StepsHost) {
    this.#host = host;
    this.#bodies = new Bodies(host.clock);
  }

  /** Whether what the agent begins now comes from inside a body. An agent on its way through its log begins what it began before. */
  isInside(isReplaying: boolean): boolean {
    return this.#bodies.isInside(this.#host.durable && !isReplaying);
  }

  /** A durable agent is given something to go on with. */
  moves(): void {
    this.#bodies.moves();
  }

  get isBusy(): boolean {
    return this.#atWork.size > 0;
  }

  /** Runs a body and gives what it gives; nothing is recorded. It begins only while the run is this process's. */
  async run(key: string, body: Body, { retry }: StepOptions): Promise<unknown> {
    const attempts = retry?.attempts ?? 1;
    for (let attempt = 1; ; attempt++) {
      for (let wait = this.#host.ensureOwner(); wait !== undefined; wait = this.#host.ensureOwner()) {
        await wait;
        if (this.#isStopped) throw this.#host.signal.reason;
      }
      // A plain agent goes on by itself after its run has ended. While it is only being stopped, its `finally` blocks may run steps.
      if (this.#host.execution?.over !== false) throw this.#host.signal.reason;
      try {
        return await this.#bodies.call(() => body(this.#scope({ key, attempt })));
      } catch (error) {
        if (attempt >= attempts || this.#isStopped || isNested(error)) throw error;
      }
      await this.#pause(retry?.backoffMs ?? 0);
    }
  }

  /** Runs a body and records what it gives. `before`: the last attempt in the log, which was interrupted. */
  begin(key: string, body: Body, options: StepOptions, before: IntentEntry | undefined): void {
    if (this.#atWork.has(key)) return;
    this.#atWork.add(key);
    void this.#record(key, body, options, before?.attempt ?? 0);
  }

  async #record(key: string, body: Body, options: StepOptions, before: number): Promise<void> {
    const outcome =
      options.once === true && before > 0
        ? { error: interrupted(key) }
        : await this.#attempt(key, body, options, before);
    const { log, clock, execution } = this.#host;
    // What a body showed after the run was given back is not in its log, and so its result is not either.
    if (outcome === undefined || execution?.over === true) {
      this.#atWork.delete(key);
      return;
    }
    const { result, error = null } = outcome;
    const entry: StepEntry = {
      type: "step",
      at: clock.now(),
      key,
      result,
      error,
      usage: execution?.takeUsage() ?? null,
    };
    log.decide({ type: "record", entry });
    const committed = log.commit();
    // An answer that comes before the next microtask comes after this in the log.
    if (committed !== undefined) await committed;
    this.#host.execution?.results.deliver(entry);
    this.#atWork.delete(key);
    this.#host.settleOwner();
  }

  /** Every attempt is in the log before it begins, and begins only while the run is this process's. Undefined: the run was stopped before it began. */
  async #attempt(key: string, body: Body, { retry }: StepOptions, before: number): Promise<Outcome | undefined> {
    const { log, clock } = this.#host;
    const attempts = retry?.attempts ?? 1;
    for (let tried = 1; ; tried++) {
      const attempt = before + tried;
      log.decide({ type: "intend", entry: { type: "intent", at: clock.now(), key, attempt, run_id: null } });
      await log.commit();
      // Nothing comes between the look and the body: of several bodies that wait, each looks for itself.
      for (let wait = this.#host.ensureOwner(); wait !== undefined; wait = this.#host.ensureOwner()) await wait;
      if (this.#isStopped) return undefined;
      try {
        const result = await this.#bodies.call(() => body(this.#scope({ key, attempt })));
        return outcomeOf(key, result);
      } catch (error) {
        if (tried >= attempts || isNested(error)) return { error: failureOfStep(error) };
      }
      await this.#pause(retry?.backoffMs ?? 0).catch(ignore);
      if (this.#isStopped) return undefined;
    }
  }

  get #isStopped(): boolean {
    return this.#host.execution?.isStopped !== false;
  }

  #scope(source: PartSource): StepScope {
    const host = this.#host;
    return {
      ...source,
      get signal() {
        return host.signal;
      },
      emit: async (value) => {
        const emission = readEmission(value);
        return host.execution?.emit({ ...emission, source });
      },
    };
  }

  /** Waits between two attempts; a run that is stopped waits no longer. */
  #pause(waitMs: number): Promise<void> {
    if (waitMs === 0) return Promise.resolve();
    const { clock, signal } = this.#host;
    return new Promise((resolve, reject) => {
      // The run may wait for an answer beside the step, and hold nothing itself.
      const letGo = this.#host.hold();
      const clear = clock.setTimeout(() => {
        letGo();
        signal.removeEventListener("abort", stop);
        resolve();
      }, waitMs);
      const stop = (): void => {
        letGo();
        clear();
        reject(signal.reason);
      };
      if (signal.aborted) stop();
      else signal.addEventListener("abort", stop, { once: true });
    });
  }
}

interface Outcome {
  readonly result?: JsonValue | undefined;
  readonly error?: StepFailure;
}

/** What is recorded of a body that has come to its end. A result that JSON would change makes the step fail; the body is not run again for that. */
function outcomeOf(key: string, result: unknown): Outcome {
  try {
    return { result: recordedResult(key, result) };
  } catch (error) {
    return { error: failureOfStep(error) };
  }
}

/** What the agent gets out of a recorded step: the result, or an error like the one that was thrown. */
export function resultOfStep({ key, result, error }: StepEntry): JsonValue | undefined {
  // The agent may change what it is given, and the log stays as it is.
  if (error === null) return recordedResult(key, result);
  // The code of a CadenzaError was one when it was recorded.
  if (error.name === "CadenzaError")
    throw new CadenzaError(
      error.code as CadenzaErrorCode,
      error.message,
      error.data as CadenzaErrorDetails | undefined,
    );
  if (error.code !== null) throw new AgentError(error.code, error.message, error.data);
  const thrown = new Error(error.message);
  thrown.name = error.name;
  throw thrown;
}

/** An error of a step as it is recorded. */
export function failureOfStep(error: unknown): StepFailure {
  if (AgentError.is(error))
    return { name: "AgentError", message: error.message, code: error.code, data: dataOfError(error.data) };
  if (CadenzaError.is(error))
    return { name: "CadenzaError", message: error.message, code: error.code, data: detailsOf(error) };
  if (error instanceof Error) return { name: error.name, message: error.message, code: null, data: undefined };
  return { name: "Error", message: String(error), code: null, data: undefined };
}

function interrupted(key: string): StepFailure {
  const message = `Step ${key} was interrupted, and is run at most once.`;
  return { name: "CadenzaError", message, code: "step_interrupted" satisfies CadenzaErrorCode, data: undefined };
}

/** What a `CadenzaError` tells beside its message and its cause. */
function detailsOf({ agent_name, run_id, session_id, await_id, issues, limit }: CadenzaError): JsonValue | undefined {
  const details = copyJson({ agent_name, run_id, session_id, await_id, issues, limit });
  return isJsonObject(details) && Object.keys(details).length > 0 ? details : undefined;
}

/** The details of an error as JSON: what JSON does not know is left out, since an error must not be lost over them. */
function dataOfError(data: unknown): JsonValue | undefined {
  try {
    return copyJson(data);
  } catch {
    return undefined;
  }
}
