import type { Message, MessagePart } from "cadenza";

/** Whether a part is text to read: not the bytes of a file, and not the schema of a question. */
export function isReadable({ content_type, content_encoding, content }: MessagePart): boolean {
  return content !== undefined && content_encoding === "plain" && content_type !== "application/schema+json";
}

/** The text of messages. */
export function textOf(messages: readonly Message[]): string {
  return messages.flatMap(({ parts }) => parts.filter(isReadable).map(({ content }) => content)).join("");
}
