import type { MessagePart } from "../protocol/message.ts";

/** The text of message parts. What is no text is named. */
export function textOf(parts: readonly MessagePart[]): string {
  return parts
    .filter(({ content_type }) => content_type !== "application/schema+json")
    .map(({ content, content_type, content_url }) => {
      if (typeof content_url === "string") return content_url;
      return content_type === "text/plain" || /json/.test(content_type) ? (content ?? "") : `[${content_type}]`;
    })
    .join("");
}

/** The name of an operation, as its key has it: `pay` of `pay#1`. */
export function nameIn(key: string): string {
  return key.replace(/#\d+$/, "").replace(/^(?:run|receive):/, "");
}
