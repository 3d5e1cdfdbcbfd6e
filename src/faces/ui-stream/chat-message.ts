import { unfitAt } from "../../http/errors.ts";
import type { JsonValue } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { jsonPart } from "../../protocol/message.ts";
import { questionOfCall } from "../chat/call-ids.ts";
import { isWebAddress, textPart, withId } from "../chat/parts.ts";
import type { ChatMessage, ChatPart } from "./chat-request.ts";

/** A message of the user as the agent gets it. Refuses one without content. */
export function userMessage({ id, parts }: ChatMessage, path: readonly (string | number)[]): Message {
  const [first, ...rest] = parts.flatMap((part, index) => contentOf(part, [...path, "parts", index]) ?? []);
  if (first === undefined) throw unfitAt([...path, "parts"], "expected a text, a file or a data part");
  return withId([first, ...rest], id);
}

/** Whether a part is a call that stands for a question: a call of `ask`, or of the tool that the question is about. */
export function isQuestion({ type, providerExecuted, toolCallId }: ChatPart): boolean {
  const isCall = (type === "dynamic-tool" || type.startsWith("tool-")) && providerExecuted !== true;
  return isCall && typeof toolCallId === "string" && questionOfCall(toolCallId) !== undefined;
}

/** A part of a page as a part of a message. Undefined: it has no content of its own. */
function contentOf(part: ChatPart, path: readonly (string | number)[]): MessagePart | undefined {
  const { type } = part;
  if (type === "text") {
    if (typeof part["text"] !== "string") throw unfitAt([...path, "text"], "expected a string");
    return part["text"] === "" ? undefined : textPart(part["text"]);
  }
  if (type === "file") return fileOf(part, path);
  if (!type.startsWith("data-") || part["data"] === undefined) return undefined;
  return { ...jsonPart(part["data"] as JsonValue), name: type.slice("data-".length) };
}

function fileOf({ url, mediaType, filename }: ChatPart, path: readonly (string | number)[]): MessagePart {
  if (typeof mediaType !== "string" || mediaType === "") throw unfitAt([...path, "mediaType"], "expected a media type");
  if (typeof url !== "string") throw unfitAt([...path, "url"], "expected an address");
  const named = { ...(typeof filename === "string" && filename !== "" && { name: filename }), content_type: mediaType };
  if (isWebAddress(url)) return { ...named, content_encoding: "plain", content_url: url };
  const data = /^data:[^,]*?(;base64)?,/i.exec(url);
  if (data === null) throw unfitAt([...path, "url"], "expected an http, https or data address");
  const content = url.slice(data[0].length);
  if (data[1] !== undefined) return { ...named, content_encoding: "base64", content };
  try {
    return { ...named, content_encoding: "plain", content: decodeURIComponent(content) };
  } catch {
    throw unfitAt([...path, "url"], "expected percent-encoded text");
  }
}
