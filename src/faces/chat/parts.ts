import { MESSAGE_ID } from "../../http/claims.ts";
import { unfitAt } from "../../http/errors.ts";
import type { HttpSettings } from "../../http/options.ts";
import type { JsonValue } from "../../protocol/json.ts";
import { parsedJson } from "../../protocol/json-text.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";

/** The text of a part that is shown as text. Undefined: it is shown otherwise. */
export function shownText({ name, content_type, content, content_encoding }: MessagePart): string | undefined {
  return name === undefined && content_encoding === "plain" && content_type.startsWith("text/") ? content : undefined;
}

/** A thought of a model: the text of a trajectory that names no tool. Undefined: the part is none. */
export function thoughtIn({ metadata }: MessagePart): string | undefined {
  if (metadata?.kind !== "trajectory" || typeof metadata.tool_name === "string") return undefined;
  return typeof metadata.message === "string" && metadata.message !== "" ? metadata.message : undefined;
}

/** The state of a page as its agent has set it: the value of a JSON part with the name `state`. Undefined: the part is none. */
export function stateIn(part: MessagePart): JsonValue | undefined {
  const { name, content } = part;
  return name === STATE && content !== undefined && isJsonPart(part) ? jsonOf(content) : undefined;
}

/** The name of the part that sets the state of a page. */
export const STATE = "state";

/** A part of plain text. */
export function textPart(content: string): MessagePart {
  return { content_type: "text/plain", content, content_encoding: "plain" };
}

/** Whether the content of a part is a JSON value. */
export function isJsonPart({ content_type, content_encoding }: MessagePart): boolean {
  return content_encoding === "plain" && JSON_TYPE.test(content_type);
}

const JSON_TYPE = /^application\/(?:[\w.+-]*\+)?json$/;

/** Parts of which neighbouring texts are one. A text that has a name or metadata stays as it is. */
export function joined(parts: readonly MessagePart[]): readonly MessagePart[] {
  const result: MessagePart[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (last !== undefined && isBare(last) && isBare(part) && last.content_type === part.content_type)
      result[result.length - 1] = { ...last, content: `${last.content}${part.content}` };
    else result.push(part);
  }
  return result;
}

function isBare(part: MessagePart): boolean {
  const { name, content, content_encoding, metadata } = part;
  const isNamed = name !== undefined || metadata !== undefined;
  return content !== undefined && content_encoding === "plain" && !isNamed && !isJsonPart(part);
}

/** The value of a JSON text. What is no JSON, or is beyond the limits on JSON in a part, is taken as a string. */
export function jsonOf(text: string): JsonValue {
  const value = parsedJson(text);
  return value === undefined ? text : value;
}

/** Whether a part has an address that a message may have. */
export function isWebAddress(url: string): boolean {
  return /^https?:\/\//i.test(url) && URL.canParse(url);
}

/**
 * The address of a part that a page may show as a link. Undefined: it has none, or one of another scheme, which is a
 * program or a file of the reader.
 */
export function linkOf({ content_url }: MessagePart): string | undefined {
  return content_url !== undefined && (isWebAddress(content_url) || /^data:/i.test(content_url))
    ? content_url
    : undefined;
}

/** A message with the id that the page gave it. */
export function withId([first, ...rest]: readonly [MessagePart, ...MessagePart[]], id: string): Message {
  return { role: "user", parts: [{ ...first, [MESSAGE_ID]: id }, ...rest] };
}

/** The id of a message on the page that sent it. Undefined: no page did. */
export function idOf({ parts }: Message): string | undefined {
  const id = parts[0]?.[MESSAGE_ID];
  return typeof id === "string" ? id : undefined;
}

/** The id that a page gave a message. */
export function messageIdIn(id: unknown, path: readonly (string | number)[]): string {
  if (typeof id === "string" && id.length <= MAX_ID_LENGTH) return id;
  throw unfitAt(path, `expected a string of at most ${MAX_ID_LENGTH} characters`);
}

const MAX_ID_LENGTH = 255;

/** Refuses messages that have too many parts. */
export function checkParts(messages: readonly { readonly parts: readonly unknown[] }[], most: number): void {
  if (messages.reduce((sum, { parts }) => sum + parts.length, 0) > most)
    throw unfitAt(["messages"], `expected at most ${most} parts in all`);
}

/** Refuses what a client hands to an agent as the metadata of its run, if it is too long as JSON. */
export function checkMetadata(
  names: readonly string[],
  handed: object,
  { maxMetadataLength }: HttpSettings["limits"],
): void {
  if (maxMetadataLength === Number.POSITIVE_INFINITY || JSON.stringify(handed).length <= maxMetadataLength) return;
  throw unfitAt([], `expected at most ${maxMetadataLength} characters of JSON in ${names.join(", ")} together`);
}
