import type { JsonObject, JsonValue } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import { toolCallId } from "../chat/call-ids.ts";
import { isJsonPart, isWebAddress, jsonOf, linkOf, shownText, stateIn } from "../chat/parts.ts";
import type { AgUiEvent, PartEvent } from "./events.ts";

/** The id of a part, unique among all runs: it names the event that shows the part. */
export function partId(runId: string, event: number): string {
  return `${runId}-p${event}`;
}

/** The event that shows the part with this id. Undefined: it is the id of none. */
export function eventOfPart(id: string): { readonly run_id: string; readonly event: number } | undefined {
  const [, run_id, event] = /^([0-9a-f-]{36})-p([1-9]\d{0,9})$/.exec(id) ?? [];
  return run_id === undefined ? undefined : { run_id, event: Number(event) };
}

/** The tool calls that a client was shown. */
export class ShownCalls {
  readonly #shown = new Set<string>();
  readonly #finished = new Set<string>();

  /** The events of a call, unless it was shown before. */
  begin(toolCallId: string, toolCallName: string, input: JsonValue): readonly PartEvent[] {
    if (this.#shown.has(toolCallId)) return [];
    this.#shown.add(toolCallId);
    return [
      { type: "TOOL_CALL_START", toolCallId, toolCallName },
      { type: "TOOL_CALL_ARGS", toolCallId, delta: JSON.stringify(input) },
      { type: "TOOL_CALL_END", toolCallId },
    ];
  }

  /** The event of a result, unless the client has one: it would show both. */
  finish(toolCallId: string, messageId: string, content: string): readonly PartEvent[] {
    if (this.#finished.has(toolCallId)) return [];
    this.finishUnseen(toolCallId);
    return [{ type: "TOOL_CALL_RESULT", toolCallId, messageId, content }];
  }

  /** The client has the result of a call. */
  finishUnseen(toolCallId: string): void {
    this.#finished.add(toolCallId);
  }
}

/**
 * The events of a part beside its text, its thought and the state that it sets. `id` tells the part from all others.
 * `calls`: what was shown before; the call of this part is added.
 */
export function partEvents(part: MessagePart, id: string, calls: ShownCalls): readonly PartEvent[] {
  const events: PartEvent[] = [];
  const content = artifactOf(part);
  if (content !== undefined)
    events.push({ type: "ACTIVITY_SNAPSHOT", messageId: id, activityType: "artifact", content });
  const { metadata } = part;
  if (metadata?.kind === "citation") {
    const { kind, url, ...citation } = metadata;
    const isShown = typeof url === "string" && isWebAddress(url);
    events.push({ type: "CUSTOM", name: kind, value: (isShown ? { ...citation, url } : citation) as JsonObject });
  }
  if (metadata?.kind === "trajectory") events.push(...trajectoryEvents(metadata, id, calls));
  return events;
}

/** The content of a part that is not shown as text. Undefined: it has none. */
function artifactOf(part: MessagePart): JsonObject | undefined {
  const { name, content_type, content, content_encoding } = part;
  const kind = { ...(name !== undefined && { name }), content_type };
  const content_url = linkOf(part);
  if (content_url !== undefined) return { ...kind, content_url };
  if (content === undefined || shownText(part) !== undefined || stateIn(part) !== undefined) return undefined;
  return isJsonPart(part) ? { ...kind, data: jsonOf(content) } : { ...kind, content, content_encoding };
}

type Trajectory = Extract<NonNullable<MessagePart["metadata"]>, { readonly kind: "trajectory" }>;

/** The use of a tool. */
function trajectoryEvents(trajectory: Trajectory, id: string, calls: ShownCalls): readonly PartEvent[] {
  const { tool_name, tool_input, tool_output } = trajectory;
  if (typeof tool_name !== "string") return [];
  const callId = toolCallId(trajectory, id);
  const call = calls.begin(callId, tool_name, tool_input ?? {});
  const isOpen = tool_output === undefined || tool_output === null;
  return isOpen ? call : [...call, ...calls.finish(callId, id, JSON.stringify(tool_output))];
}

type BlockEvent = Extract<AgUiEvent, { readonly messageId: string }>;

/** What is written piece by piece: what the agent says, or what its model thinks. */
export const blocks = {
  text: {
    start: (messageId: string): readonly BlockEvent[] => [{ type: "TEXT_MESSAGE_START", messageId, role: "assistant" }],
    add: (messageId: string, delta: string): BlockEvent => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta }),
    end: (messageId: string): readonly BlockEvent[] => [{ type: "TEXT_MESSAGE_END", messageId }],
  },
  thought: {
    start: (messageId: string): readonly BlockEvent[] => [
      { type: "REASONING_START", messageId },
      { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    ],
    add: (messageId: string, delta: string): BlockEvent => ({ type: "REASONING_MESSAGE_CONTENT", messageId, delta }),
    end: (messageId: string): readonly BlockEvent[] => [
      { type: "REASONING_MESSAGE_END", messageId },
      { type: "REASONING_END", messageId },
    ],
  },
};
