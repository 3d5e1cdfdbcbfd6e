import { copyJson } from "../../core/json.ts";
import type { MaybePromise } from "../../core/promises.ts";
import { isPromise } from "../../core/promises.ts";
import type { JsonInput, JsonValue } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { JSON_LIMITS, JsonRefusal, parseJson } from "../../protocol/json-text.ts";
import type { Message, MessageInput, MessagePart, MessagePartInput } from "../../protocol/message.ts";
import { jsonPart, messagePartSchema, messageSchema } from "../../protocol/message.ts";
import { badArgument, read, unreadable } from "./check.ts";
import type { SchemaHost, StandardSchema, Validate, Validated } from "./standard-schema.ts";

/**
 * The input of `createRun`: a text, a part, a message, a value, or a list of these. A plain object without any of the
 * fields `content`, `content_type`, `content_url`, `parts` and `role` is a value, and becomes a JSON part: an agent with an
 * `input` schema takes it as it is.
 */
export type RunInput = InputItem | readonly InputItem[];

/** One item of a run's input. Consecutive texts, parts and values become one message of the user. */
export type InputItem = string | MessagePartInput | MessageInput | (JsonInput & object);

const JSON_TYPE = /^application\/(?:[\w.+-]*\+)?json$/;

/** Reads any form of input as messages. All values are copied. */
export function readInput(input: unknown): readonly Message[] {
  if (!Array.isArray(input)) return [readOne("input", input)];
  // An array that grows reserves memory for sixteen more.
  if (input.length === 1) return [readOne("input.0", input[0])];
  const messages: Message[] = [];
  let parts: MessagePart[] = [];
  for (const [index, item] of input.entries()) {
    const name = `input.${index}`;
    if (typeof item === "string") parts.push(textPart(item));
    else if (typeof item === "object" && item !== null && isPartLike(item)) parts.push(readPart(name, item));
    else if (isValue(item)) parts.push(valuePart(name, item));
    else {
      if (parts.length > 0) messages.push(userMessage(parts));
      parts = [];
      messages.push(readMessage(name, item));
    }
  }
  if (parts.length > 0) messages.push(userMessage(parts));
  return messages;
}

function readOne(name: string, item: unknown): Message {
  if (typeof item === "string") return userMessage([textPart(item)]);
  return isValue(item) ? userMessage([valuePart(name, item)]) : readItem(name, item);
}

/** A part of plain text. */
export function textPart(text: string): MessagePart {
  return { content_type: "text/plain", content: text, content_encoding: "plain" };
}

/** A message of the user. */
export function userMessage(parts: readonly MessagePart[]): Message {
  return { role: "user", parts };
}

/** Whether the value looks like a part: its `content` is a string, or without `content`, its `content_url`. */
export function isPartLike(value: object): boolean {
  return "content" in value
    ? typeof value.content === "string"
    : "content_url" in value && typeof value.content_url === "string";
}

/** The fields of parts and messages that an application's own values are hardly named by. */
const itemFields = ["content", "content_type", "content_url", "parts", "role"];

/** Whether an item of an input is a value of the application: a plain object that is no part and no message. */
export function isValue(item: unknown): item is object {
  if (!isJsonObject(item)) return false;
  for (const field of itemFields) if (field in item) return false;
  return true;
}

function valuePart(name: string, value: object): MessagePart {
  return jsonPart(readJson(name, value) ?? null);
}

/** Reads a part. Most parts are plain text. They are read without the schema, which takes ten times as long. */
export function readPart(name: string, value: unknown): MessagePart {
  return plainPart(value) ?? read(name, messagePartSchema, readJson(name, value));
}

/** Reads a message. The first part that is wrong ends it, however many there are. */
export function readMessage(name: string, value: unknown): Message {
  if (typeof value !== "object" || value === null) throw badArgument(name, "a string, a part or a message", value);
  const plain = plainMessage(value);
  if (plain !== undefined) return plain;
  const json = readJson(name, value);
  if (!isJsonObject(json) || !Array.isArray(json["parts"])) return read(name, messageSchema, json);
  const message = read(name, messageSchema, { ...json, parts: [] });
  const parts = (json["parts"] as readonly JsonValue[]).map((part, index) => {
    return plainPart(part) ?? read(`${name}.parts.${index}`, messagePartSchema, part);
  });
  return { ...message, parts };
}

/** Copies the value as JSON. A later change of the value by the caller does not affect the copy. */
function readJson(name: string, value: unknown): JsonValue | undefined {
  try {
    return copyJson(value);
  } catch (cause) {
    throw unreadable(name, cause, "a JSON value");
  }
}

/** The text of a message: its plain parts of text or JSON, joined. */
export function messageText(message: Message): string {
  let text = "";
  for (const part of message.parts) {
    const isText = part.content_type.startsWith("text/") || JSON_TYPE.test(part.content_type);
    if (isText && part.content_encoding === "plain") text += part.content ?? "";
  }
  return text;
}

/** Whether a part holds JSON. */
export function isJsonPart(part: MessagePart): boolean {
  return JSON_TYPE.test(part.content_type) && part.content_encoding === "plain" && part.content !== undefined;
}

/**
 * Validates the value of messages. The candidates, the likeliest first: the first JSON part, the text as JSON, the raw text.
 * Where none is valid and a limit on JSON has refused one, the issue says so.
 */
export function validateMessages(
  schema: StandardSchema,
  messages: readonly Message[],
  host: SchemaHost,
  validate: Validate,
): MaybePromise<Validated> {
  const parts = messages.flatMap((message) => message.parts);
  const json = parts.find(isJsonPart);
  const text = messages.map(messageText).join("");
  const candidates: unknown[] = [];
  let refusal: JsonRefusal | undefined;
  for (const written of json?.content === undefined || json.content === text ? [text] : [json.content, text]) {
    try {
      candidates.push(parseJson(written, JSON_LIMITS));
    } catch (error) {
      if (error instanceof JsonRefusal) refusal ??= error;
    }
  }
  const explained = (outcome: Validated): Validated =>
    refusal === undefined || "value" in outcome
      ? outcome
      : { issues: [{ path: [], message: `The JSON ${refusal.message}` }] };
  const outcome = validate(schema, [...candidates, text], host);
  return isPromise(outcome) ? outcome.then(explained) : explained(outcome);
}

/** Reads a part or a message as a message. */
export function readItem(name: string, value: unknown): Message {
  if (typeof value === "object" && value !== null && isPartLike(value)) return userMessage([readPart(name, value)]);
  return readMessage(name, value);
}

/** A copy of the part, if it has no other fields than text as content, a content type and the plain encoding. */
function plainPart(value: unknown): MessagePart | undefined {
  let content: string | undefined;
  let type = "text/plain";
  for (const key in value as object) {
    const field: unknown = (value as Record<string, unknown>)[key];
    if (key === "content" && typeof field === "string") content = field;
    else if (key === "content_type" && typeof field === "string") type = field;
    else if (key !== "content_encoding" || field !== "plain") return undefined;
  }
  return content === undefined ? undefined : { content_type: type, content, content_encoding: "plain" };
}

/** A copy of the message, if its role is `user` or `agent` and all its parts are plain. */
function plainMessage(value: object): Message | undefined {
  let parts: readonly MessagePart[] | undefined;
  let role: "user" | "agent" = "user";
  for (const key in value) {
    const field: unknown = (value as Record<string, unknown>)[key];
    if (key === "role" && (field === "user" || field === "agent")) role = field;
    else if (key === "parts" && Array.isArray(field)) parts = plainParts(field);
    else return undefined;
  }
  return parts && { role, parts };
}

function plainItem(value: unknown): MessagePart | undefined {
  return typeof value === "object" && value !== null ? plainPart(value) : undefined;
}

function plainParts(values: readonly unknown[]): readonly MessagePart[] | undefined {
  const parts = values.map(plainItem);
  // `includes` finds the gaps of a list too, which `map` keeps and `every` skips.
  return parts.includes(undefined) ? undefined : (parts as readonly MessagePart[]);
}
