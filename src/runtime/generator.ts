import type { MaybePromise } from "../core/promises.ts";
import { isPromise } from "../core/promises.ts";

/**
 * The one form in which the runtime drives agents, whichever of the four they were written in. `next` is never called
 * while another `next` is under way; `unwind` may be, and then takes effect behind it.
 */
export interface Generator {
  /** Runs to the next value; `sent` is what `yield` gives. */
  next(sent: unknown): MaybePromise<IteratorResult<unknown>>;
  /** Runs the `finally` blocks. They may yield: then the rest comes by `next`. */
  unwind(): MaybePromise<IteratorResult<unknown>>;
}

const done: IteratorResult<unknown> = { done: true, value: undefined };

/** What an agent function gave. */
export function generatorOf(result: unknown): Generator {
  return isGenerator(result) ? new IteratorGenerator(result) : new ValueGenerator(result);
}

/** Drives an iterable that an agent yielded or returned. */
export function generatorOfItems(iterable: Iterable<unknown> | AsyncIterable<unknown>): Generator {
  const iterator = Symbol.asyncIterator in iterable ? iterable[Symbol.asyncIterator]() : iterable[Symbol.iterator]();
  return new IteratorGenerator(iterator);
}

type AnyIterator = Iterator<unknown, unknown, unknown> | AsyncIterator<unknown, unknown, unknown>;

/** Generators are told by their tag; lists and streams, which a function may return, have another or none. */
function isGenerator(value: unknown): value is AnyIterator {
  if (typeof value !== "object" || value === null) return false;
  const tag: unknown = (value as { [Symbol.toStringTag]?: unknown })[Symbol.toStringTag];
  return tag === "AsyncGenerator" || tag === "Generator";
}

class IteratorGenerator implements Generator {
  readonly #iterator: AnyIterator;

  constructor(iterator: AnyIterator) {
    this.#iterator = iterator;
  }

  next(sent: unknown): MaybePromise<IteratorResult<unknown>> {
    return settle(this.#iterator.next(sent));
  }

  unwind(): MaybePromise<IteratorResult<unknown>> {
    return this.#iterator.return === undefined ? done : settle(this.#iterator.return(undefined));
  }
}

/** A generator that is not asynchronous may yield promises: they are awaited, as `for await` does it. */
function settle(step: MaybePromise<IteratorResult<unknown>>): MaybePromise<IteratorResult<unknown>> {
  if (isPromise(step) || !isPromise(step.value)) return step;
  const { done: isDone } = step;
  return step.value.then((value) => ({ done: isDone ?? false, value }));
}

/** A function that gives one value, now or later. It cannot be interrupted: unwinding waits until it is through. */
class ValueGenerator implements Generator {
  readonly #result: unknown;
  #given = false;

  constructor(result: unknown) {
    this.#result = result;
  }

  next(): MaybePromise<IteratorResult<unknown>> {
    if (this.#given) return done;
    this.#given = true;
    const result = this.#result;
    return isPromise(result) ? result.then((value) => ({ done: true, value })) : { done: true, value: result };
  }

  unwind(): MaybePromise<IteratorResult<unknown>> {
    const result = this.#result;
    return isPromise(result)
      ? result.then(
          () => done,
          () => done,
        )
      : done;
  }
}
