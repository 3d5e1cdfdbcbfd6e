import type { Entry, Labels, StepEntry } from "../core/log.ts";
import type { Logger } from "../core/ports.ts";
import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";
import type { JsonValue } from "../protocol/json.ts";
import type { Run } from "../protocol/run.ts";
import type { AgentContext, AgentSession, SubRunOptions, UsageReport } from "../runtime/agent/agent-context.ts";
import { callInside } from "../runtime/agent/agent-context.ts";
import type { Step, StepOptions, StepScope } from "../runtime/agent/agent-steps.ts";
import type { Ask, AskOptions, Question, Receive, ReceiveOptions, Sleep } from "../runtime/agent/agent-waits.ts";
import type { RunInput } from "../runtime/agent/input.ts";
import { recordedResult } from "../runtime/agent/recorded.ts";
import type { StandardSchema } from "../runtime/agent/standard-schema.ts";
import { resultOfStep } from "../runtime/execution/steps.ts";
import { unlessAborted } from "../runtime/execution/unless-aborted.ts";
import type { Interest, OpenOperation, Operation } from "./operation.ts";
import { watched } from "./operation.ts";

/** What a step's stand-in gets: what the step's function gets, and the function itself. */
export interface StepStandInScope extends StepScope {
  readonly name: string;
  /** Runs the function that the agent gave to the step. */
  readonly original: () => Promise<unknown>;
}

/** A stand-in for a step: a function, the result itself, or an error that the step throws. */
export type StepStandIn = ((step: StepStandInScope) => unknown) | object | string | number | boolean | null | undefined;

/** The recorded result of an operation. */
export interface Recorded {
  /** Resolves when the operation is to end. */
  readonly result: Promise<StepEntry>;
  /** What it emitted. */
  readonly emitted: readonly Entry[];
}

/** What a controlled context needs from its test run. */
export interface ContextStage {
  /** Holds the agent until the test asks for the next thing. Undefined: go on. */
  pass(): undefined | Promise<void>;
  /** Called when the agent has emitted or asked something. */
  shown(): void;
  /** Called when the agent has emitted something with `emit`. If it throws, `emit` throws. */
  emitted(): void;
  /** Called when a question has failed. */
  notShown(): void;
  /** `label`: what the runtime counts in the operation's key. */
  begin(kind: Operation["kind"], name: string, label: string, interest: Interest): OpenOperation;
  /** The recorded result of an operation; undefined to execute it. If it throws, the operation throws. */
  recorded(operation: Operation): Recorded | undefined;
  /** Whether the agent has a patch that the runtime gives it. */
  patched(id: string): boolean;
  /** Called when an operation has failed. */
  failed(operation: Operation): void;
  /** The test's stand-in for a step. */
  stepStandIn(name: string): { readonly value: StepStandIn } | undefined;
  /** Throws if every step needs a stand-in. */
  checkStrict(name: string): void;
  /** Whether the test has a stand-in for the sub-agent. */
  hasAgent(name: string): boolean;
  /**
   * Registers the sub-agent if needed, and returns whether it is a stand-in. With a schema, a value that stands in for it
   * is its output. Throws if it is unknown.
   */
  prepareAgent(name: string, output: StandardSchema | undefined): boolean;
  /**
   * Called when the body of a step begins. If it throws, the step throws. If it returns a promise, the step waits for
   * it.
   */
  onStep(operation: Operation): undefined | Promise<unknown>;
  /** Called when the body of a step has ended. If it throws, the step throws. */
  afterStep(operation: Operation): void;
  onRun(operation: Operation): void;
  onSignal(signal: AbortSignal): void;
  /** Whether results go through JSON, as those of durable agents do. */
  readonly throughJson: boolean;
}

/** A context that holds the agent for the test, and in which steps and sub-agents can be replaced. */
export class StagedContext implements AgentContext {
  readonly #real: AgentContext;
  readonly #stage: ContextStage;

  constructor(real: AgentContext, stage: ContextStage) {
    this.#real = real;
    this.#stage = stage;
  }

  get run_id(): string {
    return this.#real.run_id;
  }

  get agent_name(): string {
    return this.#real.agent_name;
  }

  get session(): AgentSession {
    return this.#real.session;
  }

  get signal(): AbortSignal {
    const { signal } = this.#real;
    this.#stage.onSignal(signal);
    return signal;
  }

  get principal(): JsonValue {
    return this.#real.principal;
  }

  get metadata(): JsonValue {
    return this.#real.metadata;
  }

  get labels(): Labels {
    return this.#real.labels;
  }

  get logger(): Logger {
    return this.#real.logger;
  }

  get generation(): number {
    return this.#real.generation;
  }

  get carry(): AgentContext["carry"] {
    return this.#real.carry;
  }

  get patched(): AgentContext["patched"] {
    return (id) => this.#real.patched(id) && this.#stage.patched(id);
  }

  get continueAsNew(): AgentContext["continueAsNew"] {
    return this.#real.continueAsNew;
  }

  get usage(): UsageReport {
    return this.#real.usage;
  }

  get now(): () => number {
    return this.#real.now;
  }

  get uuid(): () => string {
    return this.#real.uuid;
  }

  get random(): () => number {
    return this.#real.random;
  }

  get emit(): AgentContext["emit"] {
    return (value) => observed(this.#emit(this.#real.emit, value));
  }

  get ask(): Ask {
    return ((question: Question, options?: AskOptions<unknown>) =>
      watched((interest) => this.#ask(this.#stage.begin("ask", "ask", "ask", interest), question, options))) as Ask;
  }

  get sleep(): Sleep {
    return (duration, options) =>
      watched((interest) => {
        const { name } = options ?? {};
        const label = name === undefined ? "sleep" : `sleep:${name}`;
        return this.#wait(
          this.#stage.begin("sleep", name ?? "sleep", label, interest),
          this.#real.sleep(duration, options),
        );
      });
  }

  get receive(): Receive {
    // `receive` has overloads with and without a schema. Here the options are passed on unchanged.
    const receive = this.#real.receive as (name: string, options?: ReceiveOptions<unknown>) => Promise<unknown>;
    return ((name: string, options?: ReceiveOptions<unknown>) =>
      watched((interest) =>
        this.#wait(this.#stage.begin("receive", name, `receive:${name}`, interest), receive(name, options)),
      )) as Receive;
  }

  get step(): Step {
    return (name, fn, options) => watched((interest) => this.#step(interest, name, fn, options));
  }

  get run(): AgentContext["run"] {
    return (agentName, input, options) =>
      watched((interest) => this.#run(interest, agentName, input, options, undefined));
  }

  get call(): AgentContext["call"] {
    return (agent, input, options) =>
      watched((interest) => {
        const run: AgentContext["run"] = (name, given, how) =>
          this.#run(interest, name, given, how, agent.options.output);
        return callInside(run, agent, input, options, this) as Promise<never>;
      });
  }

  async #step<Result>(
    interest: Interest,
    name: string,
    fn: (step: StepScope) => MaybePromise<Result>,
    options?: StepOptions,
  ): Promise<Result> {
    const held = this.#stage.pass();
    if (held !== undefined) await held;
    const operation = this.#stage.begin("step", name, name, interest);
    operation.runsOnce = options?.once === true;
    const standIn = this.#stage.stepStandIn(name) ?? this.#recordedStep(name, operation);
    operation.replaced = standIn !== undefined;
    const attempts = options?.retry?.attempts ?? 1;
    let tried = 0;
    const body = (scope: StepScope): MaybePromise<unknown> =>
      attempt(
        operation,
        ++tried < attempts,
        () => work(scope),
        () => this.#stage.afterStep(operation),
      );
    const work = (scope: StepScope): MaybePromise<unknown> => {
      const meanwhile = this.#stage.onStep(operation);
      const staged = this.#scope(scope);
      const original = async (): Promise<unknown> => fn(staged);
      const result = standIn === undefined ? fn(staged) : perform(standIn.value, { ...staged, name, original });
      return meanwhile === undefined ? result : Promise.all([result, meanwhile]).then(([first]) => first);
    };
    // The author of the test decides the type of a stand-in's result.
    // The runtime of the test declares no limits, and its steps wait for none.
    const how = options?.limit === undefined ? options : { ...options, limit: undefined };
    return this.#settle(operation, this.#real.step(name, body, how)) as Promise<Result>;
  }

  /** `output`: the schema of what the sub-agent returns, if it is called for that. */
  async #run(
    interest: Interest,
    agentName: string,
    input: RunInput,
    options: SubRunOptions | undefined,
    output: StandardSchema | undefined,
  ): Promise<Run> {
    const held = this.#stage.pass();
    if (held !== undefined) await held;
    const operation = this.#stage.begin("run", agentName, `run:${agentName}`, interest);
    const recorded = this.#stage.hasAgent(agentName) ? undefined : this.#recorded(operation);
    if (recorded !== undefined) {
      operation.replaced = true;
      // The recorded result was made from a run's record.
      const result = unlessAborted(recorded.result, this.#real.signal);
      return this.#settle(operation, (async () => resultOfStep(await result) as unknown as Run)());
    }
    operation.replaced = this.#stage.prepareAgent(agentName, output);
    this.#stage.onRun(operation);
    return this.#settle(operation, this.#real.run(agentName, input, options));
  }

  #recordedStep(name: string, operation: OpenOperation): { readonly value: StepStandIn } | undefined {
    const recorded = this.#recorded(operation);
    if (recorded === undefined) {
      this.#stage.checkStrict(name);
      return undefined;
    }
    const value = async (step: StepStandInScope): Promise<unknown> => {
      for (const entry of recorded.emitted)
        if (entry.type === "emitted" && entry.kind === "part") await step.emit(entry.part);
      return resultOfStep(await unlessAborted(recorded.result, step.signal));
    };
    return { value };
  }

  #recorded(operation: OpenOperation): Recorded | undefined {
    try {
      return this.#stage.recorded(operation);
    } catch (error) {
      operation.failed(error);
      throw error;
    }
  }

  async #emit(emit: AgentContext["emit"], value: unknown): Promise<void> {
    const shown = emit(value);
    if (value !== null && value !== undefined) this.#stage.shown();
    await shown;
    this.#stage.emitted();
    const held = this.#stage.pass();
    if (held !== undefined) await held;
  }

  async #ask(operation: OpenOperation, question: Question, options?: AskOptions<unknown>): Promise<unknown> {
    // `ask` has overloads with and without a schema. Here the options are passed on unchanged.
    const ask = this.#real.ask as (question: Question, options?: AskOptions<unknown>) => Promise<unknown>;
    const answer = ask(question, options);
    this.#stage.shown();
    try {
      return await this.#settle(operation, answer);
    } catch (error) {
      this.#stage.notShown();
      throw error;
    }
  }

  /** A wait that ends holds the agent, whatever its end. */
  async #wait<T>(operation: OpenOperation, work: Promise<T>): Promise<T> {
    try {
      return await this.#settle(operation, work);
    } catch (error) {
      const held = this.#stage.pass();
      if (held !== undefined) await held;
      throw error;
    }
  }

  async #settle<T>(operation: OpenOperation, work: Promise<T>): Promise<T> {
    let result: T;
    try {
      result = await work;
      // A step of a durable agent returns its result as it is recorded.
      if (operation.kind === "step" && this.#stage.throughJson) result = recordedResult(operation.key, result) as T;
    } catch (error) {
      operation.failed(error);
      this.#stage.failed(operation);
      throw error;
    }
    operation.done(result);
    const held = this.#stage.pass();
    if (held !== undefined) await held;
    return result;
  }

  #scope(scope: StepScope): StepScope {
    const stage = this.#stage;
    return {
      key: scope.key,
      idempotencyKey: scope.idempotencyKey,
      attempt: scope.attempt,
      get signal() {
        const { signal } = scope;
        stage.onSignal(signal);
        return signal;
      },
      emit: (value) => observed(this.#emit(scope.emit, value)),
      progress: scope.progress,
    };
  }
}

/** A promise whose rejection may go unhandled, since the agent may drop it. */
function observed<T>(promise: Promise<T>): Promise<T> {
  promise.catch(ignore);
  return promise;
}

/** Executes the body of a step once, and notes whether the step then waits for another attempt. */
function attempt(
  operation: OpenOperation,
  hasMore: boolean,
  work: () => MaybePromise<unknown>,
  after: () => void,
): MaybePromise<unknown> {
  const fail = (error: unknown): never => {
    operation.isAtWork = false;
    operation.isPausing = hasMore;
    throw error;
  };
  const end = (result: unknown): unknown => {
    after();
    operation.isAtWork = false;
    return result;
  };
  operation.isPausing = false;
  operation.isAtWork = true;
  try {
    const result = work();
    return isPromise(result) ? result.then(end).then(undefined, fail) : end(result);
  } catch (error) {
    return fail(error);
  }
}

function perform(standIn: StepStandIn, step: StepStandInScope): unknown {
  if (typeof standIn === "function") return (standIn as (step: StepStandInScope) => unknown)(step);
  if (standIn instanceof Error) throw standIn;
  return standIn;
}
