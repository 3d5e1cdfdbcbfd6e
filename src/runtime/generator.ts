import type { MaybePromise } from "../core/promises.ts";
import { ignore, isPromise } from "../core/promises.ts";

/**
 * The one form in which the runtime drives agents, whichever of the four they were written in: an iterator, asynchronous or not.
 * {@link nextOf} is never called while another is under way; {@link unwind} may be, and then takes effect behind it.
 */
export type Generator = Iterator<unknown, unknown, unknown> | AsyncIterator<unknown, unknown, unknown>;

const done: IteratorResult<unknown> = { done: true, value: undefined };

/** What an agent function gave. */
export function generatorOf(result: unknown): Generator {
  return isGenerator(result) ? result : new ValueGenerator(result);
}

/** Drives an iterable that an agent yielded or returned. */
export function generatorOfItems(iterable: Iterable<unknown> | AsyncIterable<unknown>): Generator {
  return Symbol.asyncIterator in iterable ? iterable[Symbol.asyncIterator]() : iterable[Symbol.iterator]();
}

/** Runs to the next value; `sent` is what `yield` gives. */
export function nextOf(generator: Generator, sent: unknown): MaybePromise<IteratorResult<unknown>> {
  return settle(generator.next(sent));
}

/** Runs the `finally` blocks. They may yield: then the rest comes by {@link nextOf}. */
export function unwind(generator: Generator): MaybePromise<IteratorResult<unknown>> {
  return generator.return === undefined ? done : settle(generator.return(undefined));
}

/** Generators are told by their tag; lists and streams, which a function may return, have another or none. */
function isGenerator(value: unknown): value is Generator {
  if (typeof value !== "object" || value === null) return false;
  const tag: unknown = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return tag === "AsyncGenerator" || tag === "Generator";
}

/** A generator that is not asynchronous may yield promises: they are awaited, as `for await` does it. */
function settle(step: MaybePromise<IteratorResult<unknown>>): MaybePromise<IteratorResult<unknown>> {
  if (isPromise(step) || !isPromise(step.value)) return step;
  const { done: isDone } = step;
  return step.value.then((value) => ({ done: isDone ?? false, value }));
}

/** A function that gives one value, now or later. It cannot be interrupted: unwinding waits until it is through. */
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
    return { done: true, value: isPromise(result) ? result.then(ignore, ignore) : undefined };
  }
}
