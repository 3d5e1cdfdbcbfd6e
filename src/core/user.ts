import type { JsonValue } from "../protocol/json.ts";

/** The longest id of a user, in UTF-16 units. */
const MAX_LENGTH = 255;

/**
 * The id of the user whom a principal names: a text is one, and an object has it as its `id`, a text or a whole number.
 * Undefined: it names no user. The creator of a run is the user whom the principal in its first entry names.
 */
export function userOf(principal: JsonValue | undefined): string | undefined {
  const id = typeof principal === "object" && principal !== null && "id" in principal ? principal["id"] : principal;
  const text = Number.isSafeInteger(id) && principal !== id ? String(id) : id;
  return typeof text === "string" && text !== "" && text.length <= MAX_LENGTH ? text : undefined;
}
