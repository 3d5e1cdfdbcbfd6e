import type { JsonValue } from "../protocol/json.ts";

/** Whether two JSON values are equal. The order of an object's keys does not matter. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && sameJson(property(a, key), property(b, key)));
}

/** How deeply a value may be nested, since recursive functions read it. */
const MAX_DEPTH = 1_000;

/**
 * A copy of the value as JSON would carry it: no class instances, no undefined, nothing shared with the original.
 * Undefined for a value that JSON cannot express (a function, a symbol). Throws a TypeError for a cycle or a bigint,
 * and for a value that is nested so deeply that a replay, which compares it, would overflow the call stack.
 */
export function copyJson(value: unknown): JsonValue | undefined {
  return copyAt("", value, 0);
}

/** Plain objects and lists are copied here, which costs a part of what writing and reading their text costs. */
function copyAt(key: string | number, value: unknown, depth: number): JsonValue | undefined {
  if (value === undefined || value === null || typeof value === "string" || typeof value === "boolean") return value;
  // JSON has no NaN, no infinity, and no -0.
  if (typeof value === "number") return Number.isFinite(value) ? value + 0 : null;
  if (typeof value !== "object" || hasOwnWay(value)) return copyOther(key, value, depth);
  if (depth === MAX_DEPTH) throw new TypeError("A JSON value has no cycle, and may be nested 1,000 levels deep.");
  if (Array.isArray(value)) {
    const copy: JsonValue[] = [];
    for (let index = 0; index < value.length; index++) copy.push(copyAt(index, value[index], depth + 1) ?? null);
    return copy;
  }
  const copy: { [name: string]: JsonValue } = {};
  for (const name of Object.keys(value)) {
    const item = copyAt(name, property(value, name), depth + 1);
    if (item !== undefined) setKey(copy, name, item);
  }
  return copy;
}

/** Gives a copy a key. To assign to `__proto__` would set the prototype of the copy. */
export function setKey(copy: { [name: string]: JsonValue }, name: string, value: JsonValue): void {
  if (name === "__proto__")
    Object.defineProperty(copy, name, { configurable: true, enumerable: true, writable: true, value });
  else copy[name] = value;
}

/** Whether an object may be written in another way than by its keys: a date, an instance of a class, a boxed value. */
function hasOwnWay(value: object): boolean {
  if ("toJSON" in value && typeof value.toJSON === "function") return true;
  return !Array.isArray(value) && Object.getPrototypeOf(value) !== Object.prototype;
}

function copyOther(key: string | number, value: unknown, depth: number): JsonValue | undefined {
  const text = JSON.stringify({ [key]: value });
  const read: JsonValue | undefined = (JSON.parse(text) as { [name: string]: JsonValue })[key];
  return typeof read === "object" ? copyAt(key, read, depth) : read;
}

function property(value: object, key: string): unknown {
  return (value as Record<string, unknown>)[key];
}
