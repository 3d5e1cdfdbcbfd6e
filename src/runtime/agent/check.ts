import type { Issue } from "../../core/errors.ts";
import { CadenzaError } from "../../core/errors.ts";
import { LAST_TIME } from "../../core/time.ts";
import { sessionIdSchema } from "../../protocol/identifier.ts";
import { timestampSchema } from "../../protocol/timestamp.ts";

/** The error for an invalid argument. It says the argument's name, what was expected, and what was received. */
export function badArgument(name: string, expected: string, received: unknown): CadenzaError {
  const path = pathOf(name);
  const message = `expected ${expected}, received ${describe(received)}`;
  return new CadenzaError("invalid_argument", `${writePath(path)}: ${message}.`, { issues: [{ path, message }] });
}

/** The part of a zod schema that is used here. */
interface Schema<T> {
  safeParse(value: unknown): Reading<T>;
}

type Reading<T> =
  | { readonly success: true; readonly data: T }
  | { readonly success: false; readonly error: { readonly issues: readonly SchemaIssue[] } };

interface SchemaIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Reads an argument with a schema of the protocol. */
export function read<T>(name: string, schema: Schema<T>, value: unknown): T {
  const reading = schema.safeParse(value);
  if (reading.success) return reading.data;
  const issues = reading.error.issues.map((issue): Issue => {
    const path = issue.path.filter((key) => typeof key !== "symbol");
    return { path: [...pathOf(name), ...path], message: issue.message };
  });
  const message = issues.map((issue) => `${writePath(issue.path)}: ${issue.message}`).join("; ");
  throw new CadenzaError("invalid_argument", `${message}.`, { issues });
}

/**
 * Reads what a caller has given. A value that throws while it is read, such as a proxy or one with a getter, is as
 * invalid as any other: `invalid_argument`, with what it threw as the cause.
 */
export function readGiven<T, Given extends readonly unknown[]>(
  name: string,
  read: (...given: Given) => T,
  ...given: Given
): T {
  try {
    return read(...given);
  } catch (cause) {
    throw unreadable(name, cause, "a value that can be read");
  }
}

/** The error for a value that throws while it is read; what was found wrong with it stays as it is. */
export function unreadable(name: string, cause: unknown, expected: string): CadenzaError {
  if (CadenzaError.is(cause)) return cause;
  const path = pathOf(name);
  const message = `expected ${expected}, received one that throws when it is read`;
  return new CadenzaError("invalid_argument", `${writePath(path)}: ${message}.`, {
    issues: [{ path, message }],
    cause,
  });
}

/**
 * A short description of any value, for messages: `"text"`, `42`, `null`, `an array`, `a Date`. Never throws, not even
 * for a proxy that does.
 */
export function describe(value: unknown): string {
  try {
    return describeAny(value);
  } catch {
    return "an object that cannot be read";
  }
}

function describeAny(value: unknown): string {
  switch (typeof value) {
    case "string":
      return value.length > 60 ? `a string of ${value.length} characters` : JSON.stringify(value);
    case "number":
    case "boolean":
    case "bigint":
    case "undefined":
      return String(value);
    case "function":
      return "a function";
    case "symbol":
      return "a symbol";
    default:
      if (value === null) return "null";
      return Array.isArray(value) ? "an array" : describeObject(value as object);
  }
}

/** Throws `invalid_argument` unless the value is a function. */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== "function") throw badArgument(name, "a function", value);
}

/** Throws `invalid_argument` unless the value is a string that is not empty. */
export function checkText(name: string, value: unknown): asserts value is string {
  if (typeof value !== "string" || value === "") throw badArgument(name, "a string that is not empty", value);
}

/**
 * The lengths of the texts by which stores find runs, in UTF-16 units. They are the same for all stores: a row in an
 * index of PostgreSQL holds 2,704 bytes, and a unit takes up to six where the text has lone surrogates.
 */
export const maxLengths = { tenant: 128, version: 128, idempotencyKey: 255, limit: 128 } as const;

/** Throws `invalid_argument` unless the value is a string that is not empty, and that stores can find runs by. */
export function checkKey(name: string, value: unknown, most: number): asserts value is string {
  if (typeof value !== "string" || value === "" || value.length > most)
    throw badArgument(name, `a string of 1 to ${most} characters`, shortened(value, most));
}

/** A text that is too long for a message. */
function shortened(value: unknown, most: number): unknown {
  return typeof value === "string" && value.length > most
    ? `${value.slice(0, 32)}… (${value.length} characters)`
    : value;
}

/** Throws `invalid_argument` unless the value is an object and not an array. */
export function checkObject(name: string, value: unknown): asserts value is object {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw badArgument(name, "an object", value);
}

/** Throws `invalid_argument` unless the value is a number from 0 to `Infinity`. */
export function checkAmount(name: string, value: unknown): void {
  if (typeof value !== "number" || !(value >= 0)) throw badArgument(name, "a number from 0 to Infinity", value);
}

/** Throws `invalid_argument` unless the value is a whole number from `least` on, or `Infinity`. */
export function checkCount(name: string, value: unknown, least = 0): void {
  if (value === Number.POSITIVE_INFINITY || (Number.isInteger(value) && (value as number) >= least)) return;
  throw badArgument(name, `a whole number from ${least} to Infinity`, value);
}

/** Throws `invalid_argument` unless the value is a whole number between two others. Returns it. */
export function checkWithin(name: string, value: unknown, least: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number;
  throw badArgument(name, `a whole number from ${least} to ${most}`, value);
}

/** Throws `invalid_argument` unless the value is one of some texts. Returns it. */
export function checkChoice<Choice extends string>(name: string, value: Choice, choices: readonly Choice[]): Choice {
  if (!choices.includes(value)) throw badArgument(name, `one of ${choices.join(", ")}`, value);
  return value;
}

/** Throws `invalid_argument` unless the value is what an option of the name has: a time for `…Ms`, otherwise a count. */
export function checkFigure(name: string, value: unknown): void {
  if (name.endsWith("Ms")) checkAmount(name, value);
  else checkCount(name, value);
}

/** Reads a time: a `Date`, milliseconds since 1970, or a text in ISO 8601. Throws `invalid_argument`. */
export function readTime(name: string, value: unknown): number {
  const time = typeof value === "string" ? Date.parse(read(name, timestampSchema, value)) : valueOfDate(value);
  if (typeof time === "number" && time >= 0 && time <= LAST_TIME) return time;
  throw badArgument(name, "a Date, a time in milliseconds since 1970, or a time in ISO 8601", value);
}

function valueOfDate(value: unknown): unknown {
  return value instanceof Date ? value.getTime() : value;
}

/** Throws `invalid_argument` unless the value is an object that has no other keys than these. */
export function checkOptionsOf(name: string, value: object, known: readonly string[]): void {
  checkObject(name, value);
  checkKeys(name, value, known);
}

/** Throws `invalid_argument` for an unknown key, so that a misspelt option is not ignored. */
export function checkKeys(name: string, value: object, known: readonly string[]): void {
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue;
    const message = `there is no option ${JSON.stringify(key)}; there are ${known.join(", ")}`;
    throw new CadenzaError("invalid_argument", `${name}: ${message}.`, {
      issues: [{ path: [...pathOf(name), key], message }],
    });
  }
}

function describeObject(value: object): string {
  if (value instanceof Date && Number.isNaN(value.getTime())) return "an invalid Date";
  const name: unknown = Object.getPrototypeOf(value)?.constructor?.name;
  if (typeof name !== "string" || name === "Object" || name === "") return "an object";
  return /^[AEIOU]/.test(name) ? `an ${name}` : `a ${name}`;
}

/** Splits the name of an argument into keys: `result.items.2` is `result`, `items`, `2`. */
export function pathOf(name: string): (string | number)[] {
  return name.split(".").map((key) => (/^\d+$/.test(key) ? Number(key) : key));
}

/** The path of a value as text: `result.items[2].at`. */
export function writePath(path: readonly (string | number)[]): string {
  return path.reduce<string>(
    (text, key) => (typeof key === "number" ? `${text}[${key}]` : text === "" ? key : `${text}.${key}`),
    "",
  );
}

/** Throws `invalid_argument` for a value that is neither undefined nor a signal. */
export function checkSignal(name: string, signal: unknown): asserts signal is AbortSignal | undefined {
  if (signal !== undefined && !(typeof signal === "object" && signal !== null && "aborted" in signal))
    throw badArgument(name, "an AbortSignal", signal);
}

const canonicalId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Reads the id of a run or a session. */
export function readId(name: string, value: unknown): string {
  if (typeof value !== "string") throw badArgument(name, "a UUID", value);
  return canonicalId.test(value) ? value : read(name, sessionIdSchema, value);
}
