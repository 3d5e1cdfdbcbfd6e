import type { JsonValue } from "../protocol/json.ts";

/** The value itself, which cannot be changed any more. What agents and callers are given is what the log has. */
export function frozen<Value extends JsonValue>(value: Value): Value {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const part of Object.values(value)) frozen(part);
  return Object.freeze(value);
}
