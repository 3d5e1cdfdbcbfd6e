import type { Emission } from "../../core/commands.ts";
import { AgentError, CadenzaError } from "../../core/errors.ts";
import { messageOf } from "../../core/failure.ts";
import { copyJson } from "../../core/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { describe } from "./check.ts";
import type { InputItem } from "./input.ts";
import { isPartLike, readMessage, readPart, textPart } from "./input.ts";

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
export type Meaning =
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
