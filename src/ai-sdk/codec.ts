import { isJsonObject } from "../protocol/json.ts";

/* Values of the AI SDK as JSON. Bytes, dates and URLs become objects with one key, by which they are told again. */

const BYTES = "$bytes";
const DATE = "$date";
const URL_TEXT = "$url";
/** An object of the SDK that looks like one of these. */
const PLAIN = "$plain";
const TAGS: ReadonlySet<string> = new Set([BYTES, DATE, URL_TEXT, PLAIN]);

/** The most bytes that become one call of `String.fromCharCode`. */
const SLICE = 8_192;

/**
 * A copy in which bytes, dates and URLs are JSON. Properties that are undefined are left out. What JSON cannot carry
 * stays as it is, so that the step which records it refuses it and names the place.
 */
export function encode(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (value instanceof Uint8Array) return { [BYTES]: toBase64(value) };
  if (value instanceof ArrayBuffer) return { [BYTES]: toBase64(new Uint8Array(value)) };
  if (value instanceof Date) return { [DATE]: Number.isNaN(value.getTime()) ? null : value.toISOString() };
  if (value instanceof URL) return { [URL_TEXT]: value.href };
  if (Array.isArray(value)) return value.map((item) => encode(item));
  if (!isJsonObject(value)) return value;
  const copy = Object.fromEntries(
    Object.entries(value).flatMap(([key, item]) => (item === undefined ? [] : [[key, encode(item)]])),
  );
  return tagOf(copy) === undefined ? copy : { [PLAIN]: copy };
}

/** The value that {@link encode} was given. An `ArrayBuffer` comes back as a `Uint8Array`. */
export function decode(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(decode);
  const fields = value as Readonly<Record<string, unknown>>;
  const tag = tagOf(fields);
  switch (tag) {
    case undefined:
      return fieldsOf(fields);
    case BYTES:
      return fromBase64(String(fields[tag]));
    case DATE:
      return new Date(typeof fields[tag] === "string" ? fields[tag] : Number.NaN);
    case URL_TEXT:
      return new URL(String(fields[tag]));
    default:
      return fieldsOf(fields[tag] as object);
  }
}

function fieldsOf(value: object): object {
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, decode(item)]));
}

function tagOf(value: object): string | undefined {
  const [key, ...more] = Object.keys(value);
  return key !== undefined && more.length === 0 && TAGS.has(key) ? key : undefined;
}

/** Bytes in base64. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += SLICE) text += String.fromCharCode(...bytes.subarray(at, at + SLICE));
  return btoa(text);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
