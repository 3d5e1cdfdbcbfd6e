import type { Entry } from "./log.ts";

/**
 * About how many characters a value has as JSON. It is counted without making the JSON, which may be longer than any string
 * can be, and without making lists of its members: it is asked for each entry of a log. Escapes count as one character.
 */
export function roughLength(value: unknown): number {
  return roughLengthWithin(Number.POSITIVE_INFINITY, value);
}

/** Whether a value has about more characters as JSON than so many. Of a long one no more is counted. */
export function isLongerThan(most: number, value: unknown): boolean {
  return roughLengthWithin(most, value) > most;
}

/** As {@link roughLength}. More than `most`: it has at least so many. */
function roughLengthWithin(most: number, value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 5;
  let length = 2;
  if (Array.isArray(value)) {
    for (const member of value) {
      if (length > most) return length;
      length += 1 + roughLengthWithin(most - length, member);
    }
  } else {
    for (const key in value) {
      if (length > most) return length;
      length += key.length + 4 + roughLengthWithin(most - length, value[key as keyof typeof value]);
    }
  }
  return length;
}

/** As {@link roughLength}, of all entries together. */
export function roughLengthOf(entries: readonly Entry[]): number {
  let length = 0;
  for (const entry of entries) length += roughLength(entry);
  return length;
}
