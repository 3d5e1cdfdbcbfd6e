import { ClientError } from "./client-error.ts";

/** A value as JSON. Throws `invalid_argument` for one that JSON cannot express. */
export function jsonText(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw notJson(cause);
  }
  if (text === undefined) throw notJson();
  return text;
}

export function notJson(cause?: unknown): ClientError {
  return new ClientError("invalid_argument", "Expected a JSON value, received one that JSON cannot express.", {
    cause,
  });
}

/** Whether a value is an object with names. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value of a JSON text. Undefined: it is none, or was cut off. */
export function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
