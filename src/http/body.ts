import { WireError } from "./errors.ts";
import type { WireBody } from "./wire.ts";

/** Limits on the structure of a body. */
export interface TreeLimits {
  readonly maxDepth: number;
  readonly maxNodes: number;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Collects the bytes of a body, counts them as they arrive, and decodes them. */
export class BodyText {
  readonly #maxBytes: number;
  #bytes = 0;
  #first: Uint8Array | undefined;
  #decoder: typeof utf8 | undefined;
  #text = "";

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Adds a chunk. Refuses it if the body becomes too large. */
  add(chunk: Uint8Array): void {
    this.#bytes += chunk.length;
    if (this.#bytes > this.#maxBytes) throw tooLarge(this.#maxBytes);
    // Most bodies arrive as one chunk.
    if (this.#first === undefined) {
      this.#first = chunk;
      return;
    }
    if (this.#decoder === undefined) {
      this.#decoder = new TextDecoder("utf-8", { fatal: true });
      this.#text = this.#decode(this.#first, true);
    }
    this.#text += this.#decode(chunk, true);
  }

  end(): string {
    if (this.#first === undefined) return "";
    return this.#text + this.#decode(this.#decoder === undefined ? this.#first : undefined, false);
  }

  #decode(chunk: Uint8Array | undefined, stream: boolean): string {
    try {
      return (this.#decoder ?? utf8).decode(chunk, { stream });
    } catch {
      throw new WireError(400, "malformed_body", "The body is not text in UTF-8.");
    }
  }
}

/** Refuses a body by the length that its sender states. */
export function checkContentLength(length: string | undefined, maxBytes: number): void {
  if (length !== undefined && Number(length) > maxBytes) throw tooLarge(maxBytes);
}

/** The body took too long. */
export function tooSlow(): WireError {
  return new WireError(408, "body_timeout", "The body did not arrive in time.", { headers: { connection: "close" } });
}

/** The client disconnected before its body was complete. */
export function clientLeft(): WireError {
  return new WireError(400, "client_left", "The body ended before it was complete.");
}

/** Refuses a media type other than JSON. A missing one is accepted, since some clients send none. */
export function checkContentType(type: string | undefined): void {
  if (type === undefined || type === "" || jsonType.test(type)) return;
  throw new WireError(415, "unsupported_media_type", "The body has to be application/json.");
}

const jsonType = /^\s*application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i;

/** The value that a body holds. */
export function readJson(body: WireBody, limits: TreeLimits): unknown {
  const value = "text" in body ? parse(body.text) : parsed(body.value);
  checkTree(value, limits);
  return value;
}

/**
 * Refuses a value that is nested too deeply or holds too many values, before any recursive code reads it. Also refuses
 * the key `__proto__`, since copying it can change an object's prototype. Goes level by level, so that no depth
 * overflows the stack.
 */
export function checkTree(root: unknown, { maxDepth, maxNodes }: TreeLimits): void {
  let nodes = 1;
  const queue: object[] = typeof root === "object" && root !== null ? [root] : [];
  let at = 0;
  for (let depth = 1; at < queue.length; depth++) {
    if (depth > maxDepth) throw refuseTree("too_deep", `The body is nested more than ${maxDepth} levels deep.`);
    for (const end = queue.length; at < end; at++) {
      const value = queue[at] as object;
      nodes += Array.isArray(value) ? lookAtList(value, queue) : lookAtObject(value, queue);
      if (nodes > maxNodes) throw refuseTree("too_many_values", `The body holds more than ${maxNodes} values.`);
    }
  }
}

function lookAtList(list: readonly unknown[], queue: object[]): number {
  for (const item of list) if (typeof item === "object" && item !== null) queue.push(item);
  return list.length;
}

function lookAtObject(value: object, queue: object[]): number {
  let count = 0;
  for (const key in value) {
    if (key === "__proto__") throw refuseTree("forbidden_key", 'The body has a key "__proto__".');
    const item: unknown = (value as Record<string, unknown>)[key];
    if (typeof item === "object" && item !== null) queue.push(item);
    count += 1;
  }
  return count;
}

/** The value of a JSON text. Refuses a whole number that JavaScript would round. */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (!manyDigits.test(text)) return value;
  for (let from = 0; from < text.length; ) {
    const quote = text.indexOf('"', from);
    const outside = quote === -1 ? text.slice(from) : text.slice(from, quote);
    for (const [number] of outside.matchAll(/-?\d[\d.eE+-]*/g)) {
      if (/^-?\d{16,}$/.test(number) && String(Number(number)) !== number)
        throw new WireError(422, "unsafe_number", `The number ${number} would lose digits; send it as a string.`);
    }
    if (quote === -1) break;
    from = endOfString(text, quote);
  }
  return value;
}

/** JavaScript represents each whole number of up to fifteen digits exactly. */
const manyDigits = /\d{16}/;

/** The position after the string that begins at a quote. */
function endOfString(text: string, quote: number): number {
  for (let end = text.indexOf('"', quote + 1); ; end = text.indexOf('"', end + 1)) {
    let escapes = 0;
    while (text[end - 1 - escapes] === "\\") escapes += 1;
    if (escapes % 2 === 0) return end + 1;
  }
}

function parse(text: string): unknown {
  if (text === "") throw new WireError(400, "malformed_body", "The body is empty; it has to be JSON.");
  try {
    return parseJson(text);
  } catch (error) {
    if (error instanceof WireError) throw error;
    const why = error instanceof Error ? error.message : "";
    throw new WireError(400, "malformed_body", `The body is not JSON: ${why}`);
  }
}

/** The value of a body that the host has parsed. The host may have left it as text or bytes. */
function parsed(value: unknown): unknown {
  if (typeof value === "string") return parse(value);
  if (!(value instanceof Uint8Array)) return value;
  const text = new BodyText(Number.POSITIVE_INFINITY);
  text.add(value);
  return parse(text.end());
}

function tooLarge(maxBytes: number): WireError {
  return new WireError(413, "body_too_large", `The body has more than ${maxBytes} bytes.`, {
    headers: { connection: "close" },
  });
}

function refuseTree(reason: string, message: string): WireError {
  return new WireError(422, reason, message);
}
