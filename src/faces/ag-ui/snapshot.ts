import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { Message, MessagePart } from "../../protocol/message.ts";
import { idOf, linkOf, shownText, stateIn, thoughtIn } from "../chat/parts.ts";
import type { AgUiEvent, AgUiMessage } from "./events.ts";
import { partEvents, ShownCalls } from "./part-events.ts";

/** The messages that a client has when it has taken some events. */
export class ThreadMessages {
  readonly messages: AgUiMessage[] = [];
  /** The state that agents have set last. Undefined: none. */
  state: JsonValue | undefined;

  /** Adds what a session holds. `id` tells its messages from all others of the thread. */
  addSession(history: readonly Message[], id: string): void {
    const calls = new ShownCalls();
    for (const [index, message] of history.entries()) {
      const messageId = `${id}-${index}`;
      if (message.role === "user")
        this.messages.push({ id: idOf(message) ?? messageId, role: "user", content: contentOf(message) });
      else for (const [at, part] of message.parts.entries()) this.#addPart(part, `${messageId}.${at}`, calls);
    }
  }

  #addPart(part: MessagePart, messageId: string, calls: ShownCalls): void {
    this.state = stateIn(part) ?? this.state;
    const text = shownText(part) ?? "";
    if (text !== "") this.messages.push({ id: messageId, role: "assistant", content: text });
    const thought = thoughtIn(part);
    if (thought !== undefined) this.#addThought(messageId, thought);
    for (const event of partEvents(part, messageId, calls)) this.take(event);
  }

  take(event: AgUiEvent): void {
    switch (event.type) {
      case "TEXT_MESSAGE_START":
        this.messages.push({ id: event.messageId, role: event.role, content: "" } as AgUiMessage);
        return;
      case "TEXT_MESSAGE_CONTENT":
        this.#addText(event.delta);
        return;
      case "ACTIVITY_SNAPSHOT": {
        const { messageId, activityType, content } = event;
        this.messages.push({ id: messageId, role: "activity", activityType, content });
        return;
      }
      case "REASONING_MESSAGE_CONTENT":
        this.#addThought(event.messageId, event.delta);
        return;
      case "TOOL_CALL_START": {
        const { toolCallId: id, toolCallName: name } = event;
        const call = { id, type: "function", function: { name, arguments: "" } } as const;
        this.messages.push({ id, role: "assistant", toolCalls: [call] });
        return;
      }
      case "TOOL_CALL_ARGS":
        this.#addArguments(event.delta);
        return;
      case "TOOL_CALL_RESULT": {
        const { messageId, toolCallId, content } = event;
        this.messages.push({ id: messageId, role: "tool", toolCallId, content });
        return;
      }
      default:
    }
  }

  #addThought(id: string, delta: string): void {
    const last = this.messages.at(-1);
    if (last?.role === "reasoning" && last.id === id) this.#addText(delta);
    else this.messages.push({ id, role: "reasoning", content: delta });
  }

  #addText(delta: string): void {
    const last = this.messages.pop();
    if (last === undefined || !("content" in last) || typeof last.content !== "string") return;
    this.messages.push({ ...last, content: last.content + delta } as AgUiMessage);
  }

  #addArguments(delta: string): void {
    const last = this.messages.pop();
    if (last === undefined || !("toolCalls" in last)) return;
    const toolCalls = last.toolCalls.map((call) => ({ ...call, function: { ...call.function, arguments: delta } }));
    this.messages.push({ ...last, toolCalls });
  }
}

/** What a user has said: a text, or a list of parts. */
function contentOf({ parts }: Message): string | readonly JsonObject[] {
  const content = parts.flatMap((part): JsonObject[] => {
    const text = part.content_encoding === "plain" ? part.content : undefined;
    if (text !== undefined) return [{ type: "text", text }];
    const source = sourceOf(part);
    return source === undefined ? [] : [{ type: mediaOf(part), source }];
  });
  const texts = content.flatMap(({ text }) => (typeof text === "string" ? [text] : []));
  return texts.length === content.length ? texts.join("") : content;
}

function sourceOf(part: MessagePart): JsonObject | undefined {
  const { content, content_type: mimeType } = part;
  const value = linkOf(part);
  if (value !== undefined) return { type: "url", value, mimeType };
  return content === undefined ? undefined : { type: "data", value: content, mimeType };
}

function mediaOf({ content_type }: MessagePart): string {
  return /^(image|audio|video)\//.exec(content_type)?.[1] ?? "document";
}
