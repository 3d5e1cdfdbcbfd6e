import { asUser } from "../../http/claims.ts";
import type { Message } from "../../protocol/message.ts";
import { idOf, shownText, thoughtIn } from "../chat/parts.ts";
import { messageOf } from "../chat/questions.ts";
import type { ChatMessage, ChatPart } from "./chat-request.ts";
import type { MessageMetadata, UiChunk } from "./chunks.ts";
import { partChunks } from "./part-chunks.ts";

/** The messages that a page has when it has taken some chunks. */
export class UiMessages {
  readonly messages: ChatMessage[];
  #parts: ChatPart[] = [];

  /** Begins after the messages that are given. */
  constructor(before: readonly ChatMessage[] = []) {
    this.messages = [...before];
  }

  /** Adds an answer that the user gave as a message. Other answers are parts of what they answer. */
  say(answer: unknown): void {
    const message = messageOf(answer);
    const id = message && idOf(message);
    if (message === undefined || id === undefined) return;
    this.messages.push({
      id,
      role: "user",
      parts: asUser(message).parts.flatMap((part, at) => pageParts(part, `${id}.${at}`)),
    });
  }

  /** Sets the metadata of the last assistant message. */
  describe(metadata: MessageMetadata | undefined): void {
    const index = this.messages.findLastIndex(({ role }) => role === "assistant");
    const last = this.messages[index];
    if (last !== undefined) this.messages[index] = { ...last, ...(metadata && { metadata }) };
  }

  /** Notes an approval of a call that has no result yet. */
  approve(toolCallId: string): void {
    const part = this.#parts.find((one) => one["toolCallId"] === toolCallId);
    if (part?.["state"] === "approval-requested")
      this.#replaceCall(toolCallId, { state: "approval-responded", approval: { id: toolCallId, approved: true } });
  }

  /** Takes a chunk. `filename`: the name of the file in it, for which the stream has no field. */
  take(chunk: UiChunk, filename?: string): void {
    switch (chunk.type) {
      case "start":
        this.#parts = [];
        this.#add(chunk.messageId, chunk.messageMetadata);
        return;
      case "start-step":
        this.#parts.push({ type: "step-start" });
        return;
      case "text-start":
      case "reasoning-start":
        this.#parts.push({ type: chunk.type === "text-start" ? "text" : "reasoning", text: "", state: "streaming" });
        return;
      case "text-delta":
      case "reasoning-delta":
        this.#replaceLast(({ text, ...part }) => ({ ...part, text: `${text}${chunk.delta}` }));
        return;
      case "text-end":
      case "reasoning-end":
        this.#replaceLast((part) => ({ ...part, state: "done" }));
        return;
      case "tool-input-available": {
        const { toolCallId, toolName, input, providerExecuted, dynamic } = chunk;
        const tool = dynamic === true ? { type: "dynamic-tool", toolName } : { type: `tool-${toolName}` };
        const executed = providerExecuted && { providerExecuted };
        this.#parts.push({ ...tool, toolCallId, state: "input-available", input, ...executed });
        return;
      }
      case "tool-approval-request":
        this.#replaceCall(chunk.toolCallId, { state: "approval-requested", approval: { id: chunk.approvalId } });
        return;
      case "tool-output-error":
        this.#replaceCall(chunk.toolCallId, { state: "output-error", errorText: chunk.errorText });
        return;
      case "tool-output-denied":
        this.#replaceCall(chunk.toolCallId, {
          state: "output-denied",
          approval: { id: chunk.toolCallId, approved: false },
        });
        return;
      case "tool-output-available":
        this.#replaceCall(chunk.toolCallId, {
          state: "output-available",
          output: chunk.output,
          preliminary: chunk.preliminary,
        });
        return;
      case "file":
        this.#parts.push({ ...chunk, ...(filename !== undefined && { filename }) });
        return;
      case "source-url":
        this.#parts.push(chunk);
        return;
      case "finish":
        this.describe(chunk.messageMetadata);
        return;
      case "finish-step":
      case "abort":
      case "error":
        return;
      default:
        if (chunk.transient === undefined) this.#addData(chunk);
    }
  }

  #add(id: string, metadata: MessageMetadata | undefined): void {
    this.#parts = [];
    this.messages.push({ id, role: "assistant", ...(metadata && { metadata }), parts: this.#parts });
  }

  /** A data part with the id of an earlier one takes its place. */
  #addData(part: ChatPart): void {
    const index = this.#parts.findIndex(({ type, id }) => type === part.type && id !== undefined && id === part["id"]);
    this.#parts.splice(index === -1 ? this.#parts.length : index, 1, part);
  }

  #replaceLast(change: (part: ChatPart) => ChatPart): void {
    const last = this.#parts.pop();
    if (last !== undefined) this.#parts.push(change(last));
  }

  #replaceCall(toolCallId: string, change: Readonly<Record<string, unknown>>): void {
    const index = this.#parts.findIndex((part) => part["toolCallId"] === toolCallId);
    const part = this.#parts[index];
    if (part !== undefined) this.#parts[index] = { ...part, ...change };
  }
}

/** The messages of a session as those of a page. What an agent says one after another is one message. */
export function pageMessages(history: readonly Message[], sessionId: string): readonly ChatMessage[] {
  const messages: { id: string; role: "user" | "assistant"; parts: ChatPart[] }[] = [];
  for (const [index, message] of history.entries()) {
    const role = message.role === "user" ? "user" : "assistant";
    const said = role === "user" ? asUser(message) : message;
    const parts = said.parts.flatMap((part, at) => pageParts(part, `${sessionId}.${index}.${at}`));
    const last = messages.at(-1);
    if (role === "assistant" && last?.role === "assistant") last.parts.push(...parts);
    else messages.push({ id: idOf(message) ?? `${sessionId}.${index}`, role, parts });
  }
  return messages;
}

function pageParts(part: Message["parts"][number], id: string): readonly ChatPart[] {
  const text = shownText(part);
  if (text !== undefined && text !== "") return [{ type: "text", text, state: "done" }];
  const thought = thoughtIn(part);
  if (thought !== undefined) return [{ type: "reasoning", text: thought, state: "done" }];
  const one = new UiMessages();
  one.take({ type: "start", messageId: "" });
  for (const chunk of partChunks(part, id)) one.take(chunk, part.name);
  return one.messages[0]?.parts ?? [];
}
