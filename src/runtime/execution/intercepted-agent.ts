import { frozen } from "../../core/frozen.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore } from "../../core/promises.ts";
import { createdEntry } from "../../core/state.ts";
import type { Generator } from "../agent/generator.ts";
import { generatorOf, leave, nextOf, throwInto, unwind } from "../agent/generator.ts";
import type { RunInfo, RunOutcome } from "../agent/interceptors.ts";
import { createInfo } from "../agent/interceptors.ts";
import type { RunLog } from "../log/run-log.ts";

/** What interceptors learn of a run, whichever call of its agent they wrap. */
export function runInfo({
  log,
  signal,
}: {
  readonly log: RunLog;
  readonly signal: AbortSignal;
}): Omit<RunInfo, "isFirst"> {
  const created = createdEntry(log.state);
  return {
    ...createInfo(log.key, created),
    principal: frozen(created.principal ?? null),
    carrier: created.carrier ?? {},
    signal,
  };
}

/** What the runtime asks of the generator of an agent. */
interface Request {
  readonly ask: (generator: Generator) => MaybePromise<IteratorResult<unknown>>;
  readonly resolve: (step: IteratorResult<unknown>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The generator of an agent whose call is wrapped. The agent's code is driven by one async function, which the innermost
 * `next` calls: what the interceptors have set up around `next` holds there, however the runtime was called.
 */
export class InterceptedAgent implements AsyncIterator<unknown, unknown, unknown> {
  readonly [Symbol.toStringTag] = "AsyncGenerator";
  readonly #wrap: (next: () => Promise<RunOutcome>) => Promise<unknown>;
  readonly #call: () => unknown;
  /** What was asked and not taken yet. */
  readonly #requests: Request[] = [];
  #leave: () => void = ignore;
  readonly #left = new Promise<undefined>((resolve) => {
    this.#leave = () => resolve(undefined);
  });
  #wake: (() => void) | undefined;
  #ended: Promise<unknown> | undefined;
  /** What the agent has returned. */
  #returned: unknown;

  constructor(wrap: (next: () => Promise<RunOutcome>) => Promise<unknown>, call: () => unknown) {
    this.#wrap = wrap;
    this.#call = call;
  }

  next(sent: unknown): Promise<IteratorResult<unknown>> {
    return this.#send((generator) => nextOf(generator, sent));
  }

  throw(error: unknown): Promise<IteratorResult<unknown>> {
    return this.#send((generator) => throwInto(generator, error));
  }

  return(): Promise<IteratorResult<unknown>> {
    return this.#send(unwind);
  }

  /** The run has left this process. The agent's code is not called any more. */
  [leave](): void {
    this.#leave();
  }

  #send(ask: Request["ask"]): Promise<IteratorResult<unknown>> {
    const step = new Promise<IteratorResult<unknown>>((resolve, reject) => this.#take({ ask, resolve, reject }));
    this.#ended ??= this.#begin();
    // Without the agent's code: it has ended, or an interceptor has not called `next`.
    const end = this.#ended.then((): IteratorResult<unknown> => ({ done: true, value: this.#returned }));
    return Promise.race([step, end]);
  }

  #begin(): Promise<unknown> {
    const ended = (async () => this.#wrap(() => this.#drive()))();
    ended.catch(ignore);
    return ended;
  }

  #take(request: Request): void {
    this.#requests.push(request);
    this.#wake?.();
  }

  /** Drives the agent's code. Resolves when it is through. */
  async #drive(): Promise<RunOutcome> {
    const generator = generatorOf(this.#call());
    for (;;) {
      const request = this.#requests.shift() ?? (await this.#nextRequest());
      const step = request && (await Promise.race([request.ask(generator), this.#left]));
      if (step === undefined) return "left";
      if (step.done === true) {
        this.#returned = step.value;
        return "ended";
      }
      request?.resolve(step);
    }
  }

  /** Undefined: the run has left. */
  #nextRequest(): Promise<Request | undefined> {
    const arrived = new Promise<Request | undefined>((resolve) => {
      this.#wake = () => resolve(this.#requests.shift());
    });
    return Promise.race([arrived, this.#left]);
  }
}
