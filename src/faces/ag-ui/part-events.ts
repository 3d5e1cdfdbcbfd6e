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

/**
 * The events of a part beside its text, its thought and the state that it sets. `id` tells the part from all others. `calls`: the tool calls that were shown
 * before; the call of this part is added.
 */
export function partEvents(part: MessagePart, id: string, calls: Set<string>): readonly PartEvent[] {
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
function trajectoryEvents(trajectory: Trajectory, id: string, calls: Set<string>): PartEvent[] {
  const { tool_name, tool_input, tool_output } = trajectory;
  if (typeof tool_name !== "string") return [];
  const call = { toolCallId: toolCallId(trajectory, id) };
  const events = [...callEvents(call.toolCallId, tool_name, tool_input ?? {}, calls)];
  if (tool_output !== undefined && tool_output !== null)
    events.push({ ...call, type: "TOOL_CALL_RESULT", messageId: id, content: JSON.stringify(tool_output) });
  return events;
}

/** The events of a call that was not shown before. */
export function callEvents(id: string, name: string, input: JsonValue, calls: Set<string>): readonly PartEvent[] {
  if (calls.has(id)) return [];
  calls.add(id);
  const call = { toolCallId: id };
  return [
    { ...call, type: "TOOL_CALL_START", toolCallName: name },
    { ...call, type: "TOOL_CALL_ARGS", delta: JSON.stringify(input) },
    { ...call, type: "TOOL_CALL_END" },
  ];
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
