import { AgentError } from "../core/errors.ts";
import type { MaybePromise } from "../core/promises.ts";
import type { AwaitResume } from "../protocol/run.ts";
import type { Generator } from "../runtime/agent/generator.ts";
import { generatorOf, generatorOfItems, nextOf, unwind } from "../runtime/agent/generator.ts";

/** What a controlled agent needs from its test run. */
export interface AgentStage {
  /** Undefined: go on. A promise: wait. */
  pass(): undefined | Promise<void>;
  shown(): void;
  /** Called when the agent is being stopped: it is held no longer. */
  stopping(): void;
  /** Calls the agent's own code. */
  trace<T>(callback: () => T): T;
  /** Whether to observe what an agent does after it was stopped. */
  readonly probes: boolean;
}

/** How an agent has behaved. */
export interface Conduct {
  /** Whether its function was called. */
  begun: boolean;
  /** Whether it has ended, including its `finally` blocks. */
  finished: boolean;
  /** A generator can be stopped where it yields; a function cannot. */
  form: "generator" | "function";
  /** What it threw. */
  thrown: { readonly error: unknown } | undefined;
  /** What its `finally` blocks threw when it was stopped at a `yield`. */
  thrownByFinally: { readonly error: unknown } | undefined;
  stopped: boolean;
  /** Whether an operation that it awaited failed because it was stopped. */
  interrupted: boolean;
  /** How many more things it did after it caught the error with which it was stopped. */
  swallowed: number | undefined;
}

const done: IteratorResult<unknown> = { done: true, value: undefined };
/** An agent that emits this much after it was stopped never ends. */
const MAX_PROBES = 20;

/** The conduct before the run. */
export function newConduct(): Conduct {
  return {
    begun: false,
    finished: false,
    form: "function",
    thrown: undefined,
    thrownByFinally: undefined,
    stopped: false,
    interrupted: false,
    swallowed: undefined,
  };
}

/** Puts an agent function under control. To the runtime it looks like an async generator. */
export function stageAgent(call: () => unknown, stage: AgentStage, conduct: Conduct): StagedGenerator {
  const begin = (): Generator => {
    conduct.begun = true;
    const result = call();
    const tag: unknown = (result as { [Symbol.toStringTag]?: unknown } | null | undefined)?.[Symbol.toStringTag];
    if (tag === "AsyncGenerator" || tag === "Generator") conduct.form = "generator";
    return generatorOf(result);
  };
  return new StagedGenerator(begin, stage, conduct, true);
}

/** A generator that waits at the gate before it goes on, and closes the gate when it emits. */
class StagedGenerator implements AsyncGenerator<unknown, unknown, AwaitResume> {
  readonly [Symbol.toStringTag] = "AsyncGenerator";
  readonly #begin: () => Generator;
  readonly #stage: AgentStage;
  readonly #conduct: Conduct;
  readonly #isOuter: boolean;
  #inner: Generator | undefined;
  #stopped = false;
  #pending: Promise<IteratorResult<unknown>> | undefined;

  constructor(begin: () => Generator, stage: AgentStage, conduct: Conduct, isOuter: boolean) {
    this.#begin = begin;
    this.#stage = stage;
    this.#conduct = conduct;
    this.#isOuter = isOuter;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(sent?: unknown): Promise<IteratorResult<unknown>> {
    const wasStopped = this.#stopped;
    const held = this.#stage.pass();
    if (held !== undefined) await held;
    if (this.#stopped && !wasStopped) return done;
    const pending = this.#take((inner) => nextOf(inner, sent), wasStopped);
    this.#pending = pending;
    const step = await pending;
    this.#pending = undefined;
    return this.#staged(step);
  }

  async return(): Promise<IteratorResult<unknown>> {
    this.#stopped = true;
    this.#conduct.stopped = true;
    const pending = this.#pending;
    this.#stage.stopping();
    if (this.#inner === undefined) return done;
    if (this.#stage.probes && this.#isOuter && pending !== undefined && this.#conduct.form === "generator")
      await this.#probe(pending, this.#inner);
    return this.#staged(await this.#take(unwind, true));
  }

  /** Never called by the runtime. The interface of generators requires it. */
  async throw(error: unknown): Promise<IteratorResult<unknown>> {
    throw error;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  async #take(action: (inner: Generator) => MaybePromise<IteratorResult<unknown>>, unwinds: boolean) {
    try {
      const step = await this.#stage.trace(() => {
        this.#inner ??= this.#begin();
        return action(this.#inner);
      });
      if (step.done === true && this.#isOuter) this.#conduct.finished = true;
      return step;
    } catch (error) {
      if (this.#isOuter) this.#conduct.finished = true;
      if (unwinds) this.#conduct.thrownByFinally ??= { error };
      else this.#conduct.thrown ??= { error };
      throw error;
    }
  }

  #staged(step: IteratorResult<unknown>): IteratorResult<unknown> {
    const { value } = step;
    if (value === null || value === undefined) return step;
    const iterable = iterableOf(value);
    if (iterable === undefined) {
      this.#stage.shown();
      return step;
    }
    const items = new StagedGenerator(() => generatorOfItems(iterable), this.#stage, this.#conduct, false);
    return { ...step, value: items };
  }

  /**
   * The runtime ends a generator that is stopped while it waits at its next `yield`. Here the generator is asked to go
   * on. If it throws the error with which it was stopped, it behaves well. If not, it has caught the error.
   */
  async #probe(pending: Promise<IteratorResult<unknown>>, inner: Generator): Promise<void> {
    try {
      const first = await pending;
      if (first.done === true || !this.#conduct.interrupted) return;
      for (let more = 0; more < MAX_PROBES; more++) {
        const step = await this.#stage.trace(() => inner.next(undefined));
        if (step.done === true) {
          this.#conduct.swallowed = more;
          return;
        }
      }
      this.#conduct.swallowed = MAX_PROBES;
    } catch {
      // The generator lets the error pass, as it should.
    }
  }
}

function iterableOf(value: unknown): Iterable<unknown> | AsyncIterable<unknown> | undefined {
  if (typeof value !== "object" || value === null || AgentError.is(value)) return undefined;
  if (!(Symbol.asyncIterator in value || Symbol.iterator in value)) return undefined;
  return value as Iterable<unknown> | AsyncIterable<unknown>;
}
