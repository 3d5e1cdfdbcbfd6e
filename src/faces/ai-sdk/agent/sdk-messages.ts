import type { Message, MessagePart } from "../../../protocol/message.ts";
import { SCHEMA_TYPE } from "../../../protocol/run.ts";
import { isToolQuestion } from "./questions.ts";
import type { ToolModelOutput } from "./tool-types.ts";
import { toolUseIn } from "./trajectory.ts";

/** A message for the AI SDK: a `ModelMessage` of version 6 and of version 7. */
export type SdkMessage =
  | { role: "user"; content: (TextPart | FilePart)[] }
  | { role: "assistant"; content: (TextPart | ToolCallPart)[] }
  | { role: "tool"; content: ToolResultPart[] };

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
export function sdkMessages(messages: readonly Message[]): SdkMessage[] {
  const found: SdkMessage[] = [];
  let wasToolQuestion = false;
  for (const { role, parts } of messages) {
    const isToolAnswer = wasToolQuestion && role === "user";
    wasToolQuestion = parts.some(isToolQuestion);
    if (isToolAnswer || wasToolQuestion) continue;
    const shown = parts.filter(({ content_type }) => content_type !== SCHEMA_TYPE);
    if (role === "user") addUser(found, shown);
    else for (const part of shown) addPart(found, part);
  }
  return found;
}

function addUser(found: SdkMessage[], parts: readonly MessagePart[]): void {
  const content = parts.flatMap(userPart);
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

function userPart(part: MessagePart): (TextPart | FilePart)[] {
  const { name, content, content_type, content_url } = part;
  const text = textOf(part);
  if (text !== undefined) return text === "" ? [] : [{ type: "text", text }];
  const data = content_url === undefined ? content : new URL(content_url);
  if (data === undefined) return [];
  return [{ type: "file", data, mediaType: content_type, ...(name !== undefined && { filename: name }) }];
}

/** The text of a part: plain text, or JSON as it is written. */
function textOf({ content, content_type, content_encoding }: MessagePart): string | undefined {
  const isText = content_type.startsWith("text/") || /^application\/(?:[\w.+-]+\+)?json$/.test(content_type);
  return isText && content_encoding === "plain" ? content : undefined;
}
