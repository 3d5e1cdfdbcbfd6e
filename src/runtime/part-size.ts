import type { Emission } from "../core/decide.ts";
import { CadenzaError } from "../core/errors.ts";
import type { MessagePart } from "../protocol/message.ts";

/**
 * Throws `limit_reached` for an emission larger than `maxBytes`. A UTF-16 unit has at most three bytes in UTF-8, so
 * most strings are not counted.
 */
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
        throw limitError(
          "maxPartBytes",
          `The agent emitted an object of more than limits.maxPartBytes (${maxBytes}) bytes.`,
        );
      break;
    case "close":
      break;
  }
}

function checkPart({ content = "", content_url = "" }: MessagePart, maxBytes: number): void {
  const text = content.length > content_url.length ? content : content_url;
  if (3 * text.length > maxBytes && utf8Length(text) > maxBytes)
    throw limitError("maxPartBytes", `The agent emitted a part of more than limits.maxPartBytes (${maxBytes}) bytes.`);
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The error for an exceeded limit. */
export function limitError(limit: string, message: string): CadenzaError {
  return new CadenzaError("limit_reached", message, { limit });
}
