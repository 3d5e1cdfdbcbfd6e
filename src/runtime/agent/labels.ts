import type { Labels } from "../../core/log.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { badArgument } from "./check.ts";

/** How many labels a run may have. */
const MAX_LABELS = 8;

/** The longest name and the longest value of a label, in UTF-16 units. */
const MAX_LENGTH = 64;

/** The labels of a run without labels. */
export const noLabels: Labels = Object.freeze({});

/**
 * Reads labels, and copies them. Undefined: there are none. A label without a value is refused, so that a search for it
 * does not find every run. Throws `invalid_argument`.
 */
export function readLabels(name: string, labels: unknown): Labels | undefined {
  if (labels === undefined) return undefined;
  if (!isJsonObject(labels)) throw badArgument(name, "an object", labels);
  const entries = Object.entries<unknown>(labels);
  if (entries.length > MAX_LABELS) throw badArgument(name, `at most ${MAX_LABELS} labels`, entries.length);
  const read: [name: string, value: string][] = [];
  for (const [label, value] of entries) {
    if (!isShort(label)) throw badArgument(name, `names of 1 to ${MAX_LENGTH} characters`, label);
    if (!isShort(value))
      throw badArgument(name, `a string of 1 to ${MAX_LENGTH} characters as ${JSON.stringify(label)}`, value);
    read.push([label, value]);
  }
  // A name may be `__proto__`, which an assignment would not keep.
  return read.length === 0 ? undefined : Object.fromEntries(read);
}

function isShort(text: unknown): text is string {
  return typeof text === "string" && text !== "" && text.length <= MAX_LENGTH;
}
