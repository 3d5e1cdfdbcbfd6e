import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";

/** The method of the runtime's own generators that leaves the agent where it is. */
export const leave: unique symbol = Symbol("cadenza.leave");

/**
 * The form in which the runtime drives all agents: an iterator, synchronous or asynchronous. {@link nextOf} is never
 * called while another call is pending. {@link unwind} may be called then, and takes effect after the pending call.
 */
export type Generator = (Iterator<unknown, unknown, unknown> | AsyncIterator<unknown, unknown, unknown>) & {
  /**
   * Leaves the agent where it is. A symbol, since most generators are an agent's own: they may have methods of any name,
   * and those of the language inherit more of them with each version of Node.
   */
  [leave]?(): void;
};

const done: IteratorResult<unknown> = { done: true, value: undefined };

/** The iterator for the result of an agent function. */
export function generatorOf(result: unknown): Generator {
  return isGenerator(result) ? result : new ValueGenerator(result);
}

/** The iterator of an iterable that an agent yielded or returned. */
export function generatorOfItems(iterable: Iterable<unknown> | AsyncIterable<unknown>): Generator {
  return Symbol.asyncIterator in iterable ? iterable[Symbol.asyncIterator]() : iterable[Symbol.iterator]();
}

/** Runs to the next value. `yield` returns `sent`. */
export function nextOf(generator: Generator, sent: unknown): MaybePromise<IteratorResult<unknown>> {
  return settle(generator.next(sent));
}

/** Runs to the next value. `yield` throws the error. An iterator that cannot be thrown into is left where it is. */
export function throwInto(generator: Generator, error: unknown): MaybePromise<IteratorResult<unknown>> {
  if (generator.throw === undefined) throw error;
  return settle(generator.throw(error));
}

/** Runs the `finally` blocks. They may yield; then {@link nextOf} gives the values after the first. */
export function unwind(generator: Generator): MaybePromise<IteratorResult<unknown>> {
  return generator.return === undefined ? done : settle(generator.return(undefined));
}

/** Generators are recognised by their tag. Lists and streams, which a function may return, do not have it. */
export function isGenerator(value: unknown): value is Generator {
  if (typeof value !== "object" || value === null) return false;
  const tag: unknown = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return tag === "AsyncGenerator" || tag === "Generator";
}

/** A synchronous generator may yield promises. They are awaited, as in `for await`. */
function settle(step: MaybePromise<IteratorResult<unknown>>): MaybePromise<IteratorResult<unknown>> {
  if (isPromise(step) || !isPromise(step.value)) return step;
  const { done: isDone } = step;
  return Promise.resolve(step.value).then((value) => ({ done: isDone ?? false, value }));
}

/**
 * The iterator of a function that returns one value or a promise of it. Unwinding waits until the promise is settled.
 */
class ValueGenerator implements Iterator<unknown, unknown, unknown> {
  readonly #result: unknown;
  #given = false;

  constructor(result: unknown) {
    this.#result = result;
  }

  next(): IteratorResult<unknown> {
    if (this.#given) return done;
    this.#given = true;
    return { done: true, value: this.#result };
  }

  return(): IteratorResult<unknown> {
    const result = this.#result;
    return { done: true, value: isPromise(result) ? Promise.resolve(result).then(ignore, ignore) : undefined };
  }
}
