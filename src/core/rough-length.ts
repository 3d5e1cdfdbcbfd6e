/**
 * About how many characters a value has as JSON. It is counted without making the JSON, which may be longer than any string
 * can be. Escapes count as one character.
 */
export function roughLength(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 5;
  let length = 2;
  for (const [key, member] of Object.entries(value)) length += key.length + 4 + roughLength(member);
  return length;
}
