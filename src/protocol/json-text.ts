import type { JsonValue } from "./json.ts";

/** Limits on the structure of a JSON text. */
export interface JsonLimits {
  /** Levels of nested objects and lists. */
  readonly maxDepth: number;
  /** Values in total. */
  readonly maxNodes: number;
}

/** The limits on JSON in the text of a part, and the default ones on a body. */
export const JSON_LIMITS: JsonLimits = { maxDepth: 64, maxNodes: 50_000 };

/** Why a JSON value is refused, although it is well-formed. The message goes on after "The body", "The text" and the like. */
export class JsonRefusal extends Error {
  override readonly name = "JsonRefusal";
  readonly reason: "too_deep" | "too_many_values" | "forbidden_key" | "unsafe_number";

  constructor(reason: JsonRefusal["reason"], message: string) {
    super(message);
    this.reason = reason;
  }
}

/** A shorter text is parsed before its structure is checked: that costs less than a look at each character. */
const SHORT = 4_096;

/**
 * The value of a JSON text. Throws {@link JsonRefusal} for a text beyond the limits, for a key `__proto__`, and for a whole
 * number that JavaScript would round. Throws `SyntaxError` for a text that is not JSON. A text beyond the limits is refused
 * before it is parsed.
 */
export function parseJson(text: string, limits: JsonLimits): unknown {
  const hasManyDigits = text.length > SHORT ? checkStructure(text, limits) : manyDigits.test(text);
  const value: unknown = JSON.parse(text);
  if (hasManyDigits) checkDigits(text);
  checkTree(value, limits);
  return value;
}

/** The value of the JSON in the text of a part. Undefined: it is no JSON, or is beyond {@link JSON_LIMITS}. */
export function parsedJson(text: string): JsonValue | undefined {
  try {
    return parseJson(text, JSON_LIMITS) as JsonValue;
  } catch {
    return undefined;
  }
}

/**
 * Refuses a value that is nested too deeply or holds too many values, before any recursive code reads it. Also refuses
 * the key `__proto__`, since copying it can change an object's prototype, and numbers that JavaScript has read as
 * infinite, such as `1e400`, which would become null. Goes level by level, so that no depth
 * overflows the stack.
 */
export function checkTree(root: unknown, { maxDepth, maxNodes }: JsonLimits): void {
  let nodes = 1;
  const queue: object[] = [];
  look(root, queue);
  let at = 0;
  for (let depth = 1; at < queue.length; depth++) {
    if (depth > maxDepth) throw tooDeep(maxDepth);
    for (const end = queue.length; at < end; at++) {
      const value = queue[at] as object;
      nodes += Array.isArray(value) ? lookAtList(value, queue) : lookAtObject(value, queue);
      if (nodes > maxNodes) throw tooManyValues(maxNodes);
    }
  }
}

function look(item: unknown, queue: object[]): void {
  if (typeof item === "object" && item !== null) queue.push(item);
  else if (item === Number.POSITIVE_INFINITY || item === Number.NEGATIVE_INFINITY)
    throw new JsonRefusal("unsafe_number", "has a number that is too large for JavaScript: send it as a string.");
}

function lookAtList(list: readonly unknown[], queue: object[]): number {
  for (const item of list) look(item, queue);
  return list.length;
}

function lookAtObject(value: object, queue: object[]): number {
  const keys = Object.keys(value);
  for (const key of keys) {
    if (key === "__proto__") throw new JsonRefusal("forbidden_key", 'has a key "__proto__".');
    look((value as Record<string, unknown>)[key], queue);
  }
  return keys.length;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const SPACE = 0x20;

/**
 * Refuses a text that is nested too deeply or holds too many values, by its brackets and commas. What is not JSON may pass:
 * the parser refuses that. A list or object that is not empty holds one value more than it has commas. Answers whether there
 * may be numbers of many digits.
 */
function checkStructure(text: string, { maxDepth, maxNodes }: JsonLimits): boolean {
  let depth = 0;
  let nodes = 1;
  let digits = 0;
  let mostDigits = 0;
  /** Whether a list or object has just begun. */
  let isOpening = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    digits = isDigit(code) ? digits + 1 : 0;
    if (digits > mostDigits) mostDigits = digits;
    if (code <= SPACE) continue;
    // `]` and `}`.
    if (code === 0x5d || code === 0x7d) {
      depth -= 1;
      isOpening = false;
      continue;
    }
    if (isOpening || code === COMMA) nodes += 1;
    // `[` and `{`.
    isOpening = code === 0x5b || code === 0x7b;
    if (isOpening) {
      depth += 1;
      if (depth > maxDepth) throw tooDeep(maxDepth);
    }
    if (nodes > maxNodes) throw tooManyValues(maxNodes);
    if (code === QUOTE) at = endOfString(text, at) - 1;
  }
  return mostDigits >= MANY;
}

/** Refuses a whole number that JavaScript would round. */
function checkDigits(text: string): void {
  for (let at = 0; at < text.length; ) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = endOfString(text, at);
    else if (isNumber(code)) {
      const from = at;
      while (at < text.length && isNumber(text.charCodeAt(at))) at += 1;
      if (at - from >= MANY) checkNumber(text.slice(from, at));
    } else at += 1;
  }
}

function checkNumber(number: string): void {
  // With a fraction or an exponent it is no whole number.
  if (/[.eE]/.test(number) || String(Number(number)) === number) return;
  const shown = number.length > 40 ? `${number.slice(0, 40)}…` : number;
  throw new JsonRefusal("unsafe_number", `has a number that would lose digits: send ${shown} as a string.`);
}

/** Whether a character may stand in a number: a digit, or one of `+-.eE`. */
function isNumber(code: number): boolean {
  return isDigit(code) || code === 0x2d || code === 0x2e || code === 0x65 || code === 0x45 || code === 0x2b;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

/** JavaScript represents each whole number of fewer digits exactly. */
const MANY = 16;
const manyDigits = new RegExp(`\\d{${MANY}}`);

/** The position after the string that begins at a quote. */
function endOfString(text: string, quote: number): number {
  const end = text.indexOf('"', quote + 1);
  if (end !== -1 && text.charCodeAt(end - 1) !== BACKSLASH) return end + 1;
  // The quote may be escaped. A string may be full of escapes, so each character is read once.
  for (let at = quote + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    if (code === BACKSLASH) at += 1;
  }
  // The text is not JSON.
  return text.length;
}

function tooDeep(maxDepth: number): JsonRefusal {
  return new JsonRefusal("too_deep", `is nested more than ${maxDepth} levels deep.`);
}

function tooManyValues(maxNodes: number): JsonRefusal {
  return new JsonRefusal("too_many_values", `holds more than ${maxNodes} values.`);
}
