import { CALL_ID } from "../../http/claims.ts";
import { unfitAt } from "../../http/errors.ts";
import type { HttpSettings } from "../../http/options.ts";
import type { JsonObject } from "../../protocol/json.ts";
import { isJsonObject } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import type { QuestionId } from "../chat/call-ids.ts";
import { questionOfCall } from "../chat/call-ids.ts";
import { checkMetadata, checkParts, isWebAddress, jsonOf, messageIdIn, textPart, withId } from "../chat/parts.ts";
import type { Reply } from "../chat/questions.ts";
import { declined, replyOf } from "../chat/questions.ts";

/** What a client posts (`RunAgentInput`). */
export interface RunInput {
  readonly threadId: string;
  readonly runId: string;
  /**
   * What the user says: the messages after the last one of the assistant. None if the client replies. At least one
   * otherwise, unless there are results of tools.
   */
  readonly messages: readonly GivenMessage[];
  /** The results of tools in all messages. A client puts each behind its call, before what it was told meanwhile. */
  readonly results: readonly ToolResult[];
  /** The places of the messages with an id in the list of all messages. */
  readonly places: ReadonlyMap<string, number>;
  /** What the client replies to questions. */
  readonly resume: readonly ResumeEntry[];
  /** The client says which version of the protocol it speaks, which clients do from 1.0 on. */
  readonly isVersioned: boolean;
  /** The names of the tools that the client executes itself. */
  readonly clientTools: ReadonlySet<string>;
  /** What the agent is handed, and nothing here reads. */
  readonly handed: JsonObject;
}

/** A message of the user, or what the client says that one of its tools has given. */
export interface GivenMessage {
  readonly id: string;
  readonly message: Message;
  /** The tool call whose result it is, as the client says. Undefined: it is a message of the user. */
  readonly callId: string | undefined;
}

/** What one of the client's tools has given, as the reply to the question for it. */
export interface ToolResult {
  readonly callId: string;
  /** Its place in the list of all messages. */
  readonly place: number;
  readonly reply: Reply;
  /** The refusal to answer, with the result as its reason. */
  readonly refusal: Reply;
  /** It tells of an error of the tool. */
  readonly isError: boolean;
}

/** What a client replies to a question. */
export interface ResumeEntry extends QuestionId {
  readonly isCancelled: boolean;
  readonly reply: Reply;
  /** What it replies if that is no answer to the question. Undefined: the question stays open then. */
  readonly otherwise?: Reply | undefined;
}

type Path = readonly (string | number)[];

const HANDED = ["runId", "parentRunId", "state", "tools", "context", "forwardedProps"] as const;

/** Reads what a client posts. Refuses anything else, with what was wrong and where. */
export function readRunInput(body: unknown, limits: HttpSettings["limits"]): RunInput {
  if (!isJsonObject(body)) throw unfitAt([], "expected an object");
  const { threadId, runId, messages, resume, tools, context } = body;
  if (typeof threadId !== "string") throw unfitAt(["threadId"], "expected the id of the thread");
  if (typeof runId !== "string" || runId === "" || runId.length > MAX_ID_LENGTH)
    throw unfitAt(["runId"], `expected an id of 1 to ${MAX_ID_LENGTH} characters`);
  for (const [name, list] of Object.entries({ tools, context }))
    if (list !== undefined && !Array.isArray(list)) throw unfitAt([name], "expected a list");
  const given = listIn("messages", messages, limits.maxMessages);
  const entries = resume === undefined ? [] : listIn("resume", resume, limits.maxMessages);
  const handed = Object.fromEntries(HANDED.flatMap((name) => (body[name] === undefined ? [] : [[name, body[name]]])));
  checkMetadata(HANDED, handed, limits);
  const results = given.flatMap(toolResult);
  return {
    threadId,
    runId,
    messages: entries.length > 0 ? [] : newMessages(given, results, limits),
    results,
    places: new Map(given.flatMap(({ id }, place) => (typeof id === "string" && id !== "" ? [[id, place]] : []))),
    resume: entries.map((entry, index) => resumeEntry(entry, ["resume", index])),
    isVersioned: typeof body["protocolVersion"] === "string",
    clientTools: new Set(listIn("tools", tools ?? [], limits.maxMessages).flatMap(({ name }) => textIn(name))),
    handed,
  };
}

/** What is no text is the name of no tool. */
function textIn(name: unknown): readonly string[] {
  return typeof name === "string" ? [name] : [];
}

const MAX_ID_LENGTH = 255;

function listIn(name: string, list: unknown, most: number): readonly JsonObject[] {
  if (!Array.isArray(list)) throw unfitAt([name], "expected a list");
  if (list.length > most) throw unfitAt([name], `expected at most ${most} items`);
  for (const [index, item] of list.entries())
    if (!isJsonObject(item)) throw unfitAt([name, index], "expected an object");
  return list;
}

/** What a client calls the system or the developer speaks with no authority here. */
function newMessages(
  messages: readonly JsonObject[],
  results: readonly ToolResult[],
  limits: HttpSettings["limits"],
): readonly GivenMessage[] {
  const first = messages.findLastIndex(({ role }) => role === "assistant") + 1;
  const read = messages.slice(first).flatMap((given, index): GivenMessage[] => {
    const { role, id, toolCallId: callId } = given;
    if (role !== "user" && role !== "tool") return [];
    const path = ["messages", first + index];
    if (role === "tool" && typeof callId !== "string")
      throw unfitAt([...path, "toolCallId"], "expected the id of a tool call");
    const call = role === "tool" ? { [CALL_ID]: callId } : {};
    const [part, ...more] = partsOf(given, path).map((one) => ({ ...one, ...call }));
    if (part === undefined) throw unfitAt([...path, "content"], "expected a text, or a list of parts");
    const known = messageIdIn(id, [...path, "id"]);
    const message = withId([part, ...more], known);
    return [{ id: known, message, callId: role === "user" ? undefined : String(callId) }];
  });
  if (read.length === 0 && results.length === 0)
    throw unfitAt(["messages"], "expected a message of the user after the last of the assistant");
  checkParts(
    read.map(({ message }) => message),
    limits.maxParts,
  );
  return read;
}

/** A result that is a text. Any other answers no question. */
function toolResult({ role, toolCallId: callId, content, error }: JsonObject, place: number): readonly ToolResult[] {
  if (role !== "tool" || typeof callId !== "string" || typeof content !== "string") return [];
  if (typeof error === "string" && error !== "") {
    const refusal = declined(error);
    return [{ callId, place, reply: refusal, refusal, isError: true }];
  }
  // CopilotKit writes the error of a tool so, and does not use the field for it.
  const [, thrown] = /^Error: (.+)/s.exec(content) ?? [];
  const refusal = declined(thrown ?? content);
  return [{ callId, place, reply: replyOf(jsonOf(content)), refusal, isError: thrown !== undefined }];
}

function partsOf({ content }: JsonObject, path: Path): readonly MessagePart[] {
  const list = typeof content === "string" ? [{ type: "text", text: content }] : content;
  if (!Array.isArray(list)) throw unfitAt([...path, "content"], "expected a text, or a list of parts");
  return list.map((part: unknown, index) => partOf(part, [...path, "content", index]));
}

const media: readonly unknown[] = ["image", "audio", "video", "document"];

function partOf(part: unknown, path: Path): MessagePart {
  const { type, text, source } = isJsonObject(part) ? part : {};
  if (type === "text" && typeof text === "string") return textPart(text);
  if (!media.includes(type) || !isJsonObject(source)) throw unfitAt(path, "expected a text, or a file with its source");
  const { value, mimeType = "application/octet-stream" } = source;
  if (typeof mimeType !== "string" || mimeType === "")
    throw unfitAt([...path, "source", "mimeType"], "expected a media type");
  if (typeof value !== "string") throw unfitAt([...path, "source", "value"], "expected a string");
  if (source["type"] === "data") return { content_type: mimeType, content_encoding: "base64", content: value };
  if (source["type"] === "url" && isWebAddress(value))
    return { content_type: mimeType, content_encoding: "plain", content_url: value };
  throw unfitAt([...path, "source"], "expected the data in base64, or an http or https address");
}

function resumeEntry({ interruptId, status, payload }: JsonObject, path: Path): ResumeEntry {
  const question = typeof interruptId === "string" ? questionOfCall(interruptId) : undefined;
  if (question === undefined) throw unfitAt([...path, "interruptId"], "expected the id of an interrupt");
  if (status === "cancelled") return { ...question, isCancelled: true, reply: declined() };
  if (status !== "resolved") throw unfitAt([...path, "status"], "expected resolved or cancelled");
  // The official client leaves out a null.
  return { ...question, isCancelled: false, reply: replyOf(payload ?? null) };
}
