import type { Message } from "../../../protocol/message.ts";
import { idOf, shownText } from "../../chat/parts.ts";
import { messageOf } from "../../chat/questions.ts";
import type { ChatMessage, ChatPart } from "./chat-request.ts";
import type { UiChunk } from "./chunks.ts";
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
      parts: message.parts.flatMap((part, at) => pageParts(part, `${id}.${at}`)),
    });
  }

  take(chunk: UiChunk): void {
    switch (chunk.type) {
      case "start":
        this.#parts = [];
        this.messages.push({ id: chunk.messageId, role: "assistant", parts: this.#parts });
        return;
      case "start-step":
        this.#parts.push({ type: "step-start" });
        return;
      case "text-start":
        this.#parts.push({ type: "text", text: "", state: "streaming" });
        return;
      case "text-delta":
        this.#replaceText((text) => ({ type: "text", text: `${text}${chunk.delta}`, state: "streaming" }));
        return;
      case "text-end":
        this.#replaceText((text) => ({ type: "text", text, state: "done" }));
        return;
      case "tool-input-available": {
        const { toolCallId, toolName, input, providerExecuted } = chunk;
        const executed = providerExecuted && { providerExecuted };
        this.#parts.push({ type: "dynamic-tool", toolName, toolCallId, state: "input-available", input, ...executed });
        return;
      }
      case "tool-approval-request":
        this.#replaceCall(chunk.toolCallId, { state: "approval-requested", approval: { id: chunk.approvalId } });
        return;
      case "tool-output-available":
        this.#replaceCall(chunk.toolCallId, { state: "output-available", output: chunk.output });
        return;
      case "file":
      case "source-url":
        this.#parts.push(chunk);
        return;
      case "finish-step":
      case "abort":
      case "finish":
      case "error":
        return;
      default:
        if (chunk.transient === undefined) this.#parts.push(chunk);
    }
  }

  #replaceText(change: (text: unknown) => ChatPart): void {
    this.#parts.push(change(this.#parts.pop()?.["text"]));
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
    const parts = message.parts.flatMap((part, at) => pageParts(part, `${sessionId}.${index}.${at}`));
    const last = messages.at(-1);
    if (role === "assistant" && last?.role === "assistant") last.parts.push(...parts);
    else messages.push({ id: idOf(message) ?? `${sessionId}.${index}`, role, parts });
  }
  return messages;
}

function pageParts(part: Message["parts"][number], id: string): readonly ChatPart[] {
  const text = shownText(part);
  if (text !== undefined && text !== "") return [{ type: "text", text, state: "done" }];
  const one = new UiMessages();
  one.take({ type: "start", messageId: "" });
  for (const chunk of partChunks(part, id)) one.take(chunk);
  return one.messages[0]?.parts ?? [];
}
