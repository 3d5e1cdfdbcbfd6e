import type { Emission } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { MessagePart } from "../protocol/message.ts";

/** Throws when something that is shown is larger than it may be. A string has at most three bytes for each of its UTF-16 units, so that almost none needs counting. */
export function checkSize(emission: Emission, maxBytes: number): void {
  switch (emission.kind) {
    case "part":
      checkPart(emission.part, maxBytes);
      break;
    case "message":
      for (const part of emission.message.parts) checkPart(part, maxBytes);
      break;
    case "generic":
      if (utf8Length(JSON.stringify(emission.generic)) > maxBytes)
        throw limitError("maxPartBytes", `An object is larger than ${maxBytes} bytes.`);
      break;
    case "close":
      break;
  }
}

function checkPart({ content = "", content_url = "" }: MessagePart, maxBytes: number): void {
  const text = content.length > content_url.length ? content : content_url;
  if (3 * text.length > maxBytes && utf8Length(text) > maxBytes)
    throw limitError("maxPartBytes", `A part is larger than ${maxBytes} bytes.`);
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The error of somebody who has reached one of the limits. */
export function limitError(limit: string, message: string): CadenzaError {
  return new CadenzaError("limit_reached", message, { limit });
}
