import { aboutRun } from "../../core/about-run.ts";
import { inBackground } from "../../core/background.ts";
import type { Emission } from "../../core/commands.ts";
import type { Logger } from "../../core/ports.ts";
import type { MaybePromise } from "../../core/promises.ts";
import type { Generator } from "../agent/generator.ts";
import { generatorOf, generatorOfItems, leave, nextOf, throwInto, unwind } from "../agent/generator.ts";
import type { AwaitYield } from "../agent/yields.ts";
import { meaningOf } from "../agent/yields.ts";
import type { RunLog } from "../log/run-log.ts";

/** What the loop needs from the execution of the agent. */
export interface LoopHost {
  readonly logger: Logger;
  readonly log: RunLog;
  /** Whether the agent is not to go on: it is being stopped, or has ended. */
  readonly isStopped: boolean;
  /** Whether nothing that the agent does counts any more. */
  readonly over: boolean;
  /** The agent is about to go on. */
  onMove(): void;
  /** Now and then another turn of the event loop is due. Undefined: it is not. */
  pace(): undefined | Promise<void>;
  /** Takes a value. A promise: the agent goes on when it resolves. */
  emit(emission: Emission): undefined | Promise<void>;
  /** The agent has yielded an await request. The answer continues the loop. */
  onAwait(request: AwaitYield): void;
  /** The agent has ended: it threw this error, or has returned. */
  onThrown(error: unknown): void;
  onReturned(): void;
}

/**
 * The loop over what an agent yields, whatever form its function has. It is not an async function: the frame of one
 * would be a part of what a run takes for as long as its agent waits.
 */
export class AgentLoop {
  readonly #host: LoopHost;
  #generator: Generator | undefined;
  /** The generators that wait while one that they gave is drained. */
  #outer: Generator[] | undefined;
  /** Made once for all values, and dropped while the agent waits for an answer. */
  #onStep: ((given: IteratorResult<unknown>) => void) | undefined;
  #onThrown: ((error: unknown) => void) | undefined;

  constructor(host: LoopHost) {
    this.#host = host;
  }

  /** Whether the agent function has returned a generator or a value, and that is not used up. */
  get hasBegun(): boolean {
    return this.#generator !== undefined;
  }

  /** Calls the agent function, and takes its values until it has ended, is stopped, or waits for an answer. */
  begin(call: () => unknown): void {
    try {
      this.#generator = generatorOf(call());
    } catch (error) {
      this.#host.onThrown(error);
      return;
    }
    this.goOn(undefined);
  }

  /** Goes on. The `yield` at which the agent waits returns `sent`. */
  goOn(sent: unknown): void {
    try {
      this.#follow(this.#next(sent));
    } catch (error) {
      this.#host.onThrown(error);
    }
  }

  /** Goes on. The `yield` at which the agent waits throws the error. */
  throwInto(error: unknown): void {
    if (this.#generator === undefined) return;
    try {
      this.#host.onMove();
      this.#follow(throwInto(this.#generator, error));
    } catch (thrown) {
      this.#host.onThrown(thrown);
    }
  }

  #follow(step: undefined | MaybePromise<IteratorResult<unknown>>): void {
    if (step === undefined) return;
    this.#onStep ??= (given) => this.#goOnWith(given);
    this.#onThrown ??= (error) => this.#host.onThrown(error);
    inBackground(this.#host.logger, Promise.resolve(step).then(this.#onStep, this.#onThrown));
  }

  /** Runs the `finally` blocks, those of the innermost generator first. What they emit is kept. */
  async unwind(): Promise<void> {
    // A generator that is stopped by what it calls itself has to come to its next `yield` first.
    await undefined;
    for (let generator = this.#generator; generator !== undefined; generator = this.#outer?.pop()) {
      try {
        let step = await unwind(generator);
        while (step.done !== true && !this.#host.over) {
          await this.#emitLast(step.value);
          step = await nextOf(generator, undefined);
        }
      } catch (error) {
        this.#host.logger.debug("The agent threw while it was being stopped.", { ...aboutRun(this.#host.log), error });
      }
    }
  }

  /** Drops the generators. */
  drop(): void {
    const outermost = this.#outer?.[0] ?? this.#generator;
    outermost?.[leave]?.();
    this.#outer = undefined;
    this.#generator = undefined;
  }

  #goOnWith(step: IteratorResult<unknown>): void {
    try {
      const taken = this.#take(step);
      if (taken === undefined) this.goOn(undefined);
      else if (taken !== "stops")
        inBackground(
          this.#host.logger,
          taken.then(
            () => this.goOn(undefined),
            (error: unknown) => this.#host.onThrown(error),
          ),
        );
    } catch (error) {
      this.#host.onThrown(error);
    }
  }

  /** Lets the agent run to its next value. Undefined: there is none. */
  #next(sent: unknown): undefined | MaybePromise<IteratorResult<unknown>> {
    if (this.#host.isStopped) return undefined;
    this.#host.onMove();
    if (this.#generator !== undefined) return nextOf(this.#generator, sent);
    this.#host.onReturned();
    return undefined;
  }

  #take(step: IteratorResult<unknown>): Taken {
    const isLast = step.done === true;
    const hasValue = !isLast || step.value !== undefined;
    if (this.#host.isStopped) {
      // Unwinding needs the generators that wait for this one.
      if (hasValue) inBackground(this.#host.logger, this.#emitLast(step.value));
      return "stops";
    }
    if (isLast) this.#generator = this.#outer?.pop();
    return hasValue ? this.#handle(step.value) : undefined;
  }

  /** Only an await request is sent something back. The loop ends there: a run that waits costs no more than its log. */
  #handle(value: unknown): Taken {
    const meaning = meaningOf(value);
    switch (meaning.kind) {
      case "await":
        this.#onStep = undefined;
        this.#onThrown = undefined;
        this.#host.onAwait(meaning.request);
        return "stops";
      case "items":
        if (this.#generator !== undefined) {
          this.#outer ??= [];
          this.#outer.push(this.#generator);
        }
        this.#generator = generatorOfItems(meaning.iterable);
        return this.#host.pace();
      default:
        return this.#host.emit(meaning);
    }
  }

  /** Keeps what a `finally` block emits. Invalid values and await requests are skipped. */
  async #emitLast(value: unknown): Promise<void> {
    try {
      const meaning = meaningOf(value);
      if (meaning.kind !== "await" && meaning.kind !== "items") await this.#host.emit(meaning);
      else await this.#host.pace();
      if (meaning.kind !== "items") return;
      for await (const item of meaning.iterable) {
        if (this.#host.over) return;
        await this.#emitLast(item);
      }
    } catch (error) {
      this.#host.logger.debug("The agent emitted an invalid value while it was being stopped.", {
        ...aboutRun(this.#host.log),
        error,
      });
    }
  }
}

/** What follows on a value. Undefined: the loop goes on. `stops`: an answer continues it, or the run is being stopped. */
type Taken = undefined | Promise<void> | "stops";
