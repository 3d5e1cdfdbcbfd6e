import type { Message, MessagePart } from "cadenza";

/** Whether a part is something to read: not the bytes of a file, nor the schema that a question carries for its answer. */
export function isReadable({ content_type, content_encoding, content }: MessagePart): boolean {
  return content !== undefined && content_encoding === "plain" && content_type !== "application/schema+json";
}

/** What stands in messages to read. */
export function textOf(messages: readonly Message[]): string {
  return messages.flatMap(({ parts }) => parts.filter(isReadable).map(({ content }) => content)).join("");
}
