import type { JsonValue } from "../protocol/json.ts";
import { isTooDeep } from "../protocol/json.ts";

/** Whether two JSON values are equal. The order of an object's keys does not matter. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && sameJson(property(a, key), property(b, key)));
}

/**
 * A copy of the value as JSON would carry it: no class instances, no undefined, nothing shared with the original.
 * Undefined for a value that JSON cannot express (a function, a symbol). Throws a TypeError for a cycle or a bigint,
 * and for a value that is nested so deeply that a replay, which compares it, would overflow the call stack.
 */
export function copyJson(value: unknown): JsonValue | undefined {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  const text: string | undefined = JSON.stringify(value);
  if (text === undefined) return undefined;
  const copy = JSON.parse(text) as JsonValue;
  if (isTooDeep(copy)) throw new TypeError("A JSON value may be nested 1,000 levels deep.");
  return copy;
}

function property(value: object, key: string): unknown {
  return (value as Record<string, unknown>)[key];
}
