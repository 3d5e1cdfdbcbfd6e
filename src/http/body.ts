import type { JsonLimits } from "../protocol/json-text.ts";
import { checkTree, JsonRefusal, parseJson } from "../protocol/json-text.ts";
import { WireError } from "./errors.ts";
import type { WireBody } from "./wire.ts";

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
export function readJson(body: WireBody, limits: JsonLimits): unknown {
  if ("text" in body) return parse(body.text, limits);
  const { value } = body;
  // The host has parsed the body, or has left it as text or bytes.
  if (typeof value === "string") return parse(value, limits);
  if (value instanceof Uint8Array) {
    const text = new BodyText(Number.POSITIVE_INFINITY);
    text.add(value);
    return parse(text.end(), limits);
  }
  return withinLimits("The body", () => {
    checkTree(value, limits);
    return value;
  });
}

/** Reads JSON. A refusal becomes the error for clients, which begins with the name of what is read. */
export function withinLimits<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof JsonRefusal) throw new WireError(422, error.reason, `${name} ${error.message}`);
    throw error;
  }
}

function parse(text: string, limits: JsonLimits): unknown {
  if (text === "") throw new WireError(400, "malformed_body", "The body is empty; it has to be JSON.");
  try {
    return withinLimits("The body", () => parseJson(text, limits));
  } catch (error) {
    if (error instanceof WireError) throw error;
    const why = error instanceof Error ? error.message : "";
    throw new WireError(400, "malformed_body", `The body is not JSON: ${why}`);
  }
}

function tooLarge(maxBytes: number): WireError {
  return new WireError(413, "body_too_large", `The body has more than ${maxBytes} bytes.`, {
    headers: { connection: "close" },
  });
}
