import type { JsonValue } from "../protocol/json.ts";

/** The value itself, deeply frozen: agents and callers get the objects that the log holds. */
export function frozen<Value extends JsonValue>(value: Value): Value {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const part of Object.values(value)) frozen(part);
  return Object.freeze(value);
}
