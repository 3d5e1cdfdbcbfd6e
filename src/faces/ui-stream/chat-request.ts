import { unfitAt } from "../../http/errors.ts";
import type { HttpSettings } from "../../http/options.ts";
import { isJsonObject } from "../../protocol/json.ts";
import { checkMetadata, checkParts, messageIdIn } from "../chat/parts.ts";
import type { MessageMetadata } from "./chunks.ts";

/** A part of a message of a chat page. What it holds depends on its type, and comes from the client. */
export interface ChatPart extends Readonly<Record<string, unknown>> {
  readonly type: string;
}

/** A message of a chat page. */
export interface ChatMessage {
  readonly id: string;
  readonly role: "user" | "assistant" | "system";
  readonly parts: readonly ChatPart[];
  /** What the server has said of it. It is not read when it comes from a page. */
  readonly metadata?: MessageMetadata;
}

/** What a chat page posts. */
export interface ChatRequest {
  readonly id: string;
  readonly messages: readonly ChatMessage[];
  readonly trigger: "submit-message" | "regenerate-message";
  readonly messageId: string | undefined;
  /** What the application has added to the body; undefined for nothing. */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
}

const roles: readonly unknown[] = ["user", "assistant", "system"] satisfies ChatMessage["role"][];

/** Reads what a chat page posts. Refuses anything else, with what was wrong and where. */
export function readChatRequest(body: unknown, limits: HttpSettings["limits"]): ChatRequest {
  if (!isJsonObject(body)) throw unfitAt([], "expected an object");
  const { id, messages, trigger = "submit-message", messageId = null, ...extra } = body;
  if (typeof id !== "string") throw unfitAt(["id"], "expected the id of the chat");
  if (trigger !== "submit-message" && trigger !== "regenerate-message")
    throw unfitAt(["trigger"], "expected submit-message or regenerate-message");
  if (messageId !== null && typeof messageId !== "string") throw unfitAt(["messageId"], "expected a string");
  if (!Array.isArray(messages) || messages.length === 0) throw unfitAt(["messages"], "expected a list of messages");
  if (messages.length > limits.maxMessages)
    throw unfitAt(["messages"], `expected at most ${limits.maxMessages} messages`);
  const read = messages.map((message, index) => readMessage(message, ["messages", index]));
  checkParts(read, limits.maxParts);
  checkMetadata(["what the application has added"], extra, limits);
  return {
    id,
    messages: read,
    trigger,
    messageId: messageId ?? undefined,
    extra: Object.keys(extra).length > 0 ? extra : undefined,
  };
}

function readMessage(message: unknown, path: readonly (string | number)[]): ChatMessage {
  if (!isJsonObject(message)) throw unfitAt(path, "expected a message");
  const { id, role, parts } = message;
  if (!roles.includes(role)) throw unfitAt([...path, "role"], "expected user, assistant or system");
  if (!Array.isArray(parts) || !parts.every(isPart)) throw unfitAt([...path, "parts"], "expected a list of parts");
  return { id: messageIdIn(id, [...path, "id"]), role: role as ChatMessage["role"], parts };
}

function isPart(part: unknown): part is ChatPart {
  return isJsonObject(part) && typeof part["type"] === "string";
}
