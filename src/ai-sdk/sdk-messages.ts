import type { Message, MessagePart } from "../protocol/message.ts";
import { SCHEMA_TYPE } from "../protocol/run.ts";
import { toBase64 } from "./codec.ts";
import { badArgument, checkKeys } from "./options.ts";
import { isToolQuestion } from "./questions.ts";
import type { ToolModelOutput } from "./tool-types.ts";
import { toolUseIn } from "./trajectory.ts";

/** A message for the AI SDK: a `ModelMessage` of version 6 and of version 7. */
export type SdkMessage =
  | { role: "user"; content: (TextPart | FilePart)[] }
  | { role: "assistant"; content: (TextPart | ToolCallPart)[] }
  | { role: "tool"; content: ToolResultPart[] };

/** How messages are read for a model. */
export interface MessagesOptions {
  /**
   * The origins of files that the AI SDK may fetch, for example `https://files.example.com`. It downloads a file that the
   * model cannot fetch by itself, from this process, which may reach addresses that the author of the message cannot. A
   * file from any other origin becomes a text with its address. Default: none.
   */
  readonly fileOrigins?: readonly string[] | undefined;
}

interface TextPart {
  type: "text";
  text: string;
}

interface FilePart {
  type: "file";
  data: string | URL;
  mediaType: string;
  filename?: string;
}

interface ToolCallPart {
  type: "tool-call";
  toolCallId: string;
  toolName: string;
  input: unknown;
}

interface ToolResultPart {
  type: "tool-result";
  toolCallId: string;
  toolName: string;
  output: ToolModelOutput;
}

/**
 * Messages of the protocol as the AI SDK wants them. Tool calls and their results are those of the trajectory parts.
 * Questions about tools and their answers are left out, since the results tell what came of them. So are the schemas of
 * other questions.
 */
export function sdkMessages(messages: readonly Message[], options: MessagesOptions = {}): SdkMessage[] {
  const origins = readOrigins(options);
  const found: SdkMessage[] = [];
  let wasToolQuestion = false;
  for (const { role, parts } of messages) {
    const isToolAnswer = wasToolQuestion && role === "user";
    wasToolQuestion = role !== "user" && parts.some(isToolQuestion);
    if (isToolAnswer || wasToolQuestion) continue;
    const shown = parts.filter(({ content_type }) => content_type !== SCHEMA_TYPE);
    if (role === "user") addUser(found, shown, origins);
    else for (const part of shown) addPart(found, part);
  }
  return found;
}

/** Throws `invalid_argument` for what are no origins. */
function readOrigins(options: MessagesOptions): ReadonlySet<string> {
  checkKeys("options", options, ["fileOrigins"]);
  const { fileOrigins = [] } = options;
  const isOrigin = (text: unknown): boolean =>
    typeof text === "string" && /^https?:/i.test(text) && URL.canParse(text) && new URL(text).pathname === "/";
  if (!Array.isArray(fileOrigins) || !fileOrigins.every(isOrigin))
    throw badArgument("options.fileOrigins", "a list of origins such as https://files.example.com", fileOrigins);
  return new Set(fileOrigins.map((text: string) => new URL(text).origin));
}

function addUser(found: SdkMessage[], parts: readonly MessagePart[], origins: ReadonlySet<string>): void {
  const content = parts.flatMap((part) => userPart(part, origins) ?? []);
  if (content.length > 0) found.push({ role: "user", content });
}

/** Adds a part of an agent. The calls of tools that follow each other are one message, as are their results. */
function addPart(found: SdkMessage[], part: MessagePart): void {
  const use = toolUseIn(part);
  const text = textOf(part);
  if (use !== undefined) {
    const call: ToolCallPart = { type: "tool-call", toolCallId: use.id, toolName: use.name, input: use.input };
    const result: ToolResultPart = {
      type: "tool-result",
      toolCallId: use.id,
      toolName: use.name,
      output: use.forModel,
    };
    const [before, last] = found.slice(-2);
    if (last?.role === "tool" && before?.role === "assistant") {
      before.content.push(call);
      last.content.push(result);
    } else {
      assistant(found).content.push(call);
      found.push({ role: "tool", content: [result] });
    }
  } else if (text !== undefined && text !== "") {
    const { content } = assistant(found);
    const last = content.at(-1);
    if (last?.type === "text") last.text += text;
    else content.push({ type: "text", text });
  }
}

/** The last message, if it is one of the model; otherwise a new one. */
function assistant(found: SdkMessage[]): Extract<SdkMessage, { role: "assistant" }> {
  const last = found.at(-1);
  if (last?.role === "assistant") return last;
  const message: SdkMessage = { role: "assistant", content: [] };
  found.push(message);
  return message;
}

/** A text or a file of the user. Undefined: the part has no content. */
function userPart(part: MessagePart, origins: ReadonlySet<string>): TextPart | FilePart | undefined {
  const { name, content_type: mediaType, content, content_encoding, content_url } = part;
  const text = textOf(part);
  if (text !== undefined) return text === "" ? undefined : { type: "text", text };
  const file = { type: "file", mediaType, ...(name !== undefined && { filename: name }) } as const;
  if (content_url !== undefined) {
    const url = new URL(content_url);
    const isAllowed = url.protocol === "data:" || (origins.has(url.origin) && url.username === "");
    return isAllowed ? { ...file, data: url } : { type: "text", text: `${name ?? mediaType}: ${content_url}` };
  }
  if (content === undefined) return undefined;
  // The AI SDK takes a text that is an address for the file's address, and fetches it. Base64 has no colon.
  if (content_encoding === "plain") return { ...file, data: toBase64(new TextEncoder().encode(content)) };
  return content.includes(":") ? { type: "text", text: content } : { ...file, data: content };
}

/** The text of a part: plain text, or JSON as it is written. */
function textOf({ content, content_type, content_encoding }: MessagePart): string | undefined {
  const isText = content_type.startsWith("text/") || /^application\/(?:[\w.+-]+\+)?json$/.test(content_type);
  return isText && content_encoding === "plain" ? content : undefined;
}
