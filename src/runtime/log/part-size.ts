import type { Emission } from "../../core/commands.ts";
import { CadenzaError } from "../../core/errors.ts";
import type { WaitingMessages } from "../../core/state.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";

/** Throws `limit_reached` for an emission larger than `maxBytes`. */
export function checkSize(emission: Emission, maxBytes: number): void {
  switch (emission.kind) {
    case "part":
      checkPart(emission.part, maxBytes);
      break;
    case "message":
      for (const part of emission.message.parts) checkPart(part, maxBytes);
      break;
    case "generic":
      if (isLarger(JSON.stringify(emission.generic), maxBytes))
        throw limitError(
          "maxPartBytes",
          `The agent emitted an object of more than limits.maxPartBytes (${maxBytes}) bytes.`,
        );
      break;
    case "close":
      break;
  }
}

/** Throws `limit_reached` for the result of a durable step that is larger than `maxBytes` as JSON in UTF-8. */
export function checkResultSize(key: string, result: JsonValue | undefined, maxBytes: number): void {
  if (result !== undefined && maxBytes < Number.POSITIVE_INFINITY && isLarger(JSON.stringify(result), maxBytes))
    throw limitError("maxStepBytes", `Step ${key}: its result has more than limits.maxStepBytes (${maxBytes}) bytes.`);
}

/** How many bytes of UTF-8 the data of a message has as JSON. Throws `limit_reached` for more than `maxBytes`. */
export function messageBytes(data: JsonValue, maxBytes: number): number {
  const bytes = bytesOf(JSON.stringify(data));
  if (bytes <= maxBytes) return bytes;
  throw limitError("maxPartBytes", `The message has more than limits.maxPartBytes (${maxBytes}) bytes.`);
}

/** The limits on the messages of one run. */
export interface MessageLimits {
  readonly maxLogEntries: number;
  readonly maxLogBytes: number;
  readonly maxWaitingMessages: number;
  readonly maxWaitingBytes: number;
}

/** Throws `limit_reached` if a message of so many bytes has no room among the messages that wait. */
export function checkWaiting(runId: string, waiting: WaitingMessages, bytes: number, limits: MessageLimits): void {
  const { maxWaitingMessages, maxWaitingBytes } = limits;
  const name =
    waiting.messages >= maxWaitingMessages
      ? "maxWaitingMessages"
      : waiting.bytes + bytes > maxWaitingBytes
        ? "maxWaitingBytes"
        : undefined;
  if (name === undefined) return;
  const message = `The agent of run ${runId} has not received ${waiting.messages} messages of ${waiting.bytes} bytes, and limits.${name} (${limits[name]}) allows no more. Send the message again when it has.`;
  throw new CadenzaError("limit_reached", message, { run_id: runId, limit: name });
}

/** Throws `limit_reached` for a log that takes no more entries. */
export function checkLogLength(length: number, maxEntries: number): void {
  if (length >= maxEntries)
    throw limitError("maxLogEntries", `The run's log has reached its limit of ${maxEntries} entries.`);
}

/** The error of a log that is too large to be read as a whole, or to take more entries. */
export function logSizeError(runId: string, most: number): CadenzaError {
  const message = `The log of run ${runId} has more than limits.maxLogBytes (${most}) characters as JSON.`;
  return new CadenzaError("limit_reached", message, { run_id: runId, limit: "maxLogBytes" });
}

/** Whether an error says that a log is too large to be read as a whole. */
export function isLogSizeError(error: unknown): error is CadenzaError {
  return CadenzaError.is(error) && error.limit === "maxLogBytes";
}

function checkPart({ content = "", content_url = "" }: MessagePart, maxBytes: number): void {
  const text = content.length > content_url.length ? content : content_url;
  if (isLarger(text, maxBytes))
    throw limitError("maxPartBytes", `The agent emitted a part of more than limits.maxPartBytes (${maxBytes}) bytes.`);
}

/** A UTF-16 unit has at most three bytes in UTF-8, so most strings are not counted. */
function isLarger(text: string, maxBytes: number): boolean {
  return 3 * text.length > maxBytes && bytesOf(text) > maxBytes;
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** The error for an exceeded limit. */
function limitError(limit: string, message: string): CadenzaError {
  return new CadenzaError("limit_reached", message, { limit });
}
