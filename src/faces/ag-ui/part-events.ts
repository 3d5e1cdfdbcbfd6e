import type { JsonObject } from "../../protocol/json.ts";
import type { MessagePart } from "../../protocol/message.ts";
import { toolCallId } from "../chat/call-ids.ts";
import { isJsonPart, isWebAddress, jsonOf, linkOf, shownText } from "../chat/parts.ts";
import type { PartEvent } from "./events.ts";

/**
 * The events of a part beside its text. `id` tells the part from all others. `calls`: the tool calls that were shown
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
  if (content === undefined || shownText(part) !== undefined) return undefined;
  return isJsonPart(part) ? { ...kind, data: jsonOf(content) } : { ...kind, content, content_encoding };
}

type Trajectory = Extract<NonNullable<MessagePart["metadata"]>, { readonly kind: "trajectory" }>;

/** The use of a tool, or a thought. */
function trajectoryEvents(trajectory: Trajectory, id: string, calls: Set<string>): PartEvent[] {
  const { tool_name, tool_input, tool_output, message } = trajectory;
  if (typeof tool_name !== "string") return typeof message === "string" && message !== "" ? thought(message, id) : [];
  const call = { toolCallId: toolCallId(trajectory, id) };
  const events: PartEvent[] = [];
  if (!calls.has(call.toolCallId)) {
    const delta = JSON.stringify(tool_input ?? {});
    events.push({ ...call, type: "TOOL_CALL_START", toolCallName: tool_name });
    events.push({ ...call, type: "TOOL_CALL_ARGS", delta }, { ...call, type: "TOOL_CALL_END" });
    calls.add(call.toolCallId);
  }
  if (tool_output !== undefined && tool_output !== null)
    events.push({ ...call, type: "TOOL_CALL_RESULT", messageId: id, content: JSON.stringify(tool_output) });
  return events;
}

function thought(delta: string, messageId: string): PartEvent[] {
  return [
    { type: "REASONING_START", messageId },
    { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId, delta },
    { type: "REASONING_MESSAGE_END", messageId },
    { type: "REASONING_END", messageId },
  ];
}
