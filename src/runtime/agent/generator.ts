import type { Emission } from "../../core/commands.ts";
import { AgentError, CadenzaError } from "../../core/errors.ts";
import { messageOf } from "../../core/failure.ts";
import { copyJson } from "../../core/json.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { ignore, isPromise } from "../../core/promises.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { describe } from "./check.ts";
import type { InputItem } from "./input.ts";
import { isPartLike, readMessage, readPart, textPart } from "./input.ts";

/** The method of the runtime's own generators that leaves the agent where it is. */
export const leave: unique symbol = Symbol("cadenza.leave");

/**
 * The form in which the runtime drives all agents: an iterator, synchronous or asynchronous. {@link nextOf} is never
 * called while another call is pending. {@link unwind} may be called then, and takes effect after the pending call.
 */
export type Generator = (Iterator<unknown, unknown, unknown> | AsyncIterator<unknown, unknown, unknown>) & {
  /**
   * Leaves the agent where it is. A symbol, since most generators are an agent's own: they may have methods of any name,
   * and generators of the language inherit more of them with each version of Node.
   */
  [leave]?(): void;
};

const done: IteratorResult<unknown> = { done: true, value: undefined };

/** The iterator for the result of an agent function. */
export function generatorOf(result: unknown): Generator {
  return isGenerator(result) ? result : new ValueGenerator(result);
}

/** The only step of an agent function that is no generator, once it has returned. */
export function lastStep(returned: unknown): MaybePromise<IteratorResult<unknown>> {
  return settle({ done: true, value: returned });
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

/** What an agent returns to begin again from the top. Made by `context.continueAsNew`. */
export class ContinueAsNew {
  /** What the next generation gets. Undefined: nothing. */
  readonly carry: JsonValue | undefined;

  constructor(carry: JsonValue | undefined) {
    this.carry = carry;
  }
}

/** An await request. `yield` returns the client's answer to it. Made by `awaitMessage`. */
export interface AwaitYield {
  readonly type: "message";
  readonly message: InputItem;
  /**
   * How long the question may be answered, in milliseconds from when it is shown. Default: the runtime's
   * `awaitTimeoutMs`.
   */
  readonly timeoutMs?: number | undefined;
  /** What `yield` returns when the question expires. Without a default, the run fails when the question expires. */
  readonly default?: unknown;
}

/** The meaning of a yielded value. */
type Meaning =
  | Emission
  | { readonly kind: "await"; readonly request: AwaitYield }
  | { readonly kind: "items"; readonly iterable: Iterable<unknown> | AsyncIterable<unknown> };

/**
 * The meaning of a value that an agent has yielded or returned. Throws the error that fails the run for an invalid
 * value.
 */
export function meaningOf(value: unknown): Meaning {
  if (value === null || value === undefined) return closing;
  if (typeof value === "string") return { kind: "part", part: textPart(value) };
  if (typeof value !== "object") throw invalidYield(value);
  if (isAwaitYield(value)) return { kind: "await", request: value };
  if (AgentError.is(value)) throw value;
  if (Symbol.asyncIterator in value || Symbol.iterator in value) {
    return { kind: "items", iterable: value as Iterable<unknown> | AsyncIterable<unknown> };
  }
  try {
    return emissionOf(value);
  } catch (cause) {
    if (CadenzaError.is(cause) && cause.code === "invalid_yield") throw cause;
    const message = messageOf(cause);
    // What a value of the agent's throws may tell secrets of the host, and so is not for the client.
    const isOurs = CadenzaError.is(cause) || ofJson.test(message);
    const reason = isOurs ? message : "it throws when it is read.";
    throw new CadenzaError("invalid_yield", `The agent yielded an invalid value: ${reason}`, { cause });
  }
}

/** What `JSON.stringify` and the copy of its text throw themselves. */
const ofJson = /^(?:A JSON value may be|Do not know how to serialize a BigInt|Converting circular structure to JSON)/;

/** Reads the argument of `emit`, which accepts the values of `yield` except await requests and iterables. */
export function readEmission(value: unknown): Emission {
  const meaning = meaningOf(value);
  if (meaning.kind !== "await" && meaning.kind !== "items") return meaning;
  throw new CadenzaError(
    "invalid_argument",
    `emit: expected a string, a part, a message, an object or null, received ${describe(value)}.`,
  );
}

function emissionOf(value: object): Emission {
  if ("parts" in value && Array.isArray(value.parts))
    return { kind: "message", message: readMessage("message", value) };
  if (isPartLike(value)) return { kind: "part", part: readPart("part", value) };
  if (!isJsonObject(value)) throw invalidYield(value);
  const generic = copyJson(value);
  if (!isJsonObject(generic)) throw invalidYield(value);
  return { kind: "generic", generic };
}

const closing: Emission = { kind: "close" };

function isAwaitYield(value: object): value is AwaitYield {
  return (
    "type" in value &&
    value.type === "message" &&
    "message" in value &&
    value.message !== null &&
    value.message !== undefined
  );
}

function invalidYield(value: unknown): CadenzaError {
  const expected =
    "a string, a part, a message, a plain object, a list of these, an await request, an AgentError or null";
  return new CadenzaError("invalid_yield", `The agent yielded ${describe(value)}; expected ${expected}.`);
}
